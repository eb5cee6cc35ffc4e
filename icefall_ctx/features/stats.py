"""Mean and standard deviation of every feature dimension over a corpus."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List

import numpy as np

from icefall_ctx.errors import InputError, Pathlike
from icefall_ctx.files import write_text

MIN_STD = 1e-3  # a dimension that hardly varies must not be blown up


@dataclass
class FeatureStats:
    """Sums over frames, in float64: ``count``, ``total`` (C,), ``square`` (C,)."""

    count: int
    total: np.ndarray
    square: np.ndarray

    @classmethod
    def zeros(cls, dim: int) -> "FeatureStats":
        return cls(0, np.zeros(dim), np.zeros(dim))

    def add(self, features: np.ndarray) -> None:
        """Count the frames of ``(T, C)``."""
        features = features.astype(np.float64)
        self.count += len(features)
        self.total += features.sum(axis=0)
        self.square += np.square(features).sum(axis=0)

    def merge(self, other: "FeatureStats") -> None:
        self.count += other.count
        self.total += other.total
        self.square += other.square

    @property
    def mean(self) -> np.ndarray:
        """(C,) float32"""
        return (self.total / max(self.count, 1)).astype(np.float32)

    @property
    def std(self) -> np.ndarray:
        """(C,) float32, at least ``MIN_STD``"""
        count = max(self.count, 1)
        variance = self.square / count - np.square(self.total / count)
        return np.sqrt(np.maximum(variance, MIN_STD**2)).astype(np.float32)

    def to_dict(self) -> Dict[str, object]:
        return {"count": self.count, "total": list(self.total), "square": list(self.square)}

    @classmethod
    def from_dict(cls, data: Dict[str, object]) -> "FeatureStats":
        return cls(int(data["count"]), np.array(data["total"]), np.array(data["square"]))

    def save(self, path: Pathlike) -> None:
        """JSON with ``mean`` and ``std`` for people, and the sums they come from."""
        data: Dict[str, object] = {"mean": self.mean.tolist(), "std": self.std.tolist()}
        write_text(path, json.dumps({**data, **self.to_dict()}) + "\n")

    @classmethod
    def load(cls, path: Pathlike) -> "FeatureStats":
        """Raises :class:`InputError` if ``path`` is not such a file."""
        try:
            return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise InputError(f"{path}: no such file; compute_features.py makes it") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: not a file of feature statistics") from error


def merged(parts: List[FeatureStats], dim: int) -> FeatureStats:
    """The statistics of all ``parts`` together."""
    result = FeatureStats.zeros(dim)
    for part in parts:
        result.merge(part)
    return result
