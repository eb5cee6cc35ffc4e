"""Zeroth and first order statistics of utterances against the UBM.

Frames are assigned to few Gaussians each (the ``top_n`` best, then posteriors below
``min_posterior`` dropped), so the statistics are a sparse matrix product.  First order statistics
are whitened by each Gaussian's covariance here, and nothing behind this module needs to know
whether that was diagonal or full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, Iterator, List, NamedTuple, Sequence

import torch
from torch import Tensor

from icefall_ctx.features.ivector.gmm import Gmm, Scorer
from icefall_ctx.features.ivector.sources import Utterance, UtteranceSource
from icefall_ctx.features.ivector.ubm import CHUNK


@dataclass(frozen=True)
class SelectionOptions:
    top_n: int = 20  # Gaussians a frame
    min_posterior: float = 0.025  # posteriors below are dropped; 0 keeps all top_n
    acoustic_weight: float = 1.0  # of a frame's posteriors: frames are not independent
    max_count: float = 0.0  # statistics are scaled to at most this many frames; 0: no limit


class SparseStats(NamedTuple):
    """One utterance: its Gaussians ``index`` (K,), ``counts`` (K,), ``first`` (K, D) whitened."""

    index: Tensor
    counts: Tensor
    first: Tensor

    @property
    def num_bytes(self) -> int:
        return self.index.numel() * 8 + self.counts.numel() * 4 + self.first.numel() * 4


class Stats(NamedTuple):
    """A batch of B utterances: ``counts`` (B, C) and whitened ``first`` (B, C, D), float64."""

    counts: Tensor
    first: Tensor


def select(log_joint: Tensor, options: SelectionOptions) -> tuple:
    """Posteriors ``(T, n)`` of the best ``top_n`` Gaussians and their indices ``(T, n)``.

    Pruned posteriors are zero and the others sum to one; the best always stays.
    """
    top_n = min(options.top_n, log_joint.shape[1])
    values, index = log_joint.topk(top_n, dim=1)
    posterior = values.softmax(1)
    if options.min_posterior:
        keep = posterior >= options.min_posterior
        keep[:, 0] = True
        posterior = posterior * keep
        posterior = posterior / posterior.sum(1, keepdim=True)
    return posterior, index


class StatsComputer:
    """Utterances to :class:`SparseStats`, many short utterances scored together."""

    def __init__(self, gmm: Gmm, options: SelectionOptions) -> None:
        self.options = options
        self.scorer = Scorer(gmm)
        self.gmm = gmm
        self.whitener = gmm.whitener()  # (C, D) or (C, D, D)

    def __call__(self, frames: Sequence[Tensor]) -> List[SparseStats]:
        """``frames``: one ``(T, D)`` for each utterance, T may be 0."""
        lengths = [len(f) for f in frames]
        num = self.gmm.num_gaussians
        joined = torch.cat(list(frames)).to(self.gmm.means.device)
        owner = torch.arange(len(frames)).repeat_interleave(torch.tensor(lengths)).to(joined.device)
        counts = torch.zeros(len(frames) * num, device=joined.device)
        first = torch.zeros(len(frames) * num, self.gmm.dim, device=joined.device)
        for block, utterance in zip(joined.split(CHUNK), owner.split(CHUNK)):
            posterior, index = select(self.scorer(block), self.options)
            _accumulate(counts, first, posterior, index + utterance[:, None] * num, block)
        return self._finish(counts.view(len(frames), num), first.view(len(frames), num, -1))

    def _finish(self, counts: Tensor, first: Tensor) -> List[SparseStats]:
        result = []
        for n, f in zip(counts, first):
            index = n.nonzero()[:, 0]
            whitener = self.whitener[index]
            f = f[index].double()
            f = (whitener @ f[..., None])[..., 0] if whitener.dim() == 3 else whitener * f
            weight = self.options.acoustic_weight
            result.append(
                SparseStats(index.cpu(), (weight * n[index]).cpu(), (weight * f).float().cpu())
            )
        return result


def _accumulate(counts: Tensor, first: Tensor, posterior: Tensor, index: Tensor, x: Tensor) -> None:
    """Add ``posterior`` (T, n), and times ``x`` (T, D), to the rows ``index`` (T, n)."""
    keep = posterior > 0
    rows, values = index[keep], posterior[keep]
    frame = torch.arange(len(x), device=x.device)[:, None].expand_as(index)[keep]
    used, place = rows.unique(return_inverse=True)
    matrix = torch.sparse_coo_tensor(torch.stack([place, frame]), values, (len(used), len(x)))
    counts[used] += torch.zeros_like(used, dtype=values.dtype).index_add_(0, place, values)
    first[used] += torch.sparse.mm(matrix, x)


def dense(stats: Sequence[SparseStats], num_gaussians: int, dim: int) -> Stats:
    """Sparse statistics as one dense float64 batch."""
    counts = torch.zeros(len(stats), num_gaussians, dtype=torch.float64)
    first = torch.zeros(len(stats), num_gaussians, dim, dtype=torch.float64)
    for row, item in enumerate(stats):
        counts[row, item.index] = item.counts.double()
        first[row, item.index] = item.first.double()
    return Stats(counts, first)


def batched_utterances(
    source: Iterable[Utterance], size: int, max_frames: int = 4 * CHUNK
) -> Iterator[List[Utterance]]:
    """Batches of at most ``size`` utterances; a batch is closed once it has ``max_frames``."""
    batch: List[Utterance] = []
    frames = 0
    for utterance in source:
        batch.append(utterance)
        frames += len(utterance.frames)
        if len(batch) == size or frames >= max_frames:
            yield batch
            batch, frames = [], 0
    if batch:
        yield batch


@dataclass
class StatsSource:
    """The statistics of a shard of the corpus, again and again.

    What fits into ``cache_bytes`` is kept from the first pass; the rest is computed each time.
    Utterances without speech are left out.
    """

    utterances: UtteranceSource
    cache_bytes: int = 0
    cached: List[SparseStats] = field(default_factory=list)
    num_cached: int = 0  # utterances that stand behind ``cached``
    room: bool = True

    def batches(self, computer: StatsComputer, size: int) -> Iterator[List[SparseStats]]:
        known = len(self.cached)
        for start in range(0, known, size):
            yield self.cached[start : min(start + size, known)]
        for batch in batched_utterances(self.utterances.starting(self.num_cached), size):
            stats = [s for s in computer([u.frames for u in batch]) if len(s.index)]
            self._keep(stats, len(batch))
            if stats:
                yield stats

    def _keep(self, stats: List[SparseStats], num_utterances: int) -> None:
        num_bytes = sum(s.num_bytes for s in stats)
        self.room = self.room and num_bytes <= self.cache_bytes
        if self.room:
            self.cached.extend(stats)
            self.num_cached += num_utterances
            self.cache_bytes -= num_bytes
