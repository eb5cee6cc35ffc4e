"""Beam search against exhaustive search, batches against singles, and what never comes out."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from model_inputs import small_model, sound

from icefall_ctx.data.batch import TokenHistory
from icefall_ctx.decode.beam import BeamOptions, BeamSearch
from icefall_ctx.decode.ctc import PrefixScorer
from icefall_ctx.models.lm import LstmLm, LstmLmConfig
from icefall_ctx.models.memory_entries import EntryTokens

VOCAB = 6  # three tokens that may be emitted
MAX_LEN = 3


def inputs(model, n=3, frames=(29, 23, 15)):
    features = torch.nn.utils.rnn.pad_sequence([sound(f, f) for f in frames[:n]], batch_first=True)
    encoded = model.encoder(features, torch.tensor(frames[:n]))
    ctc = model.ctc_log_probs(3 * encoded.out)
    return encoded, ctc


def language_model(vocab=VOCAB):
    torch.manual_seed(5)
    return LstmLm(LstmLmConfig(vocab, d_model=8, num_layers=1)).eval()


def exhaustive(model, encoded, ctc, row, options, lm):
    """(score, tokens) of every sequence up to the limit, best first."""
    one = slice(row, row + 1)
    limit = max(1, int(encoded.lens[row] * options.max_len_ratio))
    scorer = PrefixScorer(ctc[one], encoded.lens[one])
    ranked = []
    for length in range(limit + 1):
        for tokens in itertools.product(range(3, VOCAB), repeat=length):
            ids = torch.tensor([[1, *tokens]])
            state = model.decoder.prepare(encoded.out[one], encoded.lens[one])
            targets = torch.tensor([*tokens, 1])
            att = model.decoder(ids, state)[0].double()[torch.arange(length + 1), targets].sum()
            prefix = scorer.initial()
            for token in tokens:
                _, prefix = scorer.extend(prefix, torch.tensor([[token]]))
            score = (1 - options.ctc_weight) * att + options.ctc_weight * scorer.end(prefix)[0]
            if lm is not None:
                score = score + options.lm_scale * lm.score([list(tokens)])[0][0].double()
            ranked.append((float(score) + options.length_bonus * length, list(tokens)))
    return sorted(ranked, key=lambda item: -item[0])


@pytest.mark.parametrize("ctc_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("lm_scale, length_bonus", [(0.0, 0.0), (0.5, 0.7), (0.5, -0.4)])
def test_a_huge_beam_is_exhaustive_search(ctc_weight, lm_scale, length_bonus):
    model = small_model(vocab_size=VOCAB)
    encoded, ctc = inputs(model)
    lm = language_model() if lm_scale else None
    options = BeamOptions(500, ctc_weight, lm_scale, length_bonus, max_len_ratio=0.6, nbest=5)
    found = BeamSearch(model.decoder, options, lm).search(
        model.decoder.prepare(encoded.out, encoded.lens), ctc, encoded.lens
    )
    for row, nbest in enumerate(found):
        expected = exhaustive(model, encoded, ctc, row, options, lm)[:5]
        scores = [h.score for h in nbest]
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)
        assert nbest[0].tokens == expected[0][1]
        parts = nbest[0]
        total = (1 - ctc_weight) * parts.att + ctc_weight * parts.ctc + lm_scale * parts.lm
        assert parts.score == pytest.approx(total + length_bonus * len(parts.tokens))


def exhaustive_with_memory(decoder, encoded, ctc, memory, limit, weight, less):
    """(score, tokens) of one utterance, best first, token by token."""
    scorer = PrefixScorer(ctc, encoded.lens)
    ranked = []
    for length in range(limit + 1):
        for tokens in itertools.product(range(3, VOCAB), repeat=length):
            state = decoder.prepare(encoded.out, encoded.lens, memory=memory)
            output = decoder.mixture(torch.tensor([[1, *tokens]]), state)
            read = (output.scores[-1].choice()[0] != 0).tolist()
            prefix, before, score = scorer.initial(), 0.0, 0.0
            for place, token in enumerate([*tokens, 1]):
                if token == 1:
                    ctc_now = float(scorer.end(prefix)[0])
                else:
                    psi, prefix = scorer.extend(prefix, torch.tensor([[token]]))
                    ctc_now = float(psi[0, 0])
                w = less if read[place] and token != 1 else weight
                att = float(output.log_probs[0, place, token])
                score += (1 - w) * att + w * (ctc_now - before)
                before = ctc_now
            ranked.append((score, list(tokens), read))
    return sorted(ranked, key=lambda item: -item[0])


@pytest.mark.parametrize("less", [0.0, 0.2, 0.9])
def test_ctc_has_less_to_say_where_the_memory_reads_an_entry(less):
    model = small_model(vocab_size=VOCAB, memory="2mem", memory_encoder_layers=1)
    decoder = model.decoder
    encoded, ctc = inputs(model, 1)
    memory = decoder.encode(EntryTokens.from_lists([[3, 4], [5], [5, 3]]))
    memory = replace(memory, bias=torch.tensor([[1.0, 0.0, 0.0, 0.0]]))  # the dummy wins at times
    options = BeamOptions(500, 0.3, max_len_ratio=0.6, nbest=5, memory_ctc_weight=less)
    state = decoder.prepare(encoded.out, encoded.lens, memory=memory)
    (found,) = BeamSearch(decoder, options).search(state, ctc, encoded.lens)
    limit = max(1, int(encoded.lens[0] * 0.6))
    expected = exhaustive_with_memory(decoder, encoded, ctc, memory, limit, 0.3, min(less, 0.3))
    assert 0.2 < np.mean([flag for _, _, read in expected for flag in read]) < 0.8
    assert [h.tokens for h in found] == [tokens for _, tokens, _ in expected[:5]]
    assert [h.score for h in found] == pytest.approx([s for s, _, _ in expected[:5]], abs=1e-4)


TEXT = TokenHistory.from_lists([[[3, 4]], [], [[5, 6, 7]], [[8], [3]], []])


@pytest.mark.parametrize("text_context", ["none", "conditional", "attention"])
@pytest.mark.parametrize("ctc_weight", [0.0, 0.3, 1.0])
def test_batch_equals_one_by_one(text_context, ctc_weight):
    """Mixed lengths, histories, an utterance without any frame, an LM."""
    model = small_model(text_context=text_context)
    encoded, ctc = inputs(model, 5, (61, 7, 40, 3, 33))
    search = BeamSearch(model.decoder, BeamOptions(4, ctc_weight, 0.3, 0.2), language_model(9))
    together = search.search(
        model.decoder.prepare(encoded.out, encoded.lens, TEXT), ctc, encoded.lens
    )
    for row in range(5):
        one, length = slice(row, row + 1), max(1, int(encoded.lens[row]))
        history = TokenHistory(TEXT.tokens[one], TEXT.lens[one], TEXT.same_speaker[one])
        lens = encoded.lens[one]
        state = model.decoder.prepare(encoded.out[one, :length], lens, history)
        alone = search.search(state, ctc[one, :length], lens)[0]
        assert alone[0].tokens == together[row][0].tokens
        assert alone[0].score == pytest.approx(together[row][0].score, abs=1e-3)


@pytest.mark.parametrize("ctc_weight", [0.0, 0.3, 1.0])
def test_blank_unk_and_end_never_come_out_and_confidence_is_a_probability(ctc_weight):
    model = small_model()
    model.decoder.out.bias.data[[0, 2]] = 20.0  # both heads prefer <blk> and <unk>
    model.ctc.bias.data[[1, 2]] = 20.0
    encoded, ctc = inputs(model)
    for lm, bonus in ((None, 0.0), (language_model(9), 2.0)):
        search = BeamSearch(model.decoder, BeamOptions(4, ctc_weight, 0.8, bonus, nbest=4), lm)
        state = model.decoder.prepare(encoded.out, encoded.lens)
        for nbest in search.search(state, ctc, encoded.lens):
            assert nbest == sorted(nbest, key=lambda h: -h.score)
            for hypothesis in nbest:
                assert not {0, 1, 2} & set(hypothesis.tokens)
                assert 0.0 <= hypothesis.confidence <= 1.0


def test_a_decoder_that_never_ends_is_bounded():
    model = small_model()
    model.decoder.out.bias.data[1] = -50.0
    model.decoder.out.bias.data[4] = 20.0
    encoded, ctc = inputs(model)
    found = BeamSearch(model.decoder, BeamOptions(3, 0.0)).search(
        model.decoder.prepare(encoded.out, encoded.lens), ctc, encoded.lens
    )
    assert [len(nbest[0].tokens) for nbest in found] == encoded.lens.tolist()


def test_more_hypotheses_wanted_than_the_beam_holds():
    model = small_model()
    encoded, ctc = inputs(model)
    state = model.decoder.prepare(encoded.out, encoded.lens)
    found = BeamSearch(model.decoder, BeamOptions(2, nbest=6)).search(state, ctc, encoded.lens)
    for nbest in found:
        assert len(nbest) >= 2
        assert len({tuple(h.tokens) for h in nbest}) == len(nbest)


@pytest.mark.parametrize(
    "options",
    [
        dict(beam=0),
        dict(nbest=0),
        dict(ctc_weight=1.5),
        dict(memory_ctc_weight=-0.1),
        dict(lm_scale=-1.0),
    ],
    ids=str,
)
def test_weights_that_make_the_search_wrong_are_refused(options):
    with pytest.raises(ValueError):
        BeamOptions(**options)
