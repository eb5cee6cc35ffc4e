"""Score scales, tuned on dev over cached n-best lists and kept in ``scales.json``."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from icefall_ctx.errors import InputError, Pathlike
from icefall_ctx.files import write_text
from icefall_ctx.lattice.nbest import Hypothesis

DEFAULT_GRID = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0)


class ScaleSearch(NamedTuple):
    """The best scales, their errors, and the errors of the whole grid."""

    scales: Dict[str, float]
    errors: int
    table: List[Tuple[Dict[str, float], int]]


def tune_scales(
    nbests: Sequence[Sequence[Hypothesis]],
    errors: Sequence[Sequence[int]],
    grid: Mapping[str, Sequence[float]],
) -> ScaleSearch:
    """The scales with the fewest errors; of equally good ones the smallest.

    Args:
      nbests: hypotheses of every dev utterance, with their scores.
      errors: word errors of each hypothesis, of the same shape; see
        :func:`icefall_ctx.lattice.decode.word_errors`.
      grid: values to try for each score name; ``acoustic`` stays 1.
    """
    if not any(len(nbest) for nbest in nbests):
        raise InputError("no dev hypotheses to tune score scales on")
    names = list(grid)
    acoustic, others, wrong = _padded(nbests, errors, names)
    table = []
    for values in sorted(product(*(grid[name] for name in names)), key=sum):
        totals = acoustic + others @ np.array(values)  # (utterances, n)
        chosen = totals.argmax(axis=1)
        count = int(wrong[np.arange(len(wrong)), chosen].sum())
        table.append((dict(zip(names, values)), count))
    scales, count = min(table, key=lambda row: row[1])
    return ScaleSearch({"acoustic": 1.0, **scales}, count, table)


def _padded(
    nbests: Sequence[Sequence[Hypothesis]],
    errors: Sequence[Sequence[int]],
    names: Sequence[str],
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """acoustic (B, n), other scores (B, n, K), errors (B, n); padding can never win."""
    rows = [(nbest, wrong) for nbest, wrong in zip(nbests, errors) if len(nbest)]
    width = max(len(nbest) for nbest, _ in rows)
    acoustic = np.full((len(rows), width), -np.inf)
    others = np.zeros((len(rows), width, len(names)))
    counts = np.zeros((len(rows), width), dtype=int)
    for i, (nbest, wrong) in enumerate(rows):
        for j, hypothesis in enumerate(nbest):
            acoustic[i, j] = hypothesis.scores["acoustic"]
            others[i, j] = [hypothesis.scores.get(name, 0.0) for name in names]
            counts[i, j] = wrong[j]
    return acoustic, others, counts


def save_scales(path: Pathlike, search: ScaleSearch, tuned_on: str) -> None:
    """Write the scales with the name of the set they were tuned on."""
    content = {"scales": search.scales, "errors": search.errors, "tuned_on": tuned_on}
    write_text(path, json.dumps(content, indent=1) + "\n")


def load_scales(path: Pathlike, test_set: str) -> Dict[str, float]:
    """Read scales; refuses those that were tuned on the set about to be decoded."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        scales = {name: float(value) for name, value in content["scales"].items()}
        tuned_on = content["tuned_on"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not a file of score scales ({error})") from error
    if tuned_on == test_set and test_set.startswith("test"):
        raise InputError(f"{path}: tuned on {tuned_on} itself; tune on dev")
    return scales
