"""Bootstrap over conversations (Bisani and Ney, 2004): intervals, and whether two systems differ.

Utterances of one conversation share speakers, channel and topic, so whole conversations are drawn.
"""

from __future__ import annotations

from typing import Iterator, NamedTuple, Sequence

import numpy as np

_MAX_DRAWS = 4_000_000  # how many indices are held at once, about 32 MB


class Interval(NamedTuple):
    low: float
    high: float
    confidence: float


class PairedDifference(NamedTuple):
    """``rate(b) - rate(a)``: negative where ``b`` is better."""

    difference: float
    interval: Interval
    p_value: float  # two-sided; how easily chance alone gives a difference of this sign


def _draws(units: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks of indices (R, units) with replacement, ``resamples`` rows in all."""
    generator = np.random.default_rng(seed)
    block = max(1, min(resamples, _MAX_DRAWS // max(1, units)))
    for start in range(0, resamples, block):
        yield generator.integers(units, size=(min(block, resamples - start), units))


def _resampled_sums(columns: np.ndarray, resamples: int, seed: int) -> np.ndarray:
    """Column sums (resamples, C) of rows drawn from ``columns`` (units, C)."""
    blocks = [columns[draw].sum(axis=1) for draw in _draws(len(columns), resamples, seed)]
    return np.concatenate(blocks)


def _percentiles(values: np.ndarray, confidence: float) -> Interval:
    values = values[~np.isnan(values)]
    if not len(values):
        return Interval(float("nan"), float("nan"), confidence)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high), confidence)


def _rates(errors: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Elementwise errors / words, ``nan`` where a resample holds no reference word."""
    return np.divide(errors, words, out=np.full(len(errors), np.nan), where=words > 0)


def bootstrap_interval(
    errors: Sequence[int],
    words: Sequence[int],
    *,
    resamples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """Percentile interval of ``sum(errors) / sum(words)``, one entry a conversation."""
    sums = _resampled_sums(np.array([errors, words], dtype=np.float64).T, resamples, seed)
    return _percentiles(_rates(sums[:, 0], sums[:, 1]), confidence)


def paired_difference(
    errors_a: Sequence[float],
    errors_b: Sequence[float],
    words: Sequence[int],
    *,
    resamples: int = 10000,
    seed: int = 0,
    confidence: float = 0.95,
) -> PairedDifference:
    """Compare two systems on the same conversations, drawn together in each resample.

    The p-value counts the resamples whose difference is zero or of the other sign,
    ``2 * (1 + count) / (1 + resamples)``, at most 1.
    """
    columns = np.array([errors_a, errors_b, words], dtype=np.float64).T
    sums = _resampled_sums(columns, resamples, seed)
    differences = _rates(sums[:, 1] - sums[:, 0], sums[:, 2])
    observed = _rates(*(columns.sum(axis=0)[None, i] for i in (1, 2)))[0]
    observed -= _rates(*(columns.sum(axis=0)[None, i] for i in (0, 2)))[0]
    against = min(np.sum(differences >= 0), np.sum(differences <= 0))
    p_value = min(1.0, 2 * (1 + float(against)) / (1 + resamples))
    return PairedDifference(float(observed), _percentiles(differences, confidence), p_value)
