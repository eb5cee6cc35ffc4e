"""Attention against torch, direct loops, and the formulas of A1 and A2 written out by hand."""

import math

import pytest
import torch
from torch import nn

from icefall_ctx.data.batch import length_mask
from icefall_ctx.models.attention import (
    AttentionScores,
    LinearAttentionNetwork,
    MultiHead,
    PositionalEncoding,
    RelativePositions,
    ScoreFlow,
    SelfAttention,
    align_scores,
    masked_softmax,
    shift_distances,
    sinusoids,
)

N, T, D, H = 3, 7, 16, 4
LENS = torch.tensor([7, 5, 2])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def copied_from(module, reference: nn.MultiheadAttention):
    """Give ``module`` the weights of torch's attention."""
    weight, bias = reference.in_proj_weight.data, reference.in_proj_bias.data
    if isinstance(module, SelfAttention):
        module.query_key_value.weight.data, module.query_key_value.bias.data = weight, bias
    else:
        module.query.weight.data, module.query.bias.data = weight[:D], bias[:D]
        module.key_value.weight.data, module.key_value.bias.data = weight[D:], bias[D:]
    module.out.load_state_dict(reference.out_proj.state_dict())
    return module


def torch_attention() -> nn.MultiheadAttention:
    reference = nn.MultiheadAttention(D, H, batch_first=True)
    nn.init.normal_(reference.in_proj_bias)
    nn.init.normal_(reference.out_proj.bias)
    return reference


def test_multi_head_equals_torch():
    reference = torch_attention()
    ours = copied_from(MultiHead(D, H), reference)
    x, memory = torch.randn(N, 4, D), torch.randn(N, T, D)
    valid = length_mask(LENS, T)
    expected, _ = reference(x, memory, memory, key_padding_mask=~valid)
    torch.testing.assert_close(ours(x, memory, valid[:, None, None]), expected)


def test_self_attention_equals_torch_and_ignores_padding():
    reference = torch_attention()
    ours = copied_from(SelfAttention(D, H), reference)
    x = torch.randn(N, T, D)
    out, _ = ours(x, None, ScoreFlow.start(LENS, T, None), 0)
    expected, _ = reference(x, x, x, key_padding_mask=~length_mask(LENS, T))
    torch.testing.assert_close(out, expected)


def test_a_row_without_any_key_has_zero_weights():
    weights = masked_softmax(torch.randn(2, 3), torch.tensor([[True, False, True], [False] * 3]))
    assert weights[0, 1] == 0 and weights[0].sum() == pytest.approx(1.0)
    assert weights[1].tolist() == [0.0, 0.0, 0.0]
    attention = MultiHead(D, H)
    out = attention(torch.randn(1, 2, D), torch.randn(1, T, D), torch.zeros(1, 1, 1, T).bool())
    torch.testing.assert_close(out, attention.out.bias.expand(1, 2, D))


def test_shifted_distances_by_index():
    scores = torch.randn(2, H, T, 2 * T - 1, requires_grad=True)
    shifted = shift_distances(scores)
    for i in range(T):
        for j in range(T):
            assert torch.equal(shifted[:, :, i, j], scores[:, :, i, T - 1 - (i - j)])
    # every cell is used at most once, so the gradient of a sum is an indicator
    shifted.sum().backward()
    assert scores.grad.unique().tolist() == [0.0, 1.0]
    assert scores.grad.sum() == 2 * H * T * T


def test_relative_scores_equal_the_direct_formula():
    """Transformer-XL: ((q_i + u) . k_j + (q_i + v) . W PE(i - j)) / sqrt(d_k)."""
    ours = SelfAttention(D, H, relative=True)
    x = torch.randn(1, T, D)
    scaled, positions = RelativePositions(D)(x)
    torch.testing.assert_close(scaled, x * math.sqrt(D))
    _, scores = ours(x, positions, ScoreFlow.start(torch.tensor([T]), T, None), 0)
    query, key, _ = ours.query_key_value(x)[0].chunk(3, dim=-1)
    width = D // H
    for h in range(H):
        part = slice(h * width, (h + 1) * width)
        for i in range(T):
            for j in range(T):
                encoded = ours.position(sinusoids(torch.tensor([i - j]), D))[0, part]
                content = (query[i, part] + ours.content_bias[h, 0]) @ key[j, part]
                place = (query[i, part] + ours.position_bias[h, 0]) @ encoded
                expected = (content + place) / math.sqrt(width)
                torch.testing.assert_close(scores[0, h, i, j], expected, atol=1e-5, rtol=1e-4)


