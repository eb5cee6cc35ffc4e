"""The universal background model: k-means or splitting to start, then EM.

EM is exact for what it leaves free, so the log-likelihood never falls: a floored variance is the
best one above the floor, and a Gaussian with too few frames keeps its mean and covariance.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Iterable, Iterator, List, Optional

import torch
from torch import Tensor

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector.gmm import Gmm, Scorer, posteriors

CHUNK = 2048  # frames scored at once: with 2048 Gaussians 16 MB of float32
_TINY_WEIGHT = 1e-10


@dataclass(frozen=True)
class UbmOptions:
    num_gaussians: int = 2048
    full: bool = False  # full covariances, trained from the finished diagonal model
    start: str = "kmeans"  # "kmeans" or "split" (1, 2, 4, ... Gaussians)
    kmeans_iters: int = 5
    kmeans_frames: int = 50  # a Gaussian
    sample_frames: int = 500_000  # kept in memory for the first iterations
    sample_iters: int = 12
    num_iters: int = 4  # over all frames; for full covariances once more
    split_iters: int = 3  # after each splitting
    variance_floor: float = 0.01  # of the variance of all frames
    min_count: float = 10.0  # a Gaussian with fewer frames keeps its parameters
    seed: int = 0

    def __post_init__(self) -> None:
        if self.start not in ("kmeans", "split"):
            raise InputError(f"start={self.start!r}: choose kmeans or split")
        if self.num_gaussians < 1:
            raise InputError(f"num_gaussians={self.num_gaussians}: at least one is needed")


@dataclass
class GmmStats:
    """Sums over frames of posterior (C,) and posterior times ``Scorer.expand`` (C, K)."""

    counts: Tensor
    moments: Tensor
    log_likelihood: float = 0.0
    num_frames: int = 0

    def __iadd__(self, other: "GmmStats") -> "GmmStats":
        self.counts += other.counts
        self.moments += other.moments
        self.log_likelihood += other.log_likelihood
        self.num_frames += other.num_frames
        return self

    @property
    def mean_log_likelihood(self) -> float:
        return self.log_likelihood / max(self.num_frames, 1)


def chunks(frames: Iterable[Tensor], size: int = CHUNK) -> Iterator[Tensor]:
    """Blocks of exactly ``size`` frames (the last may be shorter) from blocks of any length."""
    waiting: List[Tensor] = []
    count = 0
    for block in frames:
        while len(block):
            part, block = block[: size - count], block[size - count :]
            waiting.append(part)
            count += len(part)
            if count == size:
                yield torch.cat(waiting) if len(waiting) > 1 else waiting[0]
                waiting, count = [], 0
    if count:
        yield torch.cat(waiting)


def expectation(
    frames: Iterable[Tensor], gmm: Gmm, dtype: torch.dtype = torch.float32
) -> GmmStats:
    """The E-step over ``frames``; sums are kept in float64 whatever ``dtype`` scores in."""
    scorer = Scorer(gmm, dtype)
    width = scorer.expand(gmm.means[:1]).shape[1]
    stats = GmmStats(torch.zeros_like(gmm.weights), gmm.weights.new_zeros(len(gmm.weights), width))
    for chunk in chunks(frames):
        expanded = scorer.expand(chunk.to(gmm.means.device))
        logits = scorer.log_joint(expanded)
        posterior = posteriors(logits)
        stats.moments += posterior.T @ expanded
        stats.counts += posterior.sum(0)
        # The log of a frame's density: its best Gaussian's, by that one's share.
        total = logits.amax(1) - posterior.amax(1).log()
        stats.log_likelihood += float(total.double().sum())
        stats.num_frames += len(chunk)
    return stats


def maximisation(stats: GmmStats, gmm: Gmm, floor: Tensor, min_count: float = 10.0) -> Gmm:
    """The M-step: the best mixture given ``stats`` whose variances reach ``floor`` (D,)."""
    scorer = Scorer(gmm)  # for the space that the moments live in
    dim = gmm.dim
    alive = stats.counts >= min_count
    counts = stats.counts.clamp_min(min(min_count, 1e-3))[:, None]
    means = stats.moments[:, :dim] / counts
    second = stats.moments[:, dim:] / counts
    floor = floor / scorer.scale**2
    if gmm.full:
        covariances = _floored(_symmetric(second, dim) - means[:, :, None] * means[:, None], floor)
        covariances = covariances * (scorer.scale[:, None] * scorer.scale)
    else:
        covariances = (second - means**2).maximum(floor) * scorer.scale**2
    weights = (stats.counts / stats.counts.sum()).clamp_min(_TINY_WEIGHT)
    keep = ~alive
    means = means * scorer.scale + scorer.shift
    means[keep], covariances[keep] = gmm.means[keep], gmm.covariances[keep]
    return Gmm(weights / weights.sum(), means, covariances)


def _symmetric(triangle: Tensor, dim: int) -> Tensor:
    """Lower triangles ``(C, dim (dim + 1) / 2)`` as symmetric matrices ``(C, dim, dim)``."""
    rows, columns = torch.tril_indices(dim, dim)
    matrix = triangle.new_zeros(len(triangle), dim, dim)
    matrix[:, rows, columns] = triangle
    matrix[:, columns, rows] = triangle
    return matrix


def _floored(covariances: Tensor, floor: Tensor) -> Tensor:
    """The most likely covariances that exceed ``diag(floor)``: eigenvalues relative to it >= 1."""
    deviation = floor.sqrt()
    relative = covariances / (deviation[:, None] * deviation)
    values, vectors = torch.linalg.eigh(relative)
    relative = (vectors * values.clamp_min(1.0)[:, None]) @ vectors.transpose(1, 2)
    return relative * (deviation[:, None] * deviation)


def variance_floor(frames: Tensor, factor: float) -> Tensor:
    """``factor`` times the variance ``(D,)`` of ``frames``; a constant dimension gets a share.

    The share is a millionth of the mean variance, so that no dimension can divide by zero.
    """
    variance = frames.double().var(0, unbiased=False)
    return (factor * variance).maximum(1e-6 * variance.mean()).clamp_min(1e-10)


def sample(frames: Iterable[Tensor], num_frames: int, seed: int) -> Tensor:
    """A uniform sample of at most ``num_frames`` frames, in their order, in one pass."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.zeros(0, dtype=torch.float64)
    kept = None
    for block in chunks(frames):
        fresh = torch.rand(len(block), generator=generator, dtype=torch.float64)
        if len(keys) == num_frames:  # only frames that can still get in are copied
            chosen = fresh < keys.max()
            fresh, block = fresh[chosen], block[chosen]
        kept = block if kept is None else torch.cat([kept, block])
        keys = torch.cat([keys, fresh])
        if len(keys) > num_frames:
            index = keys.topk(num_frames, largest=False).indices.sort().values
            keys, kept = keys[index], kept[index]
    if kept is None:
        raise InputError("no speech frame in the training data: look at the VAD's floor and range")
    return kept


