"""Alignment as NIST's sclite does it, for plain word lists and for networks.

sclite minimises a weighted cost, substitution 4, insertion and deletion 3, so its error counts can
exceed the Levenshtein distance.  Among alignments of equal cost the steps are preferred backwards
from the end in the order match or substitution, insertion, deletion.  Words compare without case.
Checked against sclite 2.10 on thousands of random pairs, see tests/score/test_sclite.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import List, NamedTuple, Sequence, Tuple

import numpy as np

from icefall_ctx.score.network import NULL, Arc, Network, linear, split_optional
from icefall_ctx.score.wer import EPS, Pair


class Costs(NamedTuple):
    substitution: float = 4
    gap: float = 3  # an insertion or a deletion
    optional_gap: float = 2  # of a word that may be left out
    null: float = 0.001  # an arc without a word: real words win a tie


SCLITE = Costs()
LEVENSHTEIN = Costs(substitution=3, gap=3)


def align(ref: Sequence[str], hyp: Sequence[str]) -> List[Pair]:
    """Align plain words with sclite's weights; case does not count, matches keep the ref's form."""
    lower_ref, lower_hyp = [w.lower() for w in ref], [w.lower() for w in hyp]
    table = _cost_table(lower_ref, lower_hyp)
    pairs: List[Pair] = []
    i, j = len(ref), len(hyp)
    while i or j:
        here = table[i, j]
        same = i and j and lower_ref[i - 1] == lower_hyp[j - 1]
        if i and j and here == table[i - 1, j - 1] + (0 if same else SCLITE.substitution):
            i, j = i - 1, j - 1
            pairs.append((ref[i], ref[i] if same else hyp[j]))
        elif j and here == table[i, j - 1] + SCLITE.gap:
            j -= 1
            pairs.append((EPS, hyp[j]))
        else:
            i -= 1
            pairs.append((ref[i], EPS))
    return pairs[::-1]


def _cost_table(ref: Sequence[str], hyp: Sequence[str]) -> np.ndarray:
    """Cost of every pair of prefixes (len(ref) + 1, len(hyp) + 1), one vectorised row a word.

    Insertions run along a row: ``D[j] = min_k<=j (entry[k] + gap (j - k))``, a running minimum.
    """
    ids = {word: index for index, word in enumerate({*ref, *hyp})}
    hyp_ids = np.array([ids[word] for word in hyp], dtype=np.int64)
    slope = SCLITE.gap * np.arange(len(hyp) + 1, dtype=np.int32)
    table = np.empty((len(ref) + 1, len(hyp) + 1), dtype=np.int32)
    table[0] = slope
    for i, word in enumerate(ref, start=1):
        entry = table[i - 1] + SCLITE.gap
        diagonal = table[i - 1, :-1] + SCLITE.substitution * (hyp_ids != ids[word])
        np.minimum(entry[1:], diagonal, out=entry[1:])
        table[i] = np.minimum.accumulate(entry - slope) + slope
    return table


class Step(NamedTuple):
    cost: float
    origin: Tuple[int, int]  # (reference node, hypothesis node)
    pair: Pair


class _Weights:
    """What it costs to read two words against each other, or one against nothing."""

    def __init__(self, costs: Costs, optional: bool, fragments: bool) -> None:
        self.costs, self.optional, self.fragments = costs, optional, fragments
        self.both = lru_cache(maxsize=None)(self.both)  # the same words meet again and again
        self.alone = lru_cache(maxsize=None)(self.alone)

    def _bare(self, word: str) -> Tuple[str, bool]:
        return split_optional(word) if self.optional else (word, False)

    def both(self, ref: str, hyp: str) -> Tuple[float, Pair]:
        matches = self._matches(self._bare(ref)[0].lower(), self._bare(hyp)[0].lower())
        return (0, (ref, ref)) if matches else (self.costs.substitution, (ref, hyp))

    def _matches(self, ref: str, hyp: str) -> bool:
        """Equal, or a fragment (``th-``) and a word that begins, or ends, with it."""
        if ref == hyp or not self.fragments:
            return ref == hyp
        part, whole = (ref, hyp) if _is_fragment(ref) else (hyp, ref)
        return (part.endswith("-") and whole.startswith(part[:-1])) or (
            part.startswith("-") and whole.endswith(part[1:])
        )

    def alone(self, word: str, is_ref: bool) -> Tuple[float, Pair]:
        """A word against nothing; an optional one counts as correct, as sclite -D does."""
        if word == NULL:
            return self.costs.null, (EPS, EPS)
        if self._bare(word)[1]:
            return self.costs.optional_gap, (word, word)
        return self.costs.gap, ((word, EPS) if is_ref else (EPS, word))


def _is_fragment(word: str) -> bool:
    return word.startswith("-") or word.endswith("-")


def align_networks(
    ref: Network,
    hyp: Network,
    *,
    costs: Costs = SCLITE,
    optional: bool = True,
    fragments: bool = True,
) -> List[Pair]:
    """The cheapest pair of paths and their alignment.

    Args:
      optional: ``(a)`` may be left out, and counts as correct (sclite -D).
      fragments: ``th-`` is correct for any word that begins with "th", ``-day`` for any that ends
        with "day" (sclite -F).

    Returns:
      Pairs as :func:`align` gives them; what counts as correct has the same word on both sides.
    """
    weights = _Weights(costs, optional, fragments)
    table: List[List[Step]] = []
    for i, ref_arcs in enumerate(ref.arcs_into):
        table.append([])
        for j, hyp_arcs in enumerate(hyp.arcs_into):
            table[i].append(_best_step(table, (i, j), ref_arcs, hyp_arcs, weights))
    return _trace(table)


_NOWHERE = Step(float("inf"), (0, 0), (EPS, EPS))
_TIE = 1e-6


def _best_step(
    table: List[List[Step]],
    node: Tuple[int, int],
    ref_arcs: Sequence[Arc],
    hyp_arcs: Sequence[Arc],
    weights: _Weights,
) -> Step:
    """The cheapest way into a pair of nodes; of equal ones the first in sclite's order."""
    i, j = node
    if (i, j) == (0, 0):
        return Step(0.0, (0, 0), (EPS, EPS))
    if (i and not ref_arcs) or (j and not hyp_arcs):
        return _NOWHERE  # inner end of an alternative, now joined into another node
    best = _NOWHERE
    for ref_arc in ref_arcs or [None]:
        for hyp_arc in hyp_arcs or [None]:
            for origin, (cost, pair) in _steps(node, ref_arc, hyp_arc, weights):
                cost += table[origin[0]][origin[1]].cost
                if cost < best.cost - _TIE:
                    best = Step(cost, origin, pair)
    return best