def test_residual_scores_by_hand():
    """A1 over three layers: R_l = A_l + R_{l-1}, out = softmax(mask(R_l)) V."""
    layers = [SelfAttention(D, H, mode="residual") for _ in range(3)]
    x = torch.randn(N, T, D)
    flow = ScoreFlow.start(LENS, T, None)
    carried = torch.zeros(N, H, T, T)
    for layer in layers:
        out, scores = layer(x, None, flow, 0)
        query, key, value = (
            part.view(N, T, H, D // H) for part in layer.query_key_value(x).chunk(3, dim=-1)
        )
        carried = carried + torch.einsum("nihd,njhd->nhij", query, key) / math.sqrt(D // H)
        torch.testing.assert_close(scores, carried, atol=1e-5, rtol=1e-5)
        for n, length in enumerate(LENS.tolist()):
            weights = carried[n, :, :, :length].softmax(dim=-1)
            mixed = torch.einsum("hij,jhd->ihd", weights, value[n, :length]).reshape(T, D)
            torch.testing.assert_close(out[n], layer.out(mixed), atol=1e-5, rtol=1e-5)
        flow.carried = scores


def previous_scores(lens, size=9) -> AttentionScores:
    """Valid squares are random, the rest is what must never be seen."""
    lens = torch.tensor(lens)
    scores = torch.randn(len(lens), H, size, size)
    valid = length_mask(lens, size)
    outside = ~(valid.unsqueeze(1) & valid.unsqueeze(2)).unsqueeze(1)
    return AttentionScores([scores.masked_fill(outside, 1e30)], lens)


@pytest.mark.parametrize("mix", ["add", "lerp"])
def test_context_scores_by_hand(mix):
    """A2, crop: cells of C are a linear map of the 2H scores at the same place."""
    ours = SelfAttention(D, H, mode="context", alpha=0.1, align="crop", mix=mix)
    nn.init.normal_(ours.lan.weight)
    nn.init.normal_(ours.lan.bias)
    previous = previous_scores([9, 3, 0])
    x = torch.randn(N, T, D)
    _, scores = ours(x, None, ScoreFlow.start(LENS, T, previous), 0)
    _, residual = ours(x, None, ScoreFlow.start(LENS, T, None), 0)
    for n, (old, new) in enumerate(zip([9, 3, 0], LENS.tolist())):
        for i in range(new):
            for j in range(new):
                cell = residual[n, :, i, j]
                seen = previous.layers[0][n, :, i, j] if max(i, j) < old else torch.zeros(H)
                context = ours.lan.weight @ torch.cat([seen, cell]) + ours.lan.bias
                expected = cell + 0.1 * context if mix == "add" else 0.9 * cell + 0.1 * context
                expected = expected if old else cell
                torch.testing.assert_close(scores[n, :, i, j], expected, atol=1e-4, rtol=1e-4)


def test_lan_starts_at_zero_and_learns():
    lan = LinearAttentionNetwork(H)
    previous, current = torch.randn(2, H, T, T), torch.randn(2, H, T, T)
    assert not lan(previous, current).any()
    ours = SelfAttention(D, H, mode="context")
    x = torch.randn(N, T, D)
    plain = ours(x, None, ScoreFlow.start(LENS, T, None), 0)
    out = ours(x, None, ScoreFlow.start(LENS, T, previous_scores([9, 3, 1])), 0)
    torch.testing.assert_close(out[0], plain[0], atol=0, rtol=0)
    out[0].square().sum().backward()
    assert ours.lan.weight.grad.abs().min() > 0


def test_crop_keeps_the_common_square():
    previous = previous_scores([9, 3, 0]).layers[0]
    aligned = align_scores(previous, torch.tensor([9, 3, 0]), LENS, T, "crop")
    assert aligned.shape == (3, H, T, T)
    assert torch.equal(aligned[0], previous[0, :, :7, :7])
    assert torch.equal(aligned[1, :, :3, :3], previous[1, :, :3, :3])
    assert not aligned[1, :, 3:].any() and not aligned[1, :, :, 3:].any() and not aligned[2].any()


def test_interp_resizes_the_valid_square():
    previous = previous_scores([4, 5, 0]).layers[0]
    aligned = align_scores(previous, torch.tensor([4, 5, 0]), torch.tensor([7, 5, 2]), T, "interp")
    torch.testing.assert_close(aligned[1, :, :5, :5], previous[1, :, :5, :5])  # the same size
    # bilinear by hand: output i lies at (i + 0.5) * 4 / 7 - 0.5 of the input, clamped to it
    rows = torch.zeros(7, 4)
    for i in range(7):
        place = min(max((i + 0.5) * 4 / 7 - 0.5, 0.0), 3.0)
        low = min(int(place), 2)
        rows[i, low], rows[i, low + 1] = 1 - (place - low), place - low
    expected = rows @ previous[0, :, :4, :4] @ rows.T
    torch.testing.assert_close(aligned[0], expected, atol=1e-5, rtol=1e-5)
    assert not aligned[1, :, 5:].any() and not aligned[2].any()


def test_scores_survive_a_round_through_single_utterances():
    scores = previous_scores([4, 0, 2])
    again = AttentionScores.stack([scores.single(row) for row in range(3)])
    assert again.lens.tolist() == [4, 0, 2]
    assert torch.equal(again.layers[0][0], scores.layers[0][0, :, :4, :4])
    assert torch.equal(again.layers[0][2, :, :2, :2], scores.layers[0][2, :, :2, :2])
    assert AttentionScores.stack([None, None]) is None
    chosen = scores.select(torch.tensor([2, -1]))
    assert chosen.lens.tolist() == [2, 0]


def test_positions_never_run_out():
    encoding = PositionalEncoding(D)
    far = encoding.positions(5000, 3)
    torch.testing.assert_close(far, sinusoids(torch.arange(5000, 5003), D), atol=1e-4, rtol=0)
    x = torch.randn(1, 2, D)
    torch.testing.assert_close(encoding(x, 3), x * 4.0 + sinusoids(torch.arange(3, 5), D))


def test_scores_of_a_very_long_turn_are_kept_in_part():
    """What cropping to a turn that is not longer reads is all there."""
    torch.manual_seed(0)
    scores = AttentionScores([torch.randn(2, 3, 9, 9)], torch.tensor([9, 4]))
    kept = scores.single(0, most=5)
    assert kept.layers[0].shape == (1, 3, 5, 5) and kept.lens.tolist() == [5]
    assert scores.single(1, most=5).lens.tolist() == [4]
    target = torch.tensor([5])
    whole = align_scores(scores.layers[0][:1], scores.lens[:1], target, 5, "crop")
    assert torch.equal(align_scores(kept.layers[0], kept.lens, target, 5, "crop"), whole)
