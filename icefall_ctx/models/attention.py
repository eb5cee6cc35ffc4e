"""Attention: multi-head, relative position, residual (A1) and inter-sentential scores (A2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_ctx.data.batch import length_mask
from icefall_ctx.models.dropout import Dropout


class MultiHead(nn.Module):
    """Multi-head attention whose keys and values can be computed once and reused.

    ``attend`` takes any number of query rows; search gives all hypotheses of an utterance as
    queries to one copy of its keys and values.
    """

    def __init__(self, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)
        self.keep_weights = False  # set for attention pictures only
        self.weights: Optional[Tensor] = None

    def keys_values(self, memory: Tensor, values: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """(N, T, d) -> keys and values, each (N, H, T, d_k); values of another source if given."""
        if values is None:
            key, value = self.key_value(memory).chunk(2, dim=-1)
        else:
            (w_k, w_v), (b_k, b_v) = self.key_value.weight.chunk(2), self.key_value.bias.chunk(2)
            key, value = F.linear(memory, w_k, b_k), F.linear(values, w_v, b_v)
        return split_heads(key, self.heads), split_heads(value, self.heads)

    def attend(self, x: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor]) -> Tensor:
        """Queries from x (N, U, d) over keys (N, H, T, d_k).

        Args:
          mask: broadcast to (N, H, U, T), True where attention is allowed; a row in which
            nothing is allowed gives the output of zero weights, never NaN.
        """
        query = split_heads(self.query(x), self.heads)
        scores = torch.matmul(query * query.size(-1) ** -0.5, key.transpose(-2, -1))
        weights = masked_softmax(scores, mask)
        if self.keep_weights:
            self.weights = weights.detach()
        return self.out(join_heads(torch.matmul(self.dropout(weights), value)))

    def forward(self, x: Tensor, memory: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """Queries from x (N, U, d) over memory (N, T, d) -> (N, U, d)."""
        return self.attend(x, *self.keys_values(memory), mask)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(N, T, d) -> (N, H, T, d_k)."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """(N, H, T, d_k) -> (N, T, d)."""
    return x.transpose(1, 2).flatten(2)


def masked_softmax(scores: Tensor, mask: Optional[Tensor]) -> Tensor:
    """Softmax over the last axis where ``mask`` is True; zero weights in a row without any."""
    if mask is None:
        return scores.softmax(dim=-1)
    # added, not filled in: a sum with a constant needs no pass over the cells in backward
    lowest = torch.finfo(scores.dtype).min / 2
    bias = torch.zeros(mask.shape, dtype=scores.dtype, device=mask.device)
    weights = (scores + bias.masked_fill_(~mask, lowest)).softmax(dim=-1)
    empty = ~mask.any(dim=-1, keepdim=True)
    if empty.device.type == "cpu" and not bool(empty.any()):
        return weights
    return weights.masked_fill(empty, 0.0)


@dataclass
class AttentionScores:
    """Unmasked attention scores of every encoder layer, as the next utterance receives them (S').

    Attributes:
      layers: one (M, H, T', T') tensor a layer.
      lens: (M,) valid frames; 0 where an utterance has no past.
    """

    layers: List[Tensor]
    lens: Tensor

    def select(self, index: Tensor) -> "AttentionScores":
        """Rows ``index`` (N,); -1 gives an utterance without a past."""
        absent = index < 0
        rows = index.clamp(min=0)
        return AttentionScores(
            [scores[rows] for scores in self.layers],
            self.lens[rows].masked_fill(absent, 0),
        )

    @classmethod
    def stack(cls, singles: List[Optional["AttentionScores"]]) -> Optional["AttentionScores"]:
        """Join scores of single utterances (M = 1 each), None meaning no past; None if all are."""
        present = [single for single in singles if single is not None]
        if not present:
            return None
        size = max(single.layers[0].size(-1) for single in present)
        heads = present[0].layers[0].size(1)
        layers = []
        for layer in range(len(present[0].layers)):
            joined = present[0].layers[layer].new_zeros(len(singles), heads, size, size)
            for row, single in enumerate(singles):
                if single is not None:
                    scores = single.layers[layer][0]
                    joined[row, :, : scores.size(-2), : scores.size(-1)] = scores
            layers.append(joined)
        lens = torch.tensor([0 if s is None else int(s.lens[0]) for s in singles])
        return cls(layers, lens.to(present[0].lens.device))

    def single(self, row: int, most: Optional[int] = None) -> Optional["AttentionScores"]:
        """The scores of one utterance, cut to its frames, the first ``most`` of them; None if it
        has none."""
        size = int(self.lens[row]) if most is None else min(int(self.lens[row]), most)
        if size == 0:
            return None
        return AttentionScores(
            [scores[row : row + 1, :, :size, :size].clone() for scores in self.layers],
            self.lens[row : row + 1].clamp(max=size),
        )


def align_scores(scores: Tensor, lens: Tensor, target_lens: Tensor, size: int, how: str) -> Tensor:
    """Fit the previous utterance's scores to this one's square (A2, ``align``).

    Args:
      scores: (N, H, T', T').
      lens, target_lens: (N,) valid frames of the previous and of this utterance.
      size: T, the padded length of this utterance.
      how: ``crop`` keeps the top-left square and fills with zeros; ``interp`` resizes the valid
        square of each sample bilinearly.

    Returns:
      (N, H, T, T), zero beyond the valid frames.
    """
    if how == "crop":
        common = min(size, scores.size(-1))
        valid = length_mask(torch.minimum(lens, target_lens), common)
        square = (valid.unsqueeze(-1) & valid.unsqueeze(-2)).unsqueeze(1)
        cropped = scores[..., :common, :common].masked_fill(~square, 0.0)
        return F.pad(cropped, (0, size - common, 0, size - common))
    aligned = scores.new_zeros(*scores.shape[:2], size, size)
    for row, (old, new) in enumerate(zip(lens.tolist(), target_lens.tolist())):
        if old > 0:
            aligned[row, :, :new, :new] = F.interpolate(
                scores[row : row + 1, :, :old, :old],
                size=(new, new),
                mode="bilinear",
                align_corners=False,
            )[0]
    return aligned


class LinearAttentionNetwork(nn.Module):
    """LAN of A2: ``C = Linear(concat_heads(align(S'), R))`` at every (query, key) cell.

    The weight starts at zero, so training starts exactly at residual attention.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(heads, 2 * heads))
        self.bias = nn.Parameter(torch.zeros(heads))

    def forward(self, previous: Tensor, current: Tensor) -> Tensor:
        """Two (N, H, T, T) tensors, zero beyond their valid frames -> (N, H, T, T)."""
        # two products instead of one over the concatenation: the concatenation would be copied
        from_previous, from_current = self.weight.chunk(2, dim=1)
        cells = torch.matmul(from_previous, previous.flatten(2))
        cells = cells + torch.matmul(from_current, current.flatten(2))
        return (cells + self.bias.unsqueeze(-1)).view_as(current)


@dataclass
class ScoreFlow:
    """What flows beside the activations from layer to layer.

    Attributes:
      lens: (N,) valid frames.
      key_mask: (N, 1, 1, T) True at valid keys.
      square: (N, 1, T, T) True where query and key are valid; None unless context is used.
      carried: S_{l-1} (N, H, T, T), None before the first layer or in plain attention.
      previous: scores of the previous utterances, or None.
    """

    lens: Tensor
    key_mask: Tensor
    square: Optional[Tensor] = None
    carried: Optional[Tensor] = None
    previous: Optional[AttentionScores] = None

    @classmethod
    def start(cls, lens: Tensor, size: int, previous: Optional[AttentionScores]) -> "ScoreFlow":
        valid = length_mask(lens, size)
        square = None
        if previous is not None:
            square = (valid.unsqueeze(-1) & valid.unsqueeze(-2)).unsqueeze(1)
        return cls(lens, valid[:, None, None, :], square, None, previous)


class SelfAttention(nn.Module):
    """Self-attention of an encoder layer: plain, ResMHA (A1) or CtxResMHA (A2).

        R_l   = A_l + S_{l-1}                                A_l = Q K^T / sqrt(d_k)
        S_l   = R_l + alpha * LAN_l(align(S'_l), R_l)        (lerp: (1 - alpha) R_l + alpha C_l)
        out_l = softmax(mask(S_l)) V

    With ``relative`` positions, ``A_l = (AC + BD) / sqrt(d_k)`` as in Transformer-XL.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        dropout: float = 0.0,
        relative: bool = False,
        mode: str = "plain",
        alpha: float = 0.1,
        align: str = "crop",
        mix: str = "add",
    ) -> None:
        super().__init__()
        self.heads, self.mode, self.alpha, self.align, self.mix = heads, mode, alpha, align, mix
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)
        self.relative = relative
        if relative:
            self.position = nn.Linear(dim, dim, bias=False)
            self.content_bias = nn.Parameter(torch.zeros(heads, 1, dim // heads))
            self.position_bias = nn.Parameter(torch.zeros(heads, 1, dim // heads))
            nn.init.xavier_uniform_(self.content_bias)
            nn.init.xavier_uniform_(self.position_bias)
        self.lan = LinearAttentionNetwork(heads) if mode == "context" else None

    def scores(self, query: Tensor, key: Tensor, positions: Optional[Tensor]) -> Tensor:
        """A_l: (N, H, T, T) from queries and keys (N, H, T, d_k), positions (2T-1, d)."""
        scale = query.size(-1) ** -0.5
        if not self.relative:
            return torch.matmul(query * scale, key.transpose(-2, -1))
        content = torch.matmul((query + self.content_bias) * scale, key.transpose(-2, -1))
        distance = split_heads(self.position(positions).unsqueeze(0), self.heads)
        by_distance = torch.matmul(
            (query + self.position_bias) * scale, distance.transpose(-2, -1)
        )
        return content + shift_distances(by_distance)

    def mix_previous(self, residual: Tensor, flow: ScoreFlow, layer: int) -> Tensor:
        """S_l of A2 from R_l; rows without a past keep R_l."""
        previous = flow.previous
        aligned = align_scores(
            previous.layers[layer], previous.lens, flow.lens, residual.size(-1), self.align
        )
        context = self.lan(aligned, residual.masked_fill(~flow.square, 0.0))
        weight = self.alpha * (previous.lens > 0).view(-1, 1, 1, 1).to(residual.dtype)
        if self.mix == "lerp":
            return residual + weight * (context - residual)
        return residual + weight * context

    def flow_scores(
        self, x: Tensor, positions: Optional[Tensor], flow: ScoreFlow, layer: int
    ) -> Tuple[Tensor, Tensor]:
        """S_l (N, H, T, T), unmasked and finite, and the values (N, H, T, d_k)."""
        query, key, value = (
            split_heads(part, self.heads) for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        scores = self.scores(query, key, positions)
        if self.mode != "plain" and flow.carried is not None:
            scores = scores + flow.carried
        if self.lan is not None and flow.previous is not None:
            scores = self.mix_previous(scores, flow, layer)
        return scores, value

    def forward(
        self, x: Tensor, positions: Optional[Tensor], flow: ScoreFlow, layer: int
    ) -> Tuple[Tensor, Tensor]:
        """x (N, T, d) -> output (N, T, d) and S_l (N, H, T, T)."""
        scores, value = self.flow_scores(x, positions, flow, layer)
        weights = masked_softmax(scores, flow.key_mask)
        return self.out(join_heads(torch.matmul(self.dropout(weights), value))), scores


def shift_distances(scores: Tensor) -> Tensor:
    """Scores by distance (N, H, T, 2T-1), distance T-1 .. -(T-1) -> by key (N, H, T, T).

    Row i, key j wants distance i - j, which is column T-1-i+j: a view whose row stride is one
    element short does it without a copy.
    """
    scores = scores.contiguous()
    size = scores.size(2)
    n, h, t, _ = scores.stride()
    return scores.as_strided(
        (scores.size(0), scores.size(1), size, size),
        (n, h, t - 1, 1),
        storage_offset=scores.storage_offset() + size - 1,
    )


def sinusoids(positions: Tensor, dim: int) -> Tensor:
    """Sinusoidal encodings of integer positions (P,), which may be negative -> (P, d)."""
    rates = torch.exp(
        torch.arange(0, dim, 2, device=positions.device) * (-math.log(10000.0) / dim)
    )
    angles = positions.unsqueeze(1) * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :dim]


class PositionalEncoding(nn.Module):
    """``sqrt(d) x + PE``; the table grows when a longer sequence comes."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(dropout)
        self.register_buffer("table", sinusoids(torch.arange(512), dim), persistent=False)

    def positions(self, start: int, length: int) -> Tensor:
        """PE of positions start .. start+length-1: (length, d)."""
        if start + length > self.table.size(0):
            longer = torch.arange(2 * (start + length), device=self.table.device)
            self.table = sinusoids(longer, self.dim)
        return self.table[start : start + length]

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (N, T, d) whose first row stands at position ``start``."""
        return self.dropout(x * math.sqrt(self.dim) + self.positions(start, x.size(1)).to(x.dtype))


class RelativePositions(nn.Module):
    """``sqrt(d) x`` and encodings of the distances T-1 .. -(T-1), for relative attention."""

    def __init__(self, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim = dim
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        """x (N, T, d) -> scaled x and (2T-1, d)."""
        size = x.size(1)
        distances = torch.arange(size - 1, -size, -1, device=x.device)
        encoded = sinusoids(distances, self.dim).to(x.dtype)
        return self.dropout(x * math.sqrt(self.dim)), self.dropout(encoded)