def _steps(node, ref_arc, hyp_arc, weights: _Weights):
    """Match or substitution, insertion, deletion along one pair of arcs."""
    i, j = node
    if ref_arc and hyp_arc and ref_arc.word != NULL and hyp_arc.word != NULL:
        yield (ref_arc.source, hyp_arc.source), weights.both(ref_arc.word, hyp_arc.word)
    if hyp_arc:
        yield (i, hyp_arc.source), weights.alone(hyp_arc.word, False)
    if ref_arc:
        yield (ref_arc.source, j), weights.alone(ref_arc.word, True)


def _trace(table: List[List[Step]]) -> List[Pair]:
    pairs: List[Pair] = []
    node = (len(table) - 1, len(table[-1]) - 1)
    while node != (0, 0):
        step = table[node[0]][node[1]]
        if step.pair != (EPS, EPS):
            pairs.append(step.pair)
        node = step.origin
    return pairs[::-1]


def align_any(ref: Network, hyp: Network, *, optional: bool = True, fragments: bool = True):
    """:func:`align` where both are plain words, else :func:`align_networks`, same counts."""
    if ref.is_linear and hyp.is_linear:
        ref_words, hyp_words = ref.first_path(), hyp.first_path()
        if not any(_is_special(word) for word in (*ref_words, *hyp_words)):
            return align(ref_words, hyp_words)
    return align_networks(ref, hyp, optional=optional, fragments=fragments)


def _is_special(word: str) -> bool:
    return _is_fragment(word) or split_optional(word)[1]


def align_words_as_networks(
    ref: Sequence[str], hyp: Sequence[str], *, optional: bool = True, fragments: bool = True
) -> List[Pair]:
    """Word lists in which ``(a)`` and ``a-`` keep their meaning."""
    return align_any(linear(ref), linear(hyp), optional=optional, fragments=fragments)
