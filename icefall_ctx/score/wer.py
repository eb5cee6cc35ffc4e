"""Word alignments and error counts: one utterance, a set, and every group within the set.

A rate is ``errors / reference words``; it is ``nan`` where there are no reference words and no
errors, and ``inf`` where words were inserted into nothing, so that neither is taken for a result.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import kaldialign

from icefall_ctx.score.bootstrap import Interval, bootstrap_interval

EPS = ""  # words come from str.split and are never empty
Pair = Tuple[str, str]  # (reference word or EPS, hypothesis word or EPS)
GROUPINGS = ("conversation", "speaker", "side", "turn")
TURN_BUCKETS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 9), (10, 19), (20, None))


@dataclass
class Utterance:
    """What was said and what was recognised.  ``hyp=None``: the output lacks this utterance."""

    utt_id: str
    ref: List[str]
    hyp: Optional[List[str]]
    conv_id: str = ""
    speaker: str = ""
    side: str = ""
    turn: int = -1  # position in the conversation from 0; -1: unknown
    snr: Optional[float] = None  # dB


@dataclass(frozen=True)
class ErrorCounts:
    ref_words: int = 0
    ins: int = 0
    dels: int = 0
    subs: int = 0
    utterances: int = 0
    wrong_utterances: int = 0  # utterances with at least one error
    missing: int = 0  # utterances without any output, scored as all deleted

    @property
    def errors(self) -> int:
        return self.ins + self.dels + self.subs

    @property
    def correct(self) -> int:
        return self.ref_words - self.dels - self.subs

    @property
    def rate(self) -> float:
        """Errors per reference word, ``nan`` for 0 / 0 and ``inf`` for n / 0."""
        if self.ref_words:
            return self.errors / self.ref_words
        return math.inf if self.errors else math.nan

    def __add__(self, other: ErrorCounts) -> ErrorCounts:
        return ErrorCounts(*(a + b for a, b in zip(self.as_tuple(), other.as_tuple())))

    def as_tuple(self) -> Tuple[int, ...]:
        return (
            self.ref_words,
            self.ins,
            self.dels,
            self.subs,
            self.utterances,
            self.wrong_utterances,
            self.missing,
        )


class Group(NamedTuple):
    kind: str  # one of GROUPINGS
    name: str  # "" where the utterances do not say


Aligner = Callable[[Sequence[str], Sequence[str]], List[Pair]]


def align(ref: Sequence[str], hyp: Sequence[str]) -> List[Pair]:
    """Pairs of a Levenshtein alignment, with :data:`EPS` for insertions and deletions."""
    return kaldialign.align(list(ref), list(hyp), EPS)


def count_pairs(pairs: Iterable[Pair], *, missing: bool = False) -> ErrorCounts:
    """Counts of one utterance from its alignment."""
    ref_words = ins = dels = subs = 0
    for ref, hyp in pairs:
        ref_words += ref != EPS
        ins += ref == EPS and hyp != EPS
        dels += hyp == EPS and ref != EPS
        subs += ref != hyp and ref != EPS and hyp != EPS
    wrong = int(ins + dels + subs > 0)
    return ErrorCounts(ref_words, ins, dels, subs, 1, wrong, int(missing))


def count_utterance(utterance: Utterance, aligner: Aligner = align) -> ErrorCounts:
    pairs = aligner(utterance.ref, utterance.hyp or [])
    return count_pairs(pairs, missing=utterance.hyp is None)


def total(counts: Iterable[ErrorCounts]) -> ErrorCounts:
    return sum(counts, ErrorCounts())


def turn_bucket(turn: int) -> str:
    """``0``, ``1``, ``2``, ``3-4``, ``5-9``, ``10-19`` or ``20+``; empty for an unknown turn."""
    for first, last in TURN_BUCKETS:
        if last is None or turn <= last:
            if turn < first:
                break
            return f"{first}+" if last is None else f"{first}-{last}" if last > first else f"{turn}"
    return ""


def group_name(utterance: Utterance, kind: str) -> str:
    if kind == "turn":
        return turn_bucket(utterance.turn)
    return {
        "conversation": utterance.conv_id,
        "speaker": utterance.speaker,
        "side": utterance.side,
    }[kind]


@dataclass(frozen=True)
class Scores:
    """Counts of a set, of each utterance, and of each group that the utterances name."""

    total: ErrorCounts
    per_utterance: Dict[str, ErrorCounts]
    groups: Dict[str, Dict[str, ErrorCounts]]  # kind -> name -> counts
    interval: Optional[Interval] = None  # of total.rate, resampling conversations
    alignments: Dict[str, List[Pair]] = field(default_factory=dict, repr=False)


def score_utterances(
    utterances: Sequence[Utterance],
    *,
    by: Sequence[str] = GROUPINGS,
    bootstrap: int = 1000,
    seed: int = 0,
    aligner: Aligner = align,
) -> Scores:
    """Score a set, every group of the kinds in ``by``, and the interval of the total.

    Args:
      bootstrap: how many times conversations are resampled for the 95 % interval; 0: no interval.
        An utterance without a conversation counts as a conversation of its own.
      aligner: :func:`align` or :func:`icefall_ctx.score.sclite.align`.
    """
    alignments = {u.utt_id: aligner(u.ref, u.hyp or []) for u in utterances}
    counts = {
        u.utt_id: count_pairs(alignments[u.utt_id], missing=u.hyp is None) for u in utterances
    }
    return collect_scores(utterances, counts, alignments, by=by, bootstrap=bootstrap, seed=seed)


def collect_scores(
    utterances: Sequence[Utterance],
    counts: Dict[str, ErrorCounts],
    alignments: Dict[str, List[Pair]],
    *,
    by: Sequence[str] = GROUPINGS,
    bootstrap: int = 1000,
    seed: int = 0,
) -> Scores:
    """Sum the counts of utterances, however they were made, into :class:`Scores`."""
    groups: Dict[str, Dict[str, ErrorCounts]] = {}
    for kind in by:
        sums: Dict[str, ErrorCounts] = defaultdict(ErrorCounts)
        for utterance in utterances:
            sums[group_name(utterance, kind)] += counts[utterance.utt_id]
        if set(sums) - {""}:
            groups[kind] = dict(sums)
    interval = None
    if bootstrap > 0 and utterances:
        errors, words = conversation_totals(utterances, counts)
        interval = bootstrap_interval(errors, words, resamples=bootstrap, seed=seed)
    return Scores(total(counts.values()), counts, groups, interval, alignments)


def conversation_key(utterance: Utterance) -> Tuple[str, str]:
    """The unit that is resampled: a conversation, or a lone utterance of none."""
    return (utterance.conv_id, "" if utterance.conv_id else utterance.utt_id)


def conversation_totals(
    utterances: Sequence[Utterance], counts: Dict[str, ErrorCounts]
) -> Tuple[List[int], List[int]]:
    """Errors and reference words of each conversation, in order of their keys."""
    sums: Dict[Tuple[str, str], List[int]] = defaultdict(lambda: [0, 0])
    for utterance in utterances:
        row = sums[conversation_key(utterance)]
        row[0] += counts[utterance.utt_id].errors
        row[1] += counts[utterance.utt_id].ref_words
    rows = [sums[key] for key in sorted(sums)]
    return [row[0] for row in rows], [row[1] for row in rows]
