"""The i-vector extractor: a Gaussian mixture whose means move in a low-dimensional space.

The mean of Gaussian c for one utterance is ``T_c w`` with ``w ~ N(o e_1, I)``: the first dimension
carries the mixture's own means through the prior offset ``o``, so that statistics need no
centring.  Given zeroth statistics ``N_c`` and whitened first order statistics ``F_c``,

    L = I + sum_c N_c T_c' T_c,    w_hat = L^-1 (o e_1 + sum_c T_c' F_c),

where ``T_c`` is whitened too.  ``L`` and the right side add up over utterances, so a speaker's
utterances, or the turns of a conversation so far, are summed as :class:`Evidence` of fixed size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Sequence, Union

import torch
from torch import Tensor

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector.frontend import FrontendConfig
from icefall_ctx.features.ivector.gmm import Gmm
from icefall_ctx.features.ivector.stats import SelectionOptions, SparseStats, Stats, StatsComputer
from icefall_ctx.features.ivector.transforms import VectorTransform
from icefall_ctx.files import read_torch, write_torch

FORMAT = "icefall-ctx-ivector-1"


@dataclass(frozen=True)
class Evidence:
    """What utterances say about ``w``: ``counts`` (B,), ``linear`` (B, R), ``quadratic`` (B, P).

    ``quadratic`` is the lower triangle of ``sum_c N_c T_c' T_c``, ``P = R (R + 1) / 2``.  All three
    are sums over frames: adding two adds their utterances.
    """

    counts: Tensor
    linear: Tensor
    quadratic: Tensor

    def __add__(self, other: "Evidence") -> "Evidence":
        return Evidence(
            self.counts + other.counts,
            self.linear + other.linear,
            self.quadratic + other.quadratic,
        )

    def __getitem__(self, rows) -> "Evidence":
        return Evidence(self.counts[rows], self.linear[rows], self.quadratic[rows])

    def limited(self, max_count: float) -> "Evidence":
        """Scaled down to at most ``max_count`` frames (B rows alike); 0 means no limit."""
        if not max_count:
            return self
        scale = (max_count / self.counts.clamp_min(max_count)).clamp_max(1.0)
        return Evidence(
            self.counts * scale, self.linear * scale[:, None], self.quadratic * scale[:, None]
        )


class TotalVariability:
    """``matrix`` (C, D, R), the whitened ``T_c``, and the prior ``offset`` of dimension 0."""

    def __init__(self, matrix: Tensor, offset: float) -> None:
        self.matrix, self.offset = matrix, float(offset)
        self.triangle = torch.tril_indices(self.rank, self.rank)
        self._quadratic: Optional[Tensor] = None

    @property
    def rank(self) -> int:
        """R, the dimension of the i-vectors."""
        return self.matrix.shape[2]

    @property
    def quadratic(self) -> Tensor:
        """Lower triangles ``(C, P)`` of ``T_c' T_c``, computed at first use."""
        if self._quadratic is None:
            rows, columns = self.triangle
            num = len(self.matrix)
            self._quadratic = self.matrix.new_empty(num, len(rows))
            for part in torch.arange(num).split(64):
                block = self.matrix[part]
                self._quadratic[part] = (block.transpose(1, 2) @ block)[:, rows, columns]
        return self._quadratic

    def evidence(self, stats: Stats) -> Evidence:
        flat = stats.first.flatten(1)  # (B, C D)
        return Evidence(
            stats.counts.sum(1),
            flat @ self.matrix.view(-1, self.rank),
            stats.counts @ self.quadratic,
        )

    def precision(self, evidence: Evidence) -> Tensor:
        """``L`` (B, R, R)."""
        rows, columns = self.triangle
        precision = evidence.quadratic.new_zeros(len(evidence.counts), self.rank, self.rank)
        precision[:, rows, columns] = evidence.quadratic
        precision[:, columns, rows] = evidence.quadratic
        precision.diagonal(dim1=1, dim2=2).add_(1.0)
        return precision

    def posterior(self, evidence: Evidence) -> tuple:
        """``w_hat`` (B, R), the Cholesky factor of ``L`` (B, R, R), the right side (B, R)."""
        right = evidence.linear.clone()
        right[:, 0] += self.offset
        factor = torch.linalg.cholesky(self.precision(evidence))
        mean = torch.cholesky_solve(right[..., None], factor)[..., 0]
        return mean, factor, right

    def ivectors(self, evidence: Evidence, max_count: float = 0.0) -> Tensor:
        """Posterior means minus the prior's ``(B, R)``: no speech at all gives zeros."""
        mean, _, _ = self.posterior(evidence.limited(max_count))
        mean[:, 0] -= self.offset
        return mean


