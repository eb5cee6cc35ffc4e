"""Gaussian mixtures, evaluated for many frames at once.

A frame's log density is linear in ``[z, z * z]`` (diagonal) or ``[z, z z']`` (full covariance), so
the densities of ``T`` frames under ``C`` Gaussians are one matrix product.  ``z`` is the frame
standardised by the mixture's own mean and deviation: without that the terms of the product would
cancel badly in float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict

import torch
from torch import Tensor


@dataclass(frozen=True)
class Gmm:
    """``weights`` (C,), ``means`` (C, D), ``covariances`` (C, D) or (C, D, D), all float64."""

    weights: Tensor
    means: Tensor
    covariances: Tensor

    @property
    def full(self) -> bool:
        return self.covariances.dim() == 3

    @property
    def num_gaussians(self) -> int:
        return len(self.weights)

    @property
    def dim(self) -> int:
        return self.means.shape[1]

    @property
    def variances(self) -> Tensor:
        """Diagonals of the covariances ``(C, D)``."""
        return self.covariances.diagonal(dim1=1, dim2=2) if self.full else self.covariances

    def moments(self) -> tuple:
        """Mean and standard deviation ``(D,)`` of the whole mixture."""
        mean = self.weights @ self.means
        second = self.weights @ (self.variances + (self.means - mean) ** 2)
        return mean, second.sqrt()

    def whitener(self) -> Tensor:
        """``W`` with ``W' W`` the inverse covariance: ``(C, D)``, or ``(C, D, D)`` triangular."""
        if not self.full:
            return self.covariances.rsqrt()
        factor = torch.linalg.cholesky(self.covariances)
        eye = torch.eye(self.dim, dtype=factor.dtype, device=factor.device).expand_as(factor)
        return torch.linalg.solve_triangular(factor, eye, upper=False)

    def to(self, device) -> "Gmm":
        return Gmm(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def state_dict(self) -> Dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


class Scorer:
    """``scorer(frames (T, D)) -> (T, C)``: the log of weight times density, in ``dtype``."""

    def __init__(self, gmm: Gmm, dtype: torch.dtype = torch.float32) -> None:
        self.gmm, self.dtype = gmm, dtype
        self.shift, self.scale = gmm.moments()
        means = (gmm.means - self.shift) / self.scale  # (C, D) of z
        if gmm.full:
            linear, quadratic, constant = self._full(means)
        else:
            precision = self.scale**2 / gmm.covariances
            linear, quadratic = means * precision, -0.5 * precision
            constant = -0.5 * (means**2 * precision - precision.log()).sum(1)
        constant = constant + gmm.weights.log() - 0.5 * gmm.dim * math.log(2 * math.pi)
        self._weight = torch.cat([linear, quadratic], 1).T.contiguous().to(dtype)
        self._bias = (constant - self.scale.log().sum()).to(dtype)

    def _full(self, means: Tensor) -> tuple:
        whitener = self.gmm.whitener() * self.scale  # of z
        precision = whitener.transpose(1, 2) @ whitener
        rows, columns = torch.tril_indices(self.gmm.dim, self.gmm.dim)
        twice = torch.where(rows == columns, 1.0, 2.0).to(precision)
        linear = (precision @ means[..., None])[..., 0]
        log_det = whitener.diagonal(dim1=1, dim2=2).log().sum(1)
        return (
            linear,
            -0.5 * twice * precision[:, rows, columns],
            log_det - 0.5 * (linear * means).sum(1),
        )

    def expand(self, frames: Tensor) -> Tensor:
        """``[z, z * z]`` (T, 2 D), or ``[z, lower triangle of z z']`` for full covariances."""
        z = ((frames.to(self.shift) - self.shift) / self.scale).to(self.dtype)
        if not self.gmm.full:
            return torch.cat([z, z * z], dim=1)
        rows, columns = torch.tril_indices(self.gmm.dim, self.gmm.dim)
        return torch.cat([z, z[:, rows] * z[:, columns]], dim=1)

    def log_joint(self, expanded: Tensor) -> Tensor:
        return torch.addmm(self._bias, expanded, self._weight)

    def __call__(self, frames: Tensor) -> Tensor:
        return self.log_joint(self.expand(frames))


def posteriors(log_joint: Tensor) -> Tensor:
    """Softmax over the Gaussians of ``log_joint`` (T, C), nothing below e^-60 of a frame's best.

    The processor is ten times slower with the denormal numbers that far Gaussians would have,
    in the softmax and in every product behind it.
    """
    return log_joint.maximum(log_joint.amax(1, keepdim=True) - 60).softmax(1)
