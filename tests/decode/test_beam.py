"""Beam search against exhaustive search, batches against singles, and what never comes out."""

import itertools

import pytest
import torch
from model_inputs import small_model, sound

from icefall_ctx.data.batch import TokenHistory
from icefall_ctx.decode.beam import BeamOptions, BeamSearch
from icefall_ctx.decode.ctc import PrefixScorer
from icefall_ctx.models.lm import LstmLm, LstmLmConfig

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
    [dict(beam=0), dict(nbest=0), dict(ctc_weight=1.5), dict(lm_scale=-1.0)],
    ids=str,
)
def test_weights_that_make_the_search_wrong_are_refused(options):
    with pytest.raises(ValueError):
        BeamOptions(**options)
