"""cpWER: concatenated minimum-permutation word error rate of recordings with several speakers.

For each recording the words of every reference speaker, and of every hypothesis speaker, are
concatenated in order of time; speakers are matched so that the total distance is smallest
(Watanabe et al., CHiME-6, 2020).  A speaker without partner counts as deleted or inserted.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Dict, List, Sequence, Tuple

import kaldialign
import numpy as np

from icefall_ctx.formats.stm import StmSegment
from icefall_ctx.score.wer import ErrorCounts, align, count_pairs

Streams = Dict[str, List[str]]  # speaker -> words


def speaker_streams(segments: Sequence[StmSegment]) -> Dict[str, Streams]:
    """Recording -> speaker -> words, in order of the segments' starts."""
    recordings: Dict[str, Streams] = defaultdict(lambda: defaultdict(list))
    for segment in sorted(segments, key=lambda s: s.start):
        recordings[segment.recording][segment.speaker] += segment.text.split()
    return {name: dict(streams) for name, streams in recordings.items()}


def cpwer(ref: Streams, hyp: Streams) -> Tuple[ErrorCounts, List[Tuple[str, str]]]:
    """Counts of one recording, and the pairs of speakers, ``""`` for a speaker without partner."""
    size = max(len(ref), len(hyp))
    refs = list(ref) + [""] * (size - len(ref))
    hyps = list(hyp) + [""] * (size - len(hyp))
    costs = np.zeros((size, size))
    for i, ref_name in enumerate(refs):
        for j, hyp_name in enumerate(hyps):
            distance = kaldialign.edit_distance(ref.get(ref_name, []), hyp.get(hyp_name, []))
            costs[i, j] = distance["total"]
    pairs = [(refs[i], hyps[j]) for i, j in enumerate(cheapest_assignment(costs))]
    counts = ErrorCounts()
    for ref_name, hyp_name in pairs:
        counts += count_pairs(align(ref.get(ref_name, []), hyp.get(hyp_name, [])))
    return counts, pairs


def score_cpwer(
    ref: Sequence[StmSegment], hyp: Sequence[StmSegment]
) -> Dict[str, Tuple[ErrorCounts, List[Tuple[str, str]]]]:
    """:func:`cpwer` of every recording that either side has."""
    ref_streams, hyp_streams = speaker_streams(ref), speaker_streams(hyp)
    names = sorted({*ref_streams, *hyp_streams})
    return {name: cpwer(ref_streams.get(name, {}), hyp_streams.get(name, {})) for name in names}


def cheapest_assignment(costs: np.ndarray) -> List[int]:
    """Column of each row, each used once, of least total cost; ``costs`` is square (n, n).

    The Hungarian method by shortest augmenting paths, O(n^3): row after row finds the cheapest path
    to a free column under the reduced costs ``costs - row_price - column_price``.
    """
    size = len(costs)
    row_price, column_price = np.zeros(size + 1), np.zeros(size + 1)
    row_of = np.zeros(size + 1, dtype=int)  # column -> row, both from 1; column 0 is the root
    for row in range(1, size + 1):
        row_of[0], column = row, 0
        shortest = np.full(size + 1, np.inf)
        came_from = np.zeros(size + 1, dtype=int)
        done = np.zeros(size + 1, dtype=bool)
        while row_of[column]:
            done[column] = True
            here = row_of[column]
            reduced = costs[here - 1] - row_price[here] - column_price[1:]
            better = ~done[1:] & (reduced < shortest[1:])
            shortest[1:][better], came_from[1:][better] = reduced[better], column
            column = 1 + int(np.argmin(np.where(done[1:], np.inf, shortest[1:])))
            step = shortest[column]
            row_price[row_of[done]] += step
            column_price[done] -= step
            shortest[~done] -= step
        while column:
            row_of[column] = row_of[came_from[column]]
            column = came_from[column]
    columns = np.zeros(size, dtype=int)
    columns[row_of[1:] - 1] = np.arange(size)
    return columns.tolist()
