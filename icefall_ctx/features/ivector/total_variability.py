"""Training the total variability matrix: EM with minimum divergence.

One iteration maximises the matrix given the posteriors of all utterances, then replaces the prior
by the best Gaussian for them and moves that Gaussian back to ``N(o e_1, I)`` by changing the
coordinates of ``w``.  Both steps are exact, so the likelihood given the frame alignments never
falls.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Iterable, List

import torch
from torch import Tensor

from icefall_ctx.features.ivector.extractor import TotalVariability
from icefall_ctx.features.ivector.gmm import Gmm
from icefall_ctx.features.ivector.stats import SparseStats, Stats, dense

PRIOR_OFFSET = 100.0  # at the start; minimum divergence moves it


@dataclass(frozen=True)
class TotalVariabilityOptions:
    rank: int = 200
    num_iters: int = 5
    min_count: float = 10.0  # a Gaussian with fewer frames keeps its matrix
    min_divergence: bool = True
    batch_size: int = 128  # utterances
    seed: int = 0


@dataclass
class PosteriorSums:
    """Sums over utterances: with E the posterior mean and M the second moment of ``w``,

    ``counts`` (C,), ``second`` (C, P) of ``N_c M``, ``cross`` (C D, R) of ``F_c E'``,
    ``mean`` (R,) of E, ``moment`` (R, R) of M; and the log-likelihood.
    """

    counts: Tensor
    second: Tensor
    cross: Tensor
    mean: Tensor
    moment: Tensor
    log_likelihood: float = 0.0
    num_utterances: int = 0

    @classmethod
    def zeros(cls, model: TotalVariability) -> "PosteriorSums":
        num, dim, rank = model.matrix.shape
        new = model.matrix.new_zeros
        triangle = model.triangle.shape[1]
        return cls(new(num), new(num, triangle), new(num * dim, rank), new(rank), new(rank, rank))

    def __iadd__(self, other: "PosteriorSums") -> "PosteriorSums":
        for name in self.__dataclass_fields__:
            total = getattr(self, name)
            total += getattr(other, name)  # in place: the large ones are hundreds of megabytes
            setattr(self, name, total)
        return self

    def to(self, device: str) -> "PosteriorSums":
        for name in ("counts", "second", "cross", "mean", "moment"):
            setattr(self, name, getattr(self, name).to(device))
        return self


def initial_model(gmm: Gmm, options: TotalVariabilityOptions) -> TotalVariability:
    """The UBM's means in dimension 0, small random directions in the others."""
    generator = torch.Generator().manual_seed(options.seed)
    shape = (gmm.num_gaussians, gmm.dim, options.rank)
    matrix = torch.randn(shape, generator=generator, dtype=torch.float64)
    matrix *= 0.5 / options.rank**0.5
    whitener = gmm.whitener()
    if gmm.full:
        centre = (whitener @ gmm.means[..., None])[..., 0]
    else:
        centre = whitener * gmm.means
    matrix[:, :, 0] = centre / PRIOR_OFFSET
    return TotalVariability(matrix, PRIOR_OFFSET)


def expectation(batches: Iterable[List[SparseStats]], model: TotalVariability) -> PosteriorSums:
    """The E-step over batches of statistics."""
    sums = PosteriorSums.zeros(model)
    num, dim, rank = model.matrix.shape
    rows, columns = model.triangle
    device = model.matrix.device
    for batch in batches:
        counts, first = (part.to(device) for part in dense(batch, num, dim))
        mean, factor, right = model.posterior(model.evidence(Stats(counts, first)))
        moment = torch.cholesky_inverse(factor) + mean[:, :, None] * mean[:, None]
        sums.counts += counts.sum(0)
        sums.second.addmm_(counts.T, moment[:, rows, columns])
        sums.cross.addmm_(first.flatten(1).T, mean)
        sums.mean += mean.sum(0)
        sums.moment += moment.sum(0)
        sums.log_likelihood += float(log_likelihood(mean, factor, right, model.offset).sum())
        sums.num_utterances += len(batch)
    return sums


def log_likelihood(mean: Tensor, factor: Tensor, right: Tensor, offset: float) -> Tensor:
    """What the log-likelihood ``(B,)`` of utterances given the alignments owes to the matrix.

    ``(w_hat' L w_hat - o^2 - log |L|) / 2``; the rest depends on the UBM and the frames only.
    """
    log_det = 2 * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    return 0.5 * ((right * mean).sum(1) - offset**2 - log_det)


def maximisation(sums: PosteriorSums, model: TotalVariability, min_count: float) -> Tensor:
    """The matrix ``(C, D, R)`` that solves ``T_c sum N_c M = sum F_c E'`` for every Gaussian."""
    num, dim, rank = model.matrix.shape
    rows, columns = model.triangle
    matrix = model.matrix.clone()
    cross = sums.cross.view(num, dim, rank)
    for part in (sums.counts >= min_count).nonzero()[:, 0].split(64):
        second = matrix.new_zeros(len(part), rank, rank)
        second[:, rows, columns] = sums.second[part]
        second[:, columns, rows] = sums.second[part]
        factor = torch.linalg.cholesky(second)
        matrix[part] = torch.cholesky_solve(cross[part].transpose(1, 2), factor).transpose(1, 2)
    return matrix


def minimum_divergence(matrix: Tensor, sums: PosteriorSums) -> TotalVariability:
    """Coordinates of ``w`` in which the best prior of the utterances is ``N(o e_1, I)``.

    With mean m and covariance ``G G'`` of the posteriors, ``w = G v`` and ``v`` is rotated so that
    its mean points along dimension 0: ``T_c G Q'``, ``o = |G^-1 m|``.
    """
    mean = sums.mean / sums.num_utterances
    covariance = sums.moment / sums.num_utterances - mean[:, None] * mean
    factor = torch.linalg.cholesky(covariance)
    centre = torch.linalg.solve_triangular(factor, mean[:, None], upper=False)[:, 0]
    offset = float(centre.norm())
    return TotalVariability(matrix @ (factor @ _reflection(centre / offset)), offset)


def _reflection(direction: Tensor) -> Tensor:
    """The symmetric orthogonal matrix that maps the unit vector ``direction`` to ``e_1``."""
    eye = torch.eye(len(direction), dtype=direction.dtype, device=direction.device)
    normal = direction - eye[0]
    length = normal.norm()
    if length < 1e-12:
        return eye
    normal = normal / length
    return eye - 2 * normal[:, None] * normal


def update(
    sums: PosteriorSums, model: TotalVariability, options: TotalVariabilityOptions
) -> TotalVariability:
    """One M-step; logs the log-likelihood that ``model`` had."""
    logging.info(
        "total variability: log-likelihood a frame %.4f (%d utterances)",
        sums.log_likelihood / max(float(sums.counts.sum()), 1e-10),
        sums.num_utterances,
    )
    matrix = maximisation(sums, model, options.min_count)
    if options.min_divergence and sums.num_utterances > 1:
        return minimum_divergence(matrix, sums)
    return TotalVariability(matrix, model.offset)
