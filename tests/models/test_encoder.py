"""Encoder layers against torch; subsampling; padding, short utterances, batch norm."""

import pytest
import torch
from model_inputs import FEATURES, small_config, small_model, sound
from torch import nn

from icefall_ctx.data.batch import MIN_FRAMES, length_mask
from icefall_ctx.models.attention import ScoreFlow
from icefall_ctx.models.encoder import (
    Conv2dSubsampling,
    ConvolutionModule,
    FeedForward,
    TransformerLayer,
    build_encoder,
    subsampled,
)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layer_equals_torch(norm_first):
    config = small_config(dropout=0.0, norm_first=norm_first)
    reference = nn.TransformerEncoderLayer(
        16, 2, 32, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    for parameter in reference.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = TransformerLayer(config)
    attention = reference.self_attn
    ours.attention.query_key_value.weight.data = attention.in_proj_weight.data
    ours.attention.query_key_value.bias.data = attention.in_proj_bias.data
    ours.attention.out.load_state_dict(attention.out_proj.state_dict())
    ours.feed_forward[0].load_state_dict(reference.linear1.state_dict())
    ours.feed_forward[3].load_state_dict(reference.linear2.state_dict())
    ours.norm_attention.load_state_dict(reference.norm1.state_dict())
    ours.norm_feed_forward.load_state_dict(reference.norm2.state_dict())
    x, lens = torch.randn(2, 9, 16), torch.tensor([9, 4])
    out, _ = ours(x, None, ScoreFlow.start(lens, 9, None), 0)
    expected = reference(x, src_key_padding_mask=~length_mask(lens, 9))
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_conformer_blocks_equal_torchaudio():
    """Feed-forward and convolution modules (torchaudio's attention has no positions)."""
    from torchaudio.models.conformer import _ConvolutionModule, _FeedForwardModule

    feed = _FeedForwardModule(16, 32, dropout=0.0).eval()
    norm, first, _, _, second, _ = feed.sequential
    ours = FeedForward(16, 32, 0.0, nn.SiLU())
    ours[0].load_state_dict(first.state_dict())
    ours[3].load_state_dict(second.state_dict())
    x = torch.randn(2, 9, 16)
    torch.testing.assert_close(ours(norm(x)), feed(x), atol=1e-5, rtol=1e-5)

    reference = _ConvolutionModule(16, 16, 5, dropout=0.0, bias=True)
    expand, _, depthwise, batch_norm, _, contract, _ = reference.sequential
    nn.init.normal_(batch_norm.weight)
    module = ConvolutionModule(16, 5)
    module.expand.weight.data = expand.weight[..., 0].data
    module.expand.bias.data = expand.bias.data
    module.depthwise.load_state_dict(depthwise.state_dict())
    module.norm.load_state_dict(batch_norm.state_dict())
    module.contract.weight.data = contract.weight[..., 0].data
    module.contract.bias.data = contract.bias.data
    everywhere = torch.ones(2, 9, dtype=torch.bool)
    for mode in (True, False):  # batch statistics, then running ones
        module.train(mode), reference.train(mode)
        out = module(reference.layer_norm(x), everywhere)
        torch.testing.assert_close(out, reference(x), atol=1e-5, rtol=1e-5)


def test_subsampled_length():
    module = Conv2dSubsampling(FEATURES, 16, 4)
    for frames in range(7, 60):
        assert module(torch.randn(1, frames, FEATURES)).shape == (1, subsampled(frames), 16)
    lens = torch.arange(7, 60)
    assert subsampled(lens).tolist() == [subsampled(n) for n in range(7, 60)]
    assert (subsampled(MIN_FRAMES), subsampled(MIN_FRAMES - 1)) == (1, 0)


def test_batch_norm_sees_valid_frames_only():
    module = ConvolutionModule(16, 5).train()
    x, lens = torch.randn(2, 9, 16), torch.tensor([9, 4])
    valid = length_mask(lens, 9)
    module(x, valid)
    mean = module.norm.running_mean.clone()
    module.norm.reset_running_stats()
    x[1, 4:] = 1e4  # padding, whatever it holds
    module(x, valid)
    torch.testing.assert_close(module.norm.running_mean, mean)
    frames = nn.functional.glu(module.expand(x), dim=-1).masked_fill(~valid.unsqueeze(-1), 0.0)
    frames = module.depthwise(frames.transpose(1, 2)).transpose(1, 2)[valid]
    torch.testing.assert_close(mean, 0.1 * frames.mean(dim=0))


@pytest.mark.parametrize("lens", [[1, 0], [0, 0]])
def test_a_training_batch_of_one_frame_or_none(lens):
    module = ConvolutionModule(16, 5).train()
    out = module(torch.randn(2, 4, 16), length_mask(torch.tensor(lens), 4))
    out.sum().backward()
    assert out.isfinite().all() and module.norm.num_batches_tracked == 0


ENCODERS = [
    dict(encoder=encoder, attention=attention)
    for encoder in ("transformer", "conformer")
    for attention in ("plain", "residual", "context")
] + [dict(encoder="lstm")]


@pytest.mark.parametrize("options", ENCODERS, ids=lambda o: "-".join(o.values()))
def test_padding_changes_nothing_and_short_utterances_are_finite(options):
    model = small_model(**options)
    sounds = [sound(frames, frames) for frames in (1, 2, 3, 4, 5, 6, 7, 8, 40, 61)]
    lens = torch.tensor([len(s) for s in sounds])
    together = model.encoder(nn.utils.rnn.pad_sequence(sounds, batch_first=True), lens)
    assert together.out.isfinite().all()
    for row, s in enumerate(sounds):
        x = nn.functional.pad(s, (0, 0, 0, max(0, 7 - len(s))))
        alone = model.encoder(x.unsqueeze(0), lens[row : row + 1])
        length = int(alone.lens)
        assert length == together.lens[row]
        torch.testing.assert_close(
            together.out[row, :length], alone.out[0, :length], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("encoder", ["transformer", "conformer"])
def test_gradients_are_finite_with_an_utterance_that_has_no_frame(encoder):
    model = build_encoder(small_config(encoder=encoder, attention="residual")).train()
    output = model(torch.randn(2, 40, FEATURES), torch.tensor([40, 3]))
    assert output.lens.tolist() == [9, 0]
    output.out.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_scores_alone_equal_those_of_the_whole_pass():
    model = small_model(encoder="conformer", attention="context")
    x, lens = torch.randn(2, 40, FEATURES), torch.tensor([40, 30])
    first = model.encoder.history_scores(x, lens)
    expected = model.encoder(x, lens).scores
    second = model.encoder.history_scores(x, lens, first)
    expected_second = model.encoder(x, lens, expected).scores
    for got, want in zip(
        first.layers + second.layers, expected.layers + expected_second.layers
    ):
        assert not got.requires_grad
        torch.testing.assert_close(got, want)
    assert not torch.equal(first.layers[0], second.layers[0])
