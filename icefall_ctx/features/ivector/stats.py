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

from icefall_ctx.features.ivector.gmm import Gmm, Scorer, posteriors
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


class Alignment(NamedTuple):
    """Posteriors above zero, one a row: ``frame`` (K,), ``gaussian`` (K,), ``posterior`` (K,)."""

    frame: Tensor
    gaussian: Tensor
    posterior: Tensor


def select(log_joint: Tensor, options: SelectionOptions) -> Alignment:
    """Few Gaussians for every frame of ``log_joint`` (T, C).

    Posteriors below ``min_posterior`` are dropped, but never a frame's largest; of the others the
    ``top_n`` largest stay, scaled to sum to one.
    """
    posterior, num_frames = posteriors(log_joint), len(log_joint)
    keep = posterior >= options.min_posterior
    frame, gaussian = keep.nonzero(as_tuple=True)
    # Few frames, if any, have lost all or have too many left, and sorting out the largest is slow.
    sizes = frame.bincount(minlength=num_frames)
    unusual = ((sizes == 0) | (sizes > options.top_n)).nonzero()[:, 0]
    if len(unusual):
        rows = posterior[unusual]
        values, largest = rows.topk(min(options.top_n, rows.shape[1]), dim=1)
        stays = values >= values[:, :1].clamp_max(options.min_posterior)
        keep[unusual] = torch.zeros_like(keep[unusual]).scatter_(1, largest, stays)
        frame, gaussian = keep.nonzero(as_tuple=True)
    kept = posterior[frame, gaussian]
    total = kept.new_zeros(num_frames).index_add_(0, frame, kept)
    return Alignment(frame, gaussian, kept / total[frame])


class StatsComputer:
    """Utterances to :class:`SparseStats`, many short utterances scored together."""

    def __init__(self, gmm: Gmm, options: SelectionOptions) -> None:
        self.options = options
        self.scorer = Scorer(gmm)
        self.gmm = gmm
        self.whitener = gmm.whitener()  # (C, D) or (C, D, D)

    def __call__(self, frames: Sequence[Tensor]) -> List[SparseStats]:
        """``frames``: one ``(T, D)`` for each utterance, T may be 0."""
        return self._sparse(*self._sums(frames))

    def dense(self, frames: Sequence[Tensor]) -> Stats:
        """The same as one dense batch."""
        weight = self.options.acoustic_weight
        counts, first = (weight * part.double() for part in self._sums(frames))
        if self.whitener.dim() == 3:
            return Stats(counts, (self.whitener @ first[..., None])[..., 0])
        return Stats(counts, self.whitener * first)

    def _sums(self, frames: Sequence[Tensor]) -> tuple:
        """Sums ``(B, C)`` of posteriors and ``(B, C, D)`` of posteriors times frames, float32."""
        lengths = [len(f) for f in frames]
        num = self.gmm.num_gaussians
        joined = torch.cat(list(frames)).to(self.gmm.means.device)
        owner = torch.arange(len(frames)).repeat_interleave(torch.tensor(lengths)).to(joined.device)
        counts = torch.zeros(len(frames) * num, device=joined.device)
        first = torch.zeros(len(frames) * num, self.gmm.dim, device=joined.device)
        for block, utterance in zip(joined.split(CHUNK), owner.split(CHUNK)):
            alignment = select(self.scorer(block), self.options)
            rows = utterance[alignment.frame] * num + alignment.gaussian
            _accumulate(counts, first, rows, alignment, block)
        return counts.view(len(frames), num), first.view(len(frames), num, -1)

    def _sparse(self, counts: Tensor, first: Tensor) -> List[SparseStats]:
        """Whiten and weight ``counts`` (B, C) and ``first`` (B, C, D); one item an utterance."""
        owner, index = counts.nonzero(as_tuple=True)
        whitener = self.whitener[index]
        kept = first[owner, index].double()
        kept = (whitener @ kept[..., None])[..., 0] if whitener.dim() == 3 else whitener * kept
        weight = self.options.acoustic_weight
        parts = (index, weight * counts[owner, index], (weight * kept).float())
        sizes = owner.bincount(minlength=len(counts)).tolist()
        split = (part.cpu().split(sizes) for part in parts)
        return [SparseStats(*(part.clone() for part in item)) for item in zip(*split)]


def _accumulate(
    counts: Tensor, first: Tensor, rows: Tensor, alignment: Alignment, x: Tensor
) -> None:
    """Add the posteriors, and the posteriors times frames of ``x`` (T, D), to ``rows`` (K,)."""
    touched = torch.zeros_like(counts, dtype=torch.bool)
    touched[rows] = True
    used = touched.nonzero()[:, 0]
    place = torch.empty(len(counts), dtype=torch.long, device=rows.device)
    place[used] = torch.arange(len(used), device=rows.device)
    entries = torch.stack([place[rows], alignment.frame])
    matrix = torch.sparse_coo_tensor(entries, alignment.posterior, (len(used), len(x)))
    counts.index_add_(0, rows, alignment.posterior)
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
