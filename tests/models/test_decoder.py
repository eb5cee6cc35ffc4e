"""The decoder: causal, incremental = full, states that can be reordered, and torch's own layer."""

import pytest
import torch
from model_inputs import VOCAB, small_config, small_model
from torch import nn

from icefall_ctx.data.batch import TokenHistory, length_mask
from icefall_ctx.models.decoder import TransformerDecoderLayer, TransformerState, regroup

MODELS = {
    "plain": dict(),
    "pre-norm": dict(norm_first=True),
    "conditional": dict(text_context="conditional"),
    "conditional with positions": dict(text_context="conditional", history_pe=True),
    "attention": dict(text_context="attention"),
    "attention pre-norm": dict(text_context="attention", norm_first=True),
}
HISTORY = TokenHistory.from_lists(
    [[[3, 4, 5], [6, 7]], [], [[8]]], [[True, False], [], [True]]
)


@pytest.fixture(params=list(MODELS))
def decoder(request):
    return small_model(**MODELS[request.param]).decoder


def prepared(decoder, history=HISTORY) -> TransformerState:
    generator = torch.Generator().manual_seed(1)
    audio = torch.randn(3, 6, 16, generator=generator)
    return decoder.prepare(audio, torch.tensor([6, 4, 0]), history)


TOKENS = torch.tensor([[1, 3, 4, 5, 6], [1, 7, 7, 8, 3], [1, 4, 8, 5, 5]])


def test_log_probs_are_normalised_float32(decoder):
    log_probs = decoder(TOKENS, prepared(decoder))
    assert log_probs.dtype == torch.float32 and log_probs.shape == (3, 5, VOCAB)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, 5))


def test_causal(decoder):
    state = prepared(decoder)
    before = decoder(TOKENS, state)
    changed = TOKENS.clone()
    changed[:, 3:] = 8
    after = decoder(changed, state)
    torch.testing.assert_close(after[:, :3], before[:, :3])
    assert not torch.allclose(after[:, 4], before[:, 4])


def test_step_by_step_equals_full(decoder):
    state = prepared(decoder)
    full = decoder(TOKENS, state)
    for u in range(TOKENS.size(1)):
        log_probs, state = decoder.step(TOKENS[:, u], state)
        torch.testing.assert_close(log_probs, full[:, u], atol=1e-5, rtol=1e-5)


def test_beams_reordered_and_utterances_dropped(decoder):
    """Grow to a beam of two, permute hypotheses, drop an utterance, permute utterances."""
    state = prepared(decoder)
    _, state = decoder.step(TOKENS[:, 0], state)
    state = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
    first = torch.tensor([3, 4, 5, 6, 7, 8])
    _, state = decoder.step(first, state)
    state = state.select(torch.tensor([1, 0, 5, 4]))  # utterances 0 and 2
    second = torch.tensor([5, 6, 7, 8])
    _, state = decoder.step(second, state)
    state = state.select(torch.tensor([3, 0]))  # one hypothesis each, utterances 2 and 0
    log_probs, state = decoder.step(torch.tensor([3, 3]), state)
    assert state.rows == 2
    # rows were: utterance 0 "4 5", "3 6"; utterance 2 "8 7", "7 8"
    paths = {2: [1, 7, 8, 3], 0: [1, 4, 5, 3]}
    for row, utterance in enumerate((2, 0)):
        tokens = torch.tensor([paths[utterance]] * 3)
        expected = decoder(tokens, prepared(decoder))[utterance, -1]
        torch.testing.assert_close(log_probs[row], expected, atol=1e-5, rtol=1e-5)


def test_rows_of_an_utterance_must_stand_together():
    assert regroup(torch.tensor([3, 2, 1, 1]), 2)[0].tolist() == [1, 0]
    for rows in ([0, 2, 1], [0, 0, 2], [0, 2, 0, 2]):
        with pytest.raises(ValueError, match="together"):
            regroup(torch.tensor(rows), 2)


@pytest.mark.parametrize("norm_first", [False, True])
def test_layer_equals_torch(norm_first):
    torch.manual_seed(0)
    reference = nn.TransformerDecoderLayer(
        16, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = TransformerDecoderLayer(small_config(dropout=0.0, norm_first=norm_first))
    for mine, theirs in (
        (ours.self_attention, reference.self_attn),
        (ours.audio_attention, reference.multihead_attn),
    ):
        weight, bias = theirs.in_proj_weight.data, theirs.in_proj_bias.data
        mine.query.weight.data, mine.query.bias.data = weight[:16], bias[:16]
        mine.key_value.weight.data, mine.key_value.bias.data = weight[16:], bias[16:]
        mine.out.load_state_dict(theirs.out_proj.state_dict())
    ours.feed_forward[0].load_state_dict(reference.linear1.state_dict())
    ours.feed_forward[3].load_state_dict(reference.linear2.state_dict())
    for mine, theirs in (
        (ours.norm_self, reference.norm1),
        (ours.norm_audio, reference.norm2),
        (ours.norm_feed_forward, reference.norm3),
    ):
        mine.load_state_dict(theirs.state_dict())
    x, audio, lens = torch.randn(2, 5, 16), torch.randn(2, 6, 16), torch.tensor([6, 3])
    valid = length_mask(lens, 6)
    state = TransformerState([ours.audio_attention.keys_values(audio)], valid[:, None, None])
    causal = torch.ones(5, 5).tril().bool()
    out, _ = ours(x, None, causal, 0, state)
    expected = reference(x, audio, tgt_mask=~causal, memory_key_padding_mask=~valid)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["conditional", "attention"])
def test_maximal_history_and_a_long_target(kind):
    """Positions never run out: history of 8 x 200 tokens, target beyond the position table."""
    decoder = small_model(text_context=kind, history_pe=True, history_sentences=8).decoder
    history = TokenHistory.from_lists([[[3] * 200] * 8], max_sentences=8, max_tokens=1600)
    state = decoder.prepare(torch.randn(1, 6, 16), torch.tensor([6]), history)
    tokens = torch.full((1, 700), 4)
    assert decoder(tokens, state).isfinite().all()


def test_gradients_are_finite_without_audio_and_without_history(decoder):
    decoder.train()
    state = prepared(decoder, TokenHistory.from_lists([[], [], []]))
    decoder(TOKENS, state).sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
