"""The whole model: history audio (A2), batch = single, gradients, modes."""

import pytest
import torch
from model_inputs import make_batch, small_config, small_model, sound

from icefall_ctx.data.batch import AudioHistory, TokenHistory
from icefall_ctx.models.asr import build_model, evaluating

T = 48
PAST = (7, T // 2, T, 3 * T)  # frames of the previous turn; seven leave one after subsampling
SOUNDS = [sound(T, 10 + i) for i in range(len(PAST) + 2)]
EARLIER = [sound(frames, 20 + i) for i, frames in enumerate(PAST)]
TEXT = [[[3, 4], [5]], [], [[6, 7, 8]], [[3]], [], [[4, 4]]]
TOKENS = [[3, 4, 5], [6], [7, 8], [3], [4, 5, 6, 7], [8, 8]]
# five kinds of past: each length, twice removed, none, and a turn that stands in for its past
CHAINS = [[-1, 0], [-1, 1], [1, 2], [0, 3], [-1, -1], [-1, 4]]


def mixed_batch():
    history = AudioHistory.from_chains(EARLIER + [SOUNDS[5]], CHAINS)
    return make_batch(SOUNDS, TOKENS, TokenHistory.from_lists(TEXT), history)


def single_batch(row):
    features = EARLIER + [SOUNDS[5]]
    rows = sorted({r for r in CHAINS[row] if r >= 0})
    chain = [rows.index(r) if r >= 0 else -1 for r in CHAINS[row] if r >= 0 or rows]
    history = AudioHistory.from_chains([features[r] for r in rows], [chain]) if rows else None
    text = TokenHistory.from_lists([TEXT[row]])
    return make_batch([SOUNDS[row]], [TOKENS[row]], text, history)


@pytest.mark.parametrize("encoder", ["transformer", "conformer"])
@pytest.mark.parametrize("align", ["crop", "interp"])
@pytest.mark.parametrize("text_context", ["conditional", "attention"])
def test_batch_equals_single_with_mixed_and_missing_histories(encoder, align, text_context):
    model = small_model(
        encoder=encoder,
        attention="context",
        ctx_align=align,
        ctx_alpha=0.5,
        text_context=text_context,
    )
    together = model(mixed_batch())
    assert together.log_probs.isfinite().all() and together.ctc_log_probs.isfinite().all()
    for row in range(len(SOUNDS)):
        alone = model(single_batch(row))
        torch.testing.assert_close(
            together.encoder_out[row], alone.encoder_out[0], atol=1e-5, rtol=1e-5
        )
        size = len(TOKENS[row]) + 1
        torch.testing.assert_close(
            together.log_probs[row, :size], alone.log_probs[0], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("encoder", ["transformer", "conformer"])
@pytest.mark.parametrize("mix", ["add", "lerp"])
def test_alpha_zero_is_residual_attention(encoder, mix):
    context = small_model(encoder=encoder, attention="context", ctx_alpha=0.0, ctx_mix=mix)
    residual = build_model(small_config(encoder=encoder, attention="residual")).eval()
    residual.load_state_dict(context.state_dict(), strict=False)
    got, want = context(mixed_batch()).encoder_out, residual(mixed_batch()).encoder_out
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@pytest.mark.parametrize("encoder", ["transformer", "conformer"])
def test_context_changes_the_output_and_starts_as_residual(encoder):
    model = small_model(encoder=encoder, attention="context")
    plain = model(make_batch(SOUNDS, TOKENS)).encoder_out
    changed = model(mixed_batch()).encoder_out
    assert torch.allclose(changed[4], plain[4], atol=1e-5)  # without a past
    assert all(not torch.allclose(changed[i], plain[i], atol=1e-4) for i in (0, 1, 2, 3, 5))
    for layer in model.encoder.layers:
        layer.attention.lan.weight.data.zero_()
        layer.attention.lan.bias.data.zero_()
    torch.testing.assert_close(model(mixed_batch()).encoder_out, plain, atol=1e-5, rtol=1e-5)


def test_every_parameter_of_the_context_model_learns():
    model = build_model(small_config(attention="context", encoder="conformer", dropout=0.0)).train()
    output = model(mixed_batch())
    (output.ctc_log_probs.square().mean() + output.log_probs.square().mean()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    for layer in model.encoder.layers:  # it starts at zero and is not stuck there
        assert layer.attention.lan.weight.grad.abs().max() > 0


def test_each_distinct_turn_is_encoded_once_a_level(monkeypatch):
    """Two utterances with the same past share its rows; the pass is in eval mode, without graph."""
    model = build_model(small_config(attention="context")).train()
    model.encoder.layers[0].eval()  # as a frozen part
    seen = []
    original = model.encoder.history_scores

    def watched(x, lens, previous=None):
        assert not model.encoder.training and not torch.is_grad_enabled()
        seen.append(lens.tolist())
        scores = original(x, lens, previous)
        assert not any(s.requires_grad for s in scores.layers)
        return scores

    monkeypatch.setattr(model.encoder, "history_scores", watched)
    history = AudioHistory.from_chains(EARLIER, [[0, 1], [0, 1], [0, 2], [-1, 1]])
    model(make_batch(SOUNDS[:4], audio_history=history))
    # level one: turn 0 once; level two: turn 1 after turn 0, turn 2, and turn 1 without a past
    assert seen == [[7], [T // 2, T, T // 2]]
    modes = [layer.training for layer in model.encoder.layers]
    assert modes == [False, True] and model.encoder.training


def graph_bytes(model, batch) -> int:
    """Bytes of what autograd keeps for the backward pass."""
    kept = {}

    def pack(tensor):
        storage = tensor.storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = model(batch)
        output.encoder_out.sum()
    return sum(kept.values())


def test_history_adds_no_graph_memory():
    """Ten times as much audio in the past keeps the same for the backward pass."""
    model = build_model(small_config(attention="context", dropout=0.0)).train()

    def needed(frames):
        history = AudioHistory.from_chains([sound(frames, 1)], [[0]])
        return graph_bytes(model, make_batch(SOUNDS[:1], audio_history=history))

    assert needed(20 * T) <= needed(T) * 1.01


def test_history_of_nobody_or_of_an_empty_level():
    model = small_model(attention="context")
    nobody = AudioHistory.from_chains([sound(20, 1)], [[-1], [-1]])
    plain = model(make_batch(SOUNDS[:2])).encoder_out
    assert torch.equal(model(make_batch(SOUNDS[:2], audio_history=nobody)).encoder_out, plain)
    late = AudioHistory.from_chains([sound(20, 1)], [[-1, 0], [-1, -1]])
    assert late.levels[0].rows.numel() == 0
    assert model(make_batch(SOUNDS[:2], audio_history=late)).encoder_out.isfinite().all()


@pytest.mark.parametrize("encoder", ["transformer", "conformer", "lstm"])
def test_utterances_of_one_to_seven_frames(encoder):
    model = small_model(encoder=encoder)
    for frames in range(1, 8):
        output = model(make_batch([sound(frames, 1)]))
        assert output.log_probs.isfinite().all() and output.ctc_log_probs.isfinite().all()


def test_modes_are_restored_also_after_an_error():
    model = build_model(small_config())
    model.train()
    model.encoder.eval()
    with pytest.raises(RuntimeError):
        with evaluating(model):
            assert not any(m.training for m in model.modules())
            raise RuntimeError
    assert model.training and model.decoder.layers[0].training and not model.encoder.training


def test_feature_statistics_travel_with_the_model():
    model = small_model()
    mean, std = torch.randn(8), torch.rand(8)
    std[3] = 0.0  # a constant feature
    model.set_feature_stats(mean, std)
    again = build_model(small_config())
    again.load_state_dict(model.state_dict())
    x = torch.randn(2, 5, 8)
    expected = (x - mean) / std.clamp(min=1e-5)
    torch.testing.assert_close(again.normalise(x), expected)


def test_speaker_features_reach_every_frame_and_are_dropped_in_training_only():
    model = small_model(speaker_features="ivector", speaker_dim=3, ivector_dropout=1.0)
    speaker = torch.randn(2, 3)
    x = model.encoder_input(torch.zeros(2, 9, 8), torch.tensor([9, 9]), speaker, None)
    assert torch.equal(x[..., 8:], speaker.unsqueeze(1).expand(2, 9, 3))
    model.train()
    dropped = model.encoder_input(torch.zeros(2, 9, 8), torch.tensor([9, 9]), speaker, None)
    assert not dropped[..., 8:].any()
