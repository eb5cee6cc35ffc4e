"""Audio encoders: conv2d subsampling, then Transformer, Conformer or bidirectional LSTM layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from icefall_ctx.config import ModelConfig
from icefall_ctx.models.attention import (
    AttentionScores,
    PositionalEncoding,
    RelativePositions,
    ScoreFlow,
    SelfAttention,
)
from icefall_ctx.models.dropout import Dropout


@dataclass
class EncoderOutput:
    """Attributes:
    out: (N, T', d).
    lens: (N,) valid frames of ``out``.
    scores: S_l of every layer, detached by the caller where needed; None in plain attention.
    """

    out: Tensor
    lens: Tensor
    scores: Optional[AttentionScores] = None


class Conv2dSubsampling(nn.Module):
    """Two 3x3 convolutions of stride 2 and a linear map: (N, T, C) -> (N, T', d).

    Without padding, so a valid output frame never sees a padded input frame:
    ``T' = ((T - 1) // 2 - 1) // 2``.
    """

    def __init__(self, features: int, dim: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, channels, 3, stride=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, stride=2),
            nn.ReLU(inplace=True),
        )
        self.out = nn.Linear(channels * subsampled(features), dim)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x.unsqueeze(1))  # (N, channels, T', C')
        return self.out(x.transpose(1, 2).flatten(2))

    def fits(self, weight: Optional[Tensor]) -> bool:
        """Whether it is ``out.weight`` of a layer of the same size with fewer features."""
        if weight is None or weight.size(0) != self.out.out_features:
            return False
        fewer = weight.size(1) < self.out.in_features
        return fewer and weight.size(1) % self.conv[0].out_channels == 0

    def widened(self, weight: Tensor) -> Tensor:
        """``out.weight`` for this layer out of that of one with fewer features.

        More features at the end add columns C' after those of the narrow layer, which see what
        they saw; with zeros in the new ones both layers compute the same.

        Args:
          weight: (d, channels * C'), C' at most this layer's.
        """
        dim, channels = self.out.out_features, self.conv[0].out_channels
        wide = self.out.weight.new_zeros(dim, channels, self.out.in_features // channels)
        narrow = weight.view(dim, channels, -1)
        wide[..., : narrow.size(2)] = narrow
        return wide.flatten(1)


def subsampled(length):
    """Length after :class:`Conv2dSubsampling`, of an int or of a tensor of ints."""
    return ((length - 1) // 2 - 1) // 2


class FeedForward(nn.Sequential):
    """Linear, activation, dropout, linear: (N, T, d) -> (N, T, d)."""

    def __init__(self, dim: int, hidden: int, dropout: float, activation: nn.Module) -> None:
        super().__init__(
            nn.Linear(dim, hidden), activation, Dropout(dropout), nn.Linear(hidden, dim)
        )


def self_attention(config: ModelConfig, relative: bool) -> SelfAttention:
    return SelfAttention(
        config.dim,
        config.heads,
        config.dropout,
        relative=relative,
        mode=config.attention,
        alpha=config.ctx_alpha,
        align=config.ctx_align,
        mix=config.ctx_mix,
    )


class TransformerLayer(nn.Module):
    """Post-LN (or, with ``norm_first``, pre-LN) self-attention and feed-forward blocks."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm_first = config.norm_first
        self.attention = self_attention(config, relative=False)
        relu = nn.ReLU(inplace=True)
        self.feed_forward = FeedForward(config.dim, config.ff_dim, config.dropout, relu)
        self.norm_attention = nn.LayerNorm(config.dim)
        self.norm_feed_forward = nn.LayerNorm(config.dim)
        self.dropout = Dropout(config.dropout)

    def attention_input(self, x: Tensor) -> Tensor:
        return self.norm_attention(x) if self.norm_first else x

    def forward(self, x: Tensor, positions: Optional[Tensor], flow: ScoreFlow, layer: int):
        attended, scores = self.attention(self.attention_input(x), positions, flow, layer)
        x = x + self.dropout(attended)
        if self.norm_first:
            x = x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))
        else:
            x = self.norm_attention(x)
            x = self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))
        return x, scores


class ConvolutionModule(nn.Module):
    """Conformer convolution: pointwise, GLU, depthwise, batch norm, SiLU, pointwise."""

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.expand = nn.Linear(dim, 2 * dim)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim)
        self.norm = nn.BatchNorm1d(dim)
        self.contract = nn.Linear(dim, dim)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x (N, T, d), valid (N, T) -> (N, T, d); padding is zero for the convolution and is
        not part of the batch norm's statistics."""
        x = nn.functional.glu(self.expand(x), dim=-1).masked_fill(~valid.unsqueeze(-1), 0.0)
        x = self.depthwise(x.transpose(1, 2)).transpose(1, 2)
        return self.contract(nn.functional.silu(self.normalise(x, valid)))

    def normalise(self, x: Tensor, valid: Tensor) -> Tensor:
        """Batch norm over the valid frames of x (N, T, d); zero elsewhere."""
        frames = x[valid]
        normed = torch.zeros_like(x)
        if self.training and frames.size(0) < 2:  # a single frame has no variance
            normed[valid] = self.by_running_statistics(frames).to(x.dtype)
        else:
            normed[valid] = self.norm(frames).to(x.dtype)
        return normed

    def by_running_statistics(self, frames: Tensor) -> Tensor:
        norm = self.norm
        return nn.functional.batch_norm(
            frames, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
        )


