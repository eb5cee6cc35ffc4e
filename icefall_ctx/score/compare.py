"""Systems trained with several seeds against a baseline, from their result files.

Each seed of each system gave one output of the same test set.  A rate is the mean over the seeds;
its spread is that of the seeds.  Differences to the baseline are paired and their intervals come
from resampled conversations: a draw takes the same conversations for both systems and all seeds,
so they say what another test set could give, and the spread what another seed could.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from icefall_ctx.errors import InputError
from icefall_ctx.score.bootstrap import PairedDifference, paired_difference
from icefall_ctx.score.grouping import ALL, Groups
from icefall_ctx.score.report import finite, interval_to_dict, percent
from icefall_ctx.score.units import RATE_NAMES
from icefall_ctx.score.wer import (
    ErrorCounts,
    Utterance,
    conversation_totals,
    count_utterance,
    total,
)

MIN_CONVERSATIONS = 5  # of fewer, resamples are too much alike for an interval


@dataclass(frozen=True)
class Run:
    """One output of the test set, under the rules and in the unit that count."""

    source: str  # file, for messages
    utterances: List[Utterance]


@dataclass(frozen=True)
class System:
    name: str
    runs: List[Run]  # one a seed


@dataclass(frozen=True)
class Cell:
    """One system in one group.

    Attributes:
      rates: of each seed.
      words: of the reference, once.
      conversations: how many have utterances in the group.
      difference: of the mean rate to that of the baseline; None for the baseline itself.  Without
        interval and p-value (``nan``) for fewer than :data:`MIN_CONVERSATIONS`.
      relative: that difference over the baseline's rate; None where this is 0 or not defined.
    """

    rates: List[float]
    words: int
    conversations: int
    difference: Optional[PairedDifference] = None
    relative: Optional[float] = None

    @property
    def mean(self) -> float:
        return fmean(self.rates)

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds; ``nan`` for one."""
        return stdev(self.rates) if len(self.rates) > 1 else math.nan

    def to_dict(self) -> Dict[str, Any]:
        """Plain values; rates that are not finite become None."""
        result: Dict[str, Any] = {
            "mean": finite(self.mean),
            "rates": [finite(rate) for rate in self.rates],
            "deviation": finite(self.deviation),
            "ref_words": self.words,
            "conversations": self.conversations,
        }
        if self.difference is not None:
            result["against_baseline"] = {
                "difference": finite(self.difference.difference),
                "interval": interval_to_dict(self.difference.interval),
                "p_value": finite(self.difference.p_value),
                "relative": self.relative,
            }
        return result


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    rows: system -> group -> cell; the baseline comes first, and the group of all utterances.
    groups: what the groups are of, and who is in none.
    """

    name: str  # of the test set
    unit: str
    rows: Dict[str, Dict[str, Cell]]
    groups: Groups
    sources: Dict[str, List[str]] = field(default_factory=dict)  # files of each system

    @property
    def baseline(self) -> str:
        return next(iter(self.rows))

    @property
    def conversations(self) -> int:
        return self.rows[self.baseline][ALL].conversations

    def to_dict(self) -> Dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "by": self.groups.kind,
            "in_no_group": self.groups.left_out,
            "conversations": self.conversations,
            "baseline": self.baseline,
            "systems": [
                {
                    "name": system,
                    "files": self.sources[system],
                    "groups": {group: cell.to_dict() for group, cell in row.items()},
                }
                for system, row in self.rows.items()
            ],
        }


def compare(
    systems: Sequence[System],
    groups: Groups,
    *,
    name: str = "",
    unit: str = "word",
    resamples: int = 10000,
    seed: int = 0,
) -> Comparison:
    """Rates of every system in every group, and their differences to the first system.

    Args:
      groups: of the utterances of the first run, which also names their conversations.

    Raises:
      InputError: two systems of one name, or runs of different utterances or references.
    """
    names = [system.name for system in systems]
    for number, system in enumerate(names):
        if system in names[:number]:
            raise InputError(f"two systems are named '{system}'; name one LABEL=FOLDER,...")
    for system in systems:
        for run in system.runs:
            check_same(systems[0].runs[0], run)
    tables = {system.name: _SystemSums(system, groups) for system in systems}
    baseline = tables[names[0]]
    rows = {
        name: {
            group: table.cell(group, None if table is baseline else baseline, resamples, seed)
            for group in groups.members
        }
        for name, table in tables.items()
    }
    sources = {system.name: [run.source for run in system.runs] for system in systems}
    return Comparison(name, unit, rows, groups, sources)


def check_same(first: Run, other: Run) -> None:
    """Raises:
    InputError: not the same utterances with the same references.
    """
    refs = {utterance.utt_id: utterance.ref for utterance in other.utterances}
    for utterance in first.utterances:
        ref = refs.pop(utterance.utt_id, None)
        if ref is None:
            raise InputError(
                f"{other.source}: {utterance.utt_id} is missing, which {first.source} has; "
                "decode both on the same cuts"
            )
        if ref != utterance.ref:
            raise InputError(
                f"{other.source}: {utterance.utt_id} has another reference than in "
                f"{first.source}; the same --normalizer for both may help"
            )
    if refs:
        raise InputError(f"{other.source}: {next(iter(refs))} is not in {first.source}")


class _Sums(NamedTuple):
    rates: List[float]  # of each run
    errors: List[float]  # of each conversation, the mean over the runs
    words: List[int]  # of each conversation


class _SystemSums:
    """Sums of one system in every group."""

    def __init__(self, system: System, groups: Groups) -> None:
        counts = [{u.utt_id: count_utterance(u) for u in run.utterances} for run in system.runs]
        self.sums = {
            group: _sums(members, counts) for group, members in groups.members.items()
        }

    def cell(
        self, group: str, baseline: Optional[_SystemSums], resamples: int, seed: int
    ) -> Cell:
        """With the difference to ``baseline``, where there is one."""
        sums = self.sums[group]
        size = sum(sums.words), len(sums.words)
        if baseline is None:
            return Cell(sums.rates, *size)
        other = baseline.sums[group]
        difference = paired_difference(
            other.errors, sums.errors, sums.words, resamples=resamples, seed=seed
        )
        if len(sums.words) < MIN_CONVERSATIONS:
            unknown = difference.interval._replace(low=math.nan, high=math.nan)
            difference = difference._replace(interval=unknown, p_value=math.nan)
        before = fmean(other.rates)
        relative = difference.difference / before if math.isfinite(before) and before else None
        return Cell(sums.rates, *size, difference, relative)


def _sums(members: Sequence[Utterance], counts: Sequence[Mapping[str, ErrorCounts]]) -> _Sums:
    totals = [conversation_totals(members, run) for run in counts]
    errors = [fmean(column) for column in zip(*(run_errors for run_errors, _ in totals))]
    rates = [total(run[u.utt_id] for u in members).rate for run in counts]
    return _Sums(rates, errors, totals[0][1])


# ---- as text -----------------------------------------------------------------------------------


def comparison_text(result: Comparison) -> str:
    """Two Markdown tables: rates, and differences to the baseline; then who is in no group."""
    title = f"{result.name}: " if result.name else ""
    rate = RATE_NAMES[result.unit]
    spread = " (lowest to highest seed)" if _has_spread(result) else ""
    lines = [f"{title}{rate} in %, mean over seeds{spread}", ""]
    columns = [
        f"{group}, {cell.words} words, {cell.conversations} conv."
        for group, cell in result.rows[result.baseline].items()
    ]
    lines += _table(["system", "seeds", *columns], _rate_rows(result))
    lines += [
        "",
        f"Points against {result.baseline} [95 % interval over {result.conversations} "
        "conversations, all seeds drawn together], relative change, paired p",
        "",
        *_table(["system", *result.groups.members], _difference_rows(result)),
    ]
    if result.groups.left_out:
        lines += ["", f"In no column but the first: {result.groups.left_out}"]
    return "\n".join(lines) + "\n"


def _has_spread(result: Comparison) -> bool:
    return any(len(cell.rates) > 1 for row in result.rows.values() for cell in row.values())


def _rate_rows(result: Comparison) -> List[List[str]]:
    return [
        [name, str(len(row[ALL].rates)), *(_rate_text(cell) for cell in row.values())]
        for name, row in result.rows.items()
    ]


def _rate_text(cell: Cell) -> str:
    if len(cell.rates) == 1:
        return percent(cell.mean)
    return f"{percent(cell.mean)} ({percent(min(cell.rates))} to {percent(max(cell.rates))})"


def _difference_rows(result: Comparison) -> List[List[str]]:
    return [
        [name, *(_difference_text(cell) for cell in row.values())]
        for name, row in result.rows.items()
        if name != result.baseline
    ]


def _difference_text(cell: Cell) -> str:
    low, high, _ = cell.difference.interval
    relative = "n/a" if cell.relative is None else f"{100 * cell.relative:+.1f} %"
    points = f"{100 * cell.difference.difference:+.2f}"
    if math.isnan(cell.difference.p_value):
        return f"{points} [too few conversations], {relative}"
    interval = f"[{100 * low:+.2f}, {100 * high:+.2f}]"
    return f"{points} {interval}, {relative}, p = {cell.difference.p_value:.4f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> List[str]:
    """Markdown, padded so that it reads well as it stands; numbers to the right."""
    cells = [[field.replace("|", "\\|") for field in row] for row in (head, *rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    marks = ["-" * max(3, widths[0]), *("-" * (max(3, w) - 1) + ":" for w in widths[1:])]
    lines = [_padded(cells[0], widths), "| " + " | ".join(marks) + " |"]
    return lines + [_padded(row, widths) for row in cells[1:]]


def _padded(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(max(3, widths[0]))
    others = [field.rjust(max(3, width)) for field, width in zip(row[1:], widths[1:])]
    return "| " + " | ".join([first, *others]) + " |"
