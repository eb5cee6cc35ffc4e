"""Text history: the recursion of A3 as a loop, the gate of A3b, caps and padding."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_inputs import small_config, small_model

from icefall_ctx.data.batch import TokenHistory, cap_history
from icefall_ctx.models.asr import build_model
from icefall_ctx.models.attention import sinusoids

SENTENCES = [[[3, 4, 5], [6, 7], [8, 3]], [[5, 5, 5, 6]], [], [[4], [3, 8, 7, 6]]]
TOKENS = torch.tensor([[1, 3, 4], [1, 5, 6], [1, 7, 8], [1, 8, 3]])


def history_of(sentences, n=3, flags=None) -> TokenHistory:
    return TokenHistory.from_lists(sentences, flags, max_sentences=n, max_tokens=100)


def direct_recursion(decoder, sentences, tokens, positions: bool) -> torch.Tensor:
    """c_n (U, d) of one utterance, written as the paper writes it; scaled embeddings."""
    dim = decoder.embedding.embedding_dim

    def embed(ids, with_positions):
        x = decoder.embedding.weight[torch.tensor(ids)] * math.sqrt(dim)
        return x + sinusoids(torch.arange(len(ids)), dim) if with_positions else x

    c = embed(sentences[0], positions) if sentences else None
    for sentence in [*sentences[1:], tokens]:
        x = embed(sentence, positions and sentence is not tokens)
        if c is not None:
            found = torch.stack([(q @ c.T / math.sqrt(dim)).softmax(0) @ c for q in x])
            x = x + found @ decoder.conditional.linear.weight.T + decoder.conditional.linear.bias
        c = x
    return c


@pytest.mark.parametrize("positions", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_conditional_input_equals_the_recursion(n, positions):
    decoder = small_model(text_context="conditional", history_pe=positions).decoder
    memory = decoder.conditional.prepare(history_of(SENTENCES, n), decoder.embedding)
    ours = decoder.conditional(decoder.embedding(TOKENS), memory, beam=1) * 4.0  # sqrt(d)
    for row, sentences in enumerate(SENTENCES):
        expected = direct_recursion(decoder, sentences[-n:], TOKENS[row].tolist(), positions)
        torch.testing.assert_close(ours[row], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["conditional", "attention"])
def test_no_history_is_exactly_zero(kind):
    """An utterance with an empty history, in a batch with others, and a model that has none."""
    model = small_model(text_context=kind)
    audio, lens = torch.randn(4, 6, 16), torch.tensor([6, 5, 4, 3])
    mixed = model.decoder(TOKENS, model.decoder.prepare(audio, lens, history_of(SENTENCES)))
    without = model.decoder(TOKENS, model.decoder.prepare(audio, lens, None))
    empty = model.decoder(TOKENS, model.decoder.prepare(audio, lens, history_of([[], [], [], []])))
    assert torch.equal(empty, without)
    assert torch.equal(mixed[2], without[2])
    assert not torch.allclose(mixed[0], without[0])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("shut", ["fresh", "gate"])
def test_shut_history_attention_changes_nothing(norm_first, shut):
    """A trained baseline with history attention added gives its own output, exactly; and what
    shuts it can learn to open."""
    options = dict(text_context="attention", norm_first=norm_first)
    context = small_model(**options)
    if shut == "fresh":
        context = build_model(small_config(**options)).eval()
    baseline = small_model(norm_first=norm_first)
    missing = context.load_state_dict(baseline.state_dict(), strict=False)
    assert not missing.unexpected_keys
    history = [layer.history for layer in context.decoder.layers]
    if shut == "gate":
        for module in history:
            module.gate.data.zero_()
    audio, lens = torch.randn(4, 6, 16), torch.tensor([6, 5, 4, 3])
    opened = context.decoder(TOKENS, context.decoder.prepare(audio, lens, history_of(SENTENCES)))
    assert torch.equal(opened, baseline.decoder(TOKENS, baseline.decoder.prepare(audio, lens)))
    opened.sum().backward()
    for module in history:
        shutter = module.gate if shut == "gate" else module.attention.out.weight
        assert shutter.grad.abs().sum() > 0


@pytest.mark.parametrize("kind", ["conditional", "attention"])
@pytest.mark.parametrize("training", [False, True])
def test_history_in_a_batch_equals_history_alone(kind, training):
    """In both modes: torch's encoder layer takes another path in eval mode."""
    model = small_model(text_context=kind, dropout=0.0, history_layers=2)
    model.decoder.train(training)
    flags = [[True, False, True], [False], [], [True, True]]
    audio, lens = torch.randn(4, 6, 16), torch.tensor([6, 5, 4, 3])
    state = model.decoder.prepare(audio, lens, history_of(SENTENCES, flags=flags))
    together = model.decoder(TOKENS, state)
    for row in range(4):
        one = slice(row, row + 1)
        history = history_of(SENTENCES[one], flags=flags[one])
        alone = model.decoder(
            TOKENS[one], model.decoder.prepare(audio[one], lens[one], history)
        )
        torch.testing.assert_close(together[one], alone, atol=1e-5, rtol=1e-5)


def test_speaker_age_and_order_matter_to_history_attention():
    model = small_model(text_context="attention")
    audio, lens = torch.randn(1, 6, 16), torch.tensor([6])

    def run(sentences, flags):
        history = history_of([sentences], flags=[flags])
        return model.decoder(TOKENS[:1], model.decoder.prepare(audio, lens, history))

    first = run([[3, 4], [5]], [True, True])
    for other in (run([[3, 4], [5]], [True, False]), run([[5], [3, 4]], [True, True])):
        assert not torch.allclose(first, other, atol=1e-4)


def test_mask_and_columns():
    history = history_of(SENTENCES, n=2)
    assert history.tokens.shape == (4, 2, 4)
    assert history.lens.tolist() == [[2, 2], [0, 4], [0, 0], [1, 4]]
    assert history.has_history.tolist() == [True, True, False, True]
    assert history.mask.sum(-1).tolist() == history.lens.tolist()


sentences = st.lists(st.lists(st.integers(3, 9), max_size=6), max_size=6)


@settings(max_examples=200, deadline=None)
@given(sentences, st.integers(1, 4), st.integers(1, 12), st.integers(3, 9))
def test_a_longer_history_never_keeps_less(history, max_sentences, max_tokens, token):
    """Capped in sentences and tokens, a suffix of the whole; growing shrinks nothing."""

    def kept(sentences):
        flagged = [(sentence, False) for sentence in sentences]
        return [s for s, _ in cap_history(flagged, max_sentences, max_tokens)]

    now = kept(history)
    flat = [t for s in now for t in s]
    assert len(now) <= max_sentences and len(flat) <= max_tokens and all(now)
    everything = [t for s in history for t in s]
    assert everything[len(everything) - len(flat) :] == flat
    for place in range(len(history)):
        grown = [s + [token] if i == place else s for i, s in enumerate(history)]
        # an empty sentence that gains a word takes one of the places
        if history[place]:
            assert sum(map(len, kept(grown))) >= len(flat)
    assert sum(map(len, kept([[token]] + history))) >= len(flat)


def test_hours_of_silence_take_no_place():
    history = [([3, 4], False)] + [([], False)] * 3600
    assert cap_history(history, 2, 100) == [([3, 4], False)]
