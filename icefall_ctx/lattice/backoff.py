"""G as a deterministic scorer: a word costs its longest known n-gram, else the backoffs.

k2's own intersection takes the ``#0`` arcs of G as ordinary epsilons: then every backoff also
competes with the explicit n-gram, probabilities become maxima, and on a flat lattice every
epsilon is a place to back off (millions of arcs).  Read as failure arcs the same G gives the
n-gram model's exact probabilities and one arc for one arc and history.
"""

from __future__ import annotations

from typing import Dict, Iterable, Tuple

import numpy as np

from icefall_ctx.lattice.k2_import import k2

IMPOSSIBLE = -1e10  # a word that G does not know; finite, so that sums stay defined


class BackoffG:
    """Scores word sequences with the acceptor that ``G_4_gram.pt`` holds."""

    start = 0

    def __init__(self, g: k2.Fsa):
        arcs = g.arcs.values().cpu().numpy()
        scores = g.scores.cpu().numpy()
        order = np.lexsort((arcs[:, 2], arcs[:, 0]))
        self._destination = arcs[order, 1]
        self._label = arcs[order, 2]
        self._score = scores[order].astype(np.float64)
        num_states = int(arcs[:, :2].max()) + 1
        self._first = np.searchsorted(arcs[order, 0], np.arange(num_states + 1))
        self._memo: Dict[Tuple[int, int], Tuple[int, float]] = {}
        self.word_fingerprint = getattr(g, "word_fingerprint", "")

    def advance(self, state: int, word: int) -> Tuple[int, float]:
        """State after ``word`` and its log-probability (natural logarithm).

        ``word`` -1 ends the sentence.
        """
        key = (state, word)
        if key not in self._memo:
            self._memo[key] = self._search(state, word)
        return self._memo[key]

    def _search(self, state: int, word: int) -> Tuple[int, float]:
        total = 0.0
        while True:
            arc = self._find(state, word)
            if arc >= 0:
                return int(self._destination[arc]), total + self._score[arc]
            arc = self._find(state, 0)
            if arc < 0:
                return self.start, IMPOSSIBLE
            state, total = int(self._destination[arc]), total + self._score[arc]

    def _find(self, state: int, label: int) -> int:
        low, high = self._first[state], self._first[state + 1]
        arc = low + int(np.searchsorted(self._label[low:high], label))
        return arc if arc < high and self._label[arc] == label else -1

    def score(self, words: Iterable[int]) -> float:
        """``log P(words </s>)``, natural logarithm; below -1e9 if G lacks a word."""
        state, total = self.start, 0.0
        for word in [*words, -1]:
            state, score = self.advance(state, word)
            total += score
        return total