class IvectorExtractor:
    """UBM, total variability and transform, with all the options they were trained with."""

    def __init__(
        self,
        gmm: Gmm,
        model: TotalVariability,
        frontend: FrontendConfig,
        selection: SelectionOptions = SelectionOptions(),
        transform: Optional[VectorTransform] = None,
        device: str = "cpu",
    ) -> None:
        self.gmm, self.model, self.frontend = gmm, model, frontend
        self.selection = selection
        self.transform = transform or VectorTransform.identity(model.rank)
        self.computer = StatsComputer(gmm.to(device), selection)

    @property
    def dim(self) -> int:
        """Dimension of the finished vectors, after the transform."""
        return self.transform.dim

    def statistics(self, frames: Sequence[Tensor]) -> List[SparseStats]:
        return self.computer(self._checked(frames))

    def _checked(self, frames: Sequence[Tensor]) -> Sequence[Tensor]:
        for f in frames:
            if f.shape[1] != self.gmm.dim:
                raise InputError(
                    f"frames of {f.shape[1]} dimensions, but this extractor was trained on "
                    f"{self.gmm.dim}"
                )
        return frames

    def evidence(self, frames: Sequence[Tensor]) -> Evidence:
        """Evidence of one utterance a row; ``frames`` are ``(T, D)`` each, T may be 0."""
        return self.model.evidence(self.computer.dense(self._checked(frames)))

    def empty(self) -> Evidence:
        """The evidence ``(1 row)`` of no speech."""
        zeros = torch.zeros(1, dtype=torch.float64)
        return Evidence(
            zeros,
            zeros.new_zeros(1, self.model.rank),
            zeros.new_zeros(1, self.model.triangle.shape[1]),
        )

    def raw(self, evidence: Evidence) -> Tensor:
        """I-vectors ``(B, R)`` before the transform."""
        return self.model.ivectors(evidence, self.selection.max_count)

    def vectors(self, evidence: Evidence) -> Tensor:
        """Finished vectors ``(B, dim)``; no speech gives zeros, the mean of the training set."""
        vectors = self.transform(self.raw(evidence))
        return vectors * (evidence.counts > 0)[:, None]

    def fingerprint(self) -> str:
        """Changes with every number of the extractor; 12 hex digits."""
        digest = hashlib.sha256()
        for tensor in (self.gmm.means, self.gmm.covariances, self.model.matrix):
            digest.update(tensor.contiguous().numpy().tobytes())
        for tensor in self.transform.state_dict().values():
            digest.update(tensor.contiguous().numpy().tobytes())
        digest.update(repr((self.frontend, self.selection, self.model.offset)).encode())
        return digest.hexdigest()[:12]

    def save(self, path: Union[str, Path]) -> None:
        # JSON, since weights_only reading of torch 1.13 knows no plain float.
        options = {
            "frontend": dataclasses.asdict(self.frontend),
            "selection": dataclasses.asdict(self.selection),
            "offset": self.model.offset,
        }
        state = {
            "format": FORMAT,
            "options": json.dumps(options),
            "gmm": self.gmm.state_dict(),
            "matrix": self.model.matrix,
            "transform": self.transform.state_dict(),
        }
        write_torch(path, state)

    @classmethod
    def load(cls, path: Union[str, Path], device: str = "cpu") -> "IvectorExtractor":
        """Read what :meth:`save` wrote; anything else is refused and no code of it runs."""
        if not Path(path).is_file():
            raise InputError(f"{path}: no such extractor; `icefall-ctx ivector train` makes one")
        state = read_torch(path, what="an i-vector extractor")
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise InputError(f"{path}: not an i-vector extractor of format {FORMAT}")
        options = json.loads(state["options"])
        return cls(
            Gmm(**state["gmm"]),
            TotalVariability(state["matrix"], options["offset"]),
            FrontendConfig(**options["frontend"]),
            SelectionOptions(**options["selection"]),
            VectorTransform.from_state_dict(state["transform"]),
            device,
        )