class ConformerLayer(nn.Module):
    """Half feed-forward, relative self-attention, convolution, half feed-forward, layer norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.dim
        self.feed_forward_in = FeedForward(dim, config.ff_dim, config.dropout, nn.SiLU())
        self.attention = self_attention(config, relative=True)
        self.convolution = ConvolutionModule(dim, config.conv_kernel)
        self.feed_forward_out = FeedForward(dim, config.ff_dim, config.dropout, nn.SiLU())
        self.norm_in = nn.LayerNorm(dim)
        self.norm_attention = nn.LayerNorm(dim)
        self.norm_convolution = nn.LayerNorm(dim)
        self.norm_out = nn.LayerNorm(dim)
        self.norm = nn.LayerNorm(dim)
        self.dropout = Dropout(config.dropout)

    def attention_input(self, x: Tensor) -> Tensor:
        return self.norm_attention(x + 0.5 * self.dropout(self.feed_forward_in(self.norm_in(x))))

    def forward(self, x: Tensor, positions: Optional[Tensor], flow: ScoreFlow, layer: int):
        x = x + 0.5 * self.dropout(self.feed_forward_in(self.norm_in(x)))
        attended, scores = self.attention(self.norm_attention(x), positions, flow, layer)
        x = x + self.dropout(attended)
        valid = flow.key_mask[:, 0, 0]
        x = x + self.dropout(self.convolution(self.norm_convolution(x), valid))
        x = x + 0.5 * self.dropout(self.feed_forward_out(self.norm_out(x)))
        return self.norm(x), scores


class AttentionEncoder(nn.Module):
    """Transformer or Conformer encoder, with residual and inter-sentential attention scores."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.mode = config.attention
        self.relative = config.encoder == "conformer"
        channels = config.subsampling_channels or config.dim
        self.subsampling = Conv2dSubsampling(config.input_dim, config.dim, channels)
        positions = RelativePositions if self.relative else PositionalEncoding
        self.positions = positions(config.dim, config.dropout)
        layer = ConformerLayer if self.relative else TransformerLayer
        self.layers = nn.ModuleList(layer(config) for _ in range(config.encoder_layers))
        pre_norm = config.norm_first and not self.relative
        self.norm = nn.LayerNorm(config.dim) if pre_norm else nn.Identity()

    def _start(self, features: Tensor, lens: Tensor, previous: Optional[AttentionScores]):
        x = self.subsampling(features)
        lens = subsampled(lens).clamp(min=0)
        x, positions = self.positions(x) if self.relative else (self.positions(x), None)
        return x, positions, ScoreFlow.start(lens, x.size(1), previous)

    def forward(
        self, features: Tensor, lens: Tensor, previous: Optional[AttentionScores] = None
    ) -> EncoderOutput:
        """Encode (N, T, C) with ``lens`` (N,) valid frames.

        Args:
          previous: scores of each utterance's predecessor (A2); ignored unless the attention
            is ``context``.
        """
        x, positions, flow = self._start(features, lens, previous)
        layers = []
        for index, layer in enumerate(self.layers):
            x, scores = layer(x, positions, flow, index)
            if self.mode != "plain":
                flow = replace(flow, carried=scores)
                layers.append(scores)
        kept = AttentionScores(layers, flow.lens) if self.mode == "context" else None
        return EncoderOutput(self.norm(x), flow.lens, kept)

    @torch.no_grad()
    def history_scores(
        self, features: Tensor, lens: Tensor, previous: Optional[AttentionScores] = None
    ) -> AttentionScores:
        """The scores alone: what ``forward`` would hand on, without the rest of the last layer."""
        x, positions, flow = self._start(features, lens, previous)
        layers = []
        for index, layer in enumerate(self.layers[:-1]):
            x, scores = layer(x, positions, flow, index)
            flow = replace(flow, carried=scores)
            layers.append(scores)
        last = self.layers[-1]
        scores, _ = last.attention.flow_scores(
            last.attention_input(x), positions, flow, len(self.layers) - 1
        )
        return AttentionScores(layers + [scores], flow.lens)


class LstmEncoder(nn.Module):
    """Conv2d subsampling and bidirectional LSTM layers (baseline of paper B)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        channels = config.subsampling_channels or 32
        self.subsampling = Conv2dSubsampling(config.input_dim, config.dim, channels)
        self.lstm = nn.LSTM(
            config.dim,
            config.dim // 2,
            config.encoder_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.dropout if config.encoder_layers > 1 else 0.0,
        )

    def forward(
        self, features: Tensor, lens: Tensor, previous: Optional[AttentionScores] = None
    ) -> EncoderOutput:
        """Encode (N, T, C); packed, so that padding changes nothing.  ``previous`` is not used."""
        x = self.subsampling(features)
        lens = subsampled(lens).clamp(min=1)
        packed = pack_padded_sequence(x, lens.cpu(), batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.size(1))
        return EncoderOutput(out, lens)


def build_encoder(config: ModelConfig) -> nn.Module:
    return LstmEncoder(config) if config.encoder == "lstm" else AttentionEncoder(config)