def kmeans_start(frames: Tensor, options: UbmOptions, floor: Tensor) -> Gmm:
    """A mixture from ``kmeans_iters`` Lloyd iterations on a random part of ``frames`` (T, D)."""
    num = options.num_gaussians
    generator = torch.Generator().manual_seed(options.seed)
    order = torch.randperm(len(frames), generator=generator)
    deviation = floor.sqrt().to(frames.dtype)
    points = frames[order[: num * options.kmeans_frames]] / deviation
    centres = points[:num].clone()
    for _ in range(options.kmeans_iters):
        label, distance = _assign(points, centres)
        sums = torch.zeros_like(centres).index_add_(0, label, points)
        sizes = label.bincount(minlength=num)
        centres = sums / sizes.clamp_min(1)[:, None]
        empty = (sizes == 0).nonzero()[:, 0]
        centres[empty] = points[distance.topk(len(empty)).indices]
    label, _ = _assign(points, centres)
    sizes = label.bincount(minlength=num).double()
    second = torch.zeros_like(centres).index_add_(0, label, (points - centres[label]) ** 2)
    # One more "point" with the variance of all: a cluster of one must not be a spike.
    spread = points.double().var(0, unbiased=False)
    variances = (second.double() + spread) / (sizes + 1)[:, None]
    scale = floor.sqrt()
    weights = (sizes + 1) / (sizes + 1).sum()
    return Gmm(weights, centres.double() * scale, (variances * floor).maximum(floor))


