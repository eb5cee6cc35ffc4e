"""Memory encoder (B1) and memory attention (B2) of the word memory."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig
from icefall_ctx.models.attention import MultiHead, PositionalEncoding
from icefall_ctx.models.memory_entries import DUMMY, EncodedMemory, MemoryScores

SCORE_BLOCK = 8192  # entries of a float16 memory that are widened at once


class EntryEmbedding(nn.Module):
    """``sqrt(d) Embed(Z) + PE``, with the embedding of the decoder that reads the memory."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab_size, config.dim)
        nn.init.normal_(self.table.weight, std=config.dim**-0.5)
        self.positions = PositionalEncoding(config.dim, config.dropout)

    def forward(self, tokens: Tensor, start: int = 0) -> Tensor:
        """(..., U) whose first column stands at position ``start`` -> (..., U, d)."""
        return self.positions(self.table(tokens), start)


class MemoryEncoder(nn.Module):
    """Encodes entries (B1).

        Z_emb = sqrt(d) Embed(Z) + PE          (L, E, d)
        Z_enc = TransformerEncoder(Z_emb)      (L, E, d)
        Z_sum = mean over the tokens           (L, d)
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.dim,
                config.heads,
                config.ff_dim,
                config.dropout,
                batch_first=True,
                norm_first=True,
            )
            for _ in range(config.memory_encoder_layers)
        )
        self.norm = nn.LayerNorm(config.dim)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tuple[Tensor, Tensor]:
        """Z_emb (L, E, d), mask (L, E) -> Z_enc (L, E, d) and Z_sum (L, d)."""
        x = embedded
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=~mask)
        x = self.norm(x)
        total = x.masked_fill(~mask.unsqueeze(-1), 0.0).sum(dim=1)
        return x, total / mask.sum(dim=1, keepdim=True)


class MemoryAttention(nn.Module):
    """What every decoder block reads from the memory (B2).

        scores = d^-1/4 LN(x W_q) . d^-1/4 LN(keys W_k)
        MEM:   x + softmax(scores) (keys W_v)
        2MEM:  x + MultiHead(x, Z_enc[l], Z_emb[l])   with l = argmax scores, where l is no dummy
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        dim = config.dim
        self.scale = dim**-0.25
        self.encoded_values = config.memory_values == "encoded"
        self.score_residual = config.memory_score_residual
        # the residual stream of a pre-norm decoder has no scale of its own
        self.norm = nn.LayerNorm(dim) if config.norm_first else nn.Identity()
        self.query = nn.Linear(dim, dim)
        self.query_norm = nn.LayerNorm(dim)
        self.key = nn.Linear(dim, dim)
        self.key_norm = nn.LayerNorm(dim)
        self.dropout = nn.Dropout(config.dropout)
        two_step = config.memory == "2mem"
        self.value = None if two_step else nn.Linear(dim, dim)
        self.entry_attention = MultiHead(dim, config.heads, config.dropout) if two_step else None

    def keys(self, entries: Tensor) -> Tensor:
        """``d^-1/4 LN(keys W_k)`` of the dummy and the entries, (L+1, d)."""
        return self.scale * self.key_norm(self.key(entries))

    def scores(
        self,
        x: Tensor,
        memory: EncodedMemory,
        block: int,
        before: Optional[MemoryScores],
        columns: Optional[Tensor],
    ) -> MemoryScores:
        """Scores of x (R, U, d), R = N x beam.

        Args:
          before: of the block before, None in the first.
          columns: (N, C) the only entries to score; None scores all.
        """
        query = self.scale * self.query_norm(self.query(self.norm(x)))
        if columns is None:
            scores = score_all(query, memory.keys[block])
        else:
            folded = query.view(columns.size(0), -1, query.size(-1))
            keys = memory.keys[block][columns].to(query.dtype)
            scores = torch.matmul(folded, keys.transpose(1, 2)).view(*x.shape[:2], -1)
        scores = add_bias(scores.float(), memory.bias, columns)
        if self.score_residual and before is not None:
            scores = (scores + before.at(columns)) / 2
        return MemoryScores(scores, columns)

    def forward(
        self,
        x: Tensor,
        scores: MemoryScores,
        memory: EncodedMemory,
        block: int,
        embed: EntryEmbedding,
        choice: Optional[Tensor] = None,
    ) -> Tensor:
        """x (R, U, d) and what it reads; ``choice`` (R, U) replaces the choice of 2MEM."""
        if self.value is not None:
            return x + self.dropout(self._weighted_values(scores, memory.values[block]))
        choice = scores.choice() if choice is None else choice
        return self._read_chosen(x, choice, memory, embed)

    def _weighted_values(self, scores: MemoryScores, values: Tensor) -> Tensor:
        """``softmax(scores) values``, (R, U, d)."""
        weights = scores.scores.softmax(dim=-1)
        if scores.columns is None:
            return weighted_sum(weights, values)
        values = values[scores.columns].to(weights.dtype)
        folded = weights.view(values.size(0), -1, values.size(1))
        return torch.matmul(folded, values).view(*weights.shape[:2], -1)

    def _read_chosen(
        self, x: Tensor, choice: Tensor, memory: EncodedMemory, embed: EntryEmbedding
    ) -> Tensor:
        """Second attention of 2MEM, where an entry is chosen (gather, attend, scatter): its cost
        does not depend on how many entries there are."""
        hit = choice != DUMMY
        if not bool(hit.any()):
            return x
        entries, which = choice[hit].unique(return_inverse=True)
        tokens, encoded, mask = memory.gather(entries)
        encoded = encoded.to(x.dtype)
        values = encoded if self.encoded_values else embed(tokens)
        key, value = self.entry_attention.keys_values(encoded, values)
        asking = self.norm(x[hit]).unsqueeze(1)  # (K, 1, d)
        found = self.entry_attention.attend(
            asking, key[which], value[which], mask[which][:, None, None, :]
        )
        reading = x[hit] + self.dropout(found[:, 0])
        return x.masked_scatter(hit.unsqueeze(-1), reading.to(x.dtype))


def score_all(query: Tensor, keys: Tensor) -> Tensor:
    """query (R, U, d) . keys (L+1, d) -> (R, U, L+1), exact; float16 keys are widened a block at a
    time, so that there is never a second copy of all of them."""
    if keys.dtype == query.dtype:
        return torch.matmul(query, keys.t())
    blocks = keys.split(SCORE_BLOCK)
    return torch.cat([torch.matmul(query, b.to(query.dtype).t()) for b in blocks], dim=-1)


def weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """weights (R, U, L+1) times values (L+1, d) -> (R, U, d), widened as in :func:`score_all`."""
    if values.dtype == weights.dtype:
        return torch.matmul(weights, values)
    parts = zip(weights.split(SCORE_BLOCK, dim=-1), values.split(SCORE_BLOCK))
    return sum(torch.matmul(w, v.to(w.dtype)) for w, v in parts)


def add_bias(scores: Tensor, bias: Optional[Tensor], columns: Optional[Tensor]) -> Tensor:
    """scores (N * beam, U, C) plus each utterance's bias (N, L+1), of which ``columns`` (N, C)."""
    if bias is None:
        return scores
    bias = bias if columns is None else bias.gather(1, columns)
    folded = scores.view(bias.size(0), -1, scores.size(-1))
    return (folded + bias.unsqueeze(1)).view_as(scores)
