"""Making i-vectors comparable: mean subtraction, LDA over speakers, length normalisation."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Dict, Sequence

import torch
from torch import Tensor

from icefall_ctx.errors import InputError


def length_normalised(vectors: Tensor) -> Tensor:
    """Scale every row of ``(N, R)`` to the length ``sqrt(R)``, so that a dimension has variance 1.

    A zero row stays zero.
    """
    norm = vectors.norm(dim=1, keepdim=True)
    safe = torch.where(norm > 0, norm, torch.ones_like(norm))
    return vectors / safe * vectors.shape[1] ** 0.5


@dataclass(frozen=True)
class VectorTransform:
    """``length_norm((x - mean) @ matrix)``: ``mean`` (R,), ``matrix`` (R, dim)."""

    mean: Tensor
    matrix: Tensor
    normalise: bool = True

    @classmethod
    def identity(cls, rank: int) -> "VectorTransform":
        eye = torch.eye(rank, dtype=torch.float64)
        return cls(torch.zeros(rank, dtype=torch.float64), eye, False)

    @property
    def dim(self) -> int:
        return self.matrix.shape[1]

    def __call__(self, vectors: Tensor) -> Tensor:
        """Transform ``(N, R)`` to ``(N, dim)``."""
        projected = (vectors - self.mean) @ self.matrix
        return length_normalised(projected) if self.normalise else projected

    def state_dict(self) -> Dict[str, Tensor]:
        return {name: torch.as_tensor(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_state_dict(cls, state: Dict[str, Tensor]) -> "VectorTransform":
        return cls(state["mean"], state["matrix"], bool(state["normalise"]))


def scatter(vectors: Tensor, labels: Sequence[str]) -> tuple:
    """Within- and between-speaker covariance ``(R, R)`` of ``vectors`` (N, R), each over N."""
    names = sorted(set(labels))
    position = {name: k for k, name in enumerate(names)}
    index = torch.tensor([position[label] for label in labels])
    counts = index.bincount(minlength=len(names)).to(vectors)
    means = vectors.new_zeros(len(names), vectors.shape[1]).index_add_(0, index, vectors)
    means = means / counts[:, None]
    residual = vectors - means[index]
    offset = means - vectors.mean(0)
    return residual.T @ residual / len(vectors), (offset.T * counts) @ offset / len(vectors)


def lda(vectors: Tensor, labels: Sequence[str], dim: int) -> Tensor:
    """The ``(R, dim')`` projection that separates the speakers best.

    Within-speaker covariance becomes the identity, and columns are sorted by between-speaker
    variance.  ``S`` speakers span ``S - 1`` dimensions, so ``dim' = min(dim, S - 1, R)``.
    Directions in which the vectors do not vary are floored, never divided by.
    """
    num_speakers = len(set(labels))
    if num_speakers < 2:
        raise InputError("LDA needs two speakers or more; use --lda-dim 0 to go without")
    limit = min(num_speakers - 1, vectors.shape[1])
    if dim > limit:
        logging.warning("LDA to %d dimensions, not %d: %d speakers", limit, dim, num_speakers)
        dim = limit
    within, between = scatter(vectors, labels)
    values, basis = torch.linalg.eigh(within)
    floor = max(1e-4 * float(values.max()), 1e-6 * float(between.diagonal().mean()), 1e-12)
    whitening = basis * values.clamp_min(floor).rsqrt()
    _, directions = torch.linalg.eigh(whitening.T @ between @ whitening)
    return whitening @ directions.flip(1)[:, :dim]


def train_transform(
    vectors: Tensor, labels: Sequence[str], lda_dim: int, normalise: bool = True
) -> VectorTransform:
    """Mean and LDA from the training set's i-vectors ``(N, R)``; ``lda_dim=0``: no LDA."""
    vectors = vectors.double()
    mean = vectors.mean(0)
    if lda_dim:
        matrix = lda(vectors, labels, lda_dim)
    else:
        matrix = torch.eye(vectors.shape[1], dtype=torch.float64)
    return VectorTransform(mean, matrix, normalise)