def _assign(points: Tensor, centres: Tensor) -> tuple:
    """The nearest centre of every point and the squared distance to it, both ``(T,)``."""
    labels, distances = [], []
    half = 0.5 * (centres**2).sum(1)
    for block in points.split(CHUNK):
        best = torch.addmm(half, block, centres.T, alpha=-1).min(1)
        labels.append(best.indices)
        distances.append(2 * best.values + (block**2).sum(1))
    return torch.cat(labels), torch.cat(distances)


def single_gaussian(frames: Tensor, floor: Tensor) -> Gmm:
    frames = frames.double()
    variance = frames.var(0, unbiased=False).maximum(floor)
    return Gmm(variance.new_ones(1), frames.mean(0)[None], variance[None])


def split(gmm: Gmm, target: int, seed: int = 0) -> Gmm:
    """Split the heaviest Gaussians along their deviations, at most doubling, up to ``target``."""
    num = min(target - gmm.num_gaussians, gmm.num_gaussians)
    heaviest = gmm.weights.topk(num).indices
    generator = torch.Generator().manual_seed(seed + gmm.num_gaussians)
    noise = torch.randn(num, gmm.dim, generator=generator, dtype=torch.float64)
    step = 0.2 * noise * gmm.variances[heaviest].sqrt()
    weights, means = gmm.weights.clone(), gmm.means.clone()
    weights[heaviest] /= 2
    means[heaviest] -= step
    return Gmm(
        torch.cat([weights, weights[heaviest]]),
        torch.cat([means, gmm.means[heaviest] + step]),
        torch.cat([gmm.covariances, gmm.covariances[heaviest]]),
    )


def em(
    frames: Iterable[Tensor],
    gmm: Gmm,
    floor: Tensor,
    num_iters: int,
    min_count: float = 10.0,
    dtype: torch.dtype = torch.float32,
    history: Optional[List[float]] = None,
) -> Gmm:
    """``num_iters`` of EM; the log-likelihood a frame before each goes to ``history``."""
    for _ in range(num_iters):
        stats = expectation(frames, gmm, dtype)
        gmm = maximisation(stats, gmm, floor, min_count)
        if history is not None:
            history.append(stats.mean_log_likelihood)
    return gmm


def start(frames: Tensor, options: UbmOptions, floor: Tensor) -> Gmm:
    """A mixture of ``num_gaussians``, trained on the sample ``frames`` (T, D)."""
    needed = max(2, int(options.min_count)) * options.num_gaussians
    if len(frames) < needed:
        raise InputError(
            f"{options.num_gaussians} Gaussians need at least {needed} speech frames and there are "
            f"{len(frames)}: use at most {len(frames) * options.num_gaussians // needed} Gaussians"
        )
    if options.start == "kmeans":
        gmm = kmeans_start(frames, options, floor)
    else:
        gmm = single_gaussian(frames, floor)
        while gmm.num_gaussians < options.num_gaussians:
            gmm = split(gmm, options.num_gaussians, options.seed)
            gmm = em([frames], gmm, floor, options.split_iters, options.min_count)
    history: List[float] = []
    gmm = em([frames], gmm, floor, options.sample_iters, options.min_count, history=history)
    steps = " ".join(f"{value:.2f}" for value in history)
    logging.info("UBM on a sample: log-likelihood a frame %s", steps)
    return gmm


def as_full(gmm: Gmm) -> Gmm:
    """The same mixture with (diagonal) covariance matrices ``(C, D, D)``."""
    return gmm if gmm.full else Gmm(gmm.weights, gmm.means, torch.diag_embed(gmm.covariances))
