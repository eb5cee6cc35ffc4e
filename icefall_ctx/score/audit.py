"""What the history does for one model: error rates under every history, and whether they differ.

The same test set, decoded with each history, is cut into slices (all, each side, each position in
the conversation).  Every slice has rates with intervals over conversations, and the paired
difference of each history to ``none`` and to a baseline model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from icefall_ctx.score.bootstrap import Interval, PairedDifference, bootstrap_interval
from icefall_ctx.score.conversation import paired_bootstrap
from icefall_ctx.score.report import counts_to_dict, finite, interval_to_dict, percent
from icefall_ctx.score.wer import (
    ErrorCounts,
    Utterance,
    conversation_totals,
    count_utterance,
    group_name,
    total,
)

HISTORIES = ("none", "hyp", "ref", "shuffled")
BASELINE = "baseline"
LEAN_LIMIT = 0.03  # relative; a history of other people may cost so much and no more
SLICES = ("side", "turn")


@dataclass(frozen=True)
class Cell:
    """One history in one slice.

    Attributes:
      interval: of the rate, conversations resampled.
      against: the paired difference to ``none`` and to ``baseline``, where these were decoded.
    """

    counts: ErrorCounts
    interval: Interval
    against: Dict[str, PairedDifference] = field(default_factory=dict)


@dataclass(frozen=True)
class Audit:
    """Attributes:
    name: of the test set.
    unit: of the error rate.
    cells: (kind, slice) -> history -> cell; ``("all", "all")`` comes first.
    """

    name: str
    unit: str
    cells: Dict[Tuple[str, str], Dict[str, Cell]]

    @property
    def overall(self) -> Dict[str, Cell]:
        return self.cells["all", "all"]

    @property
    def lean(self) -> Optional[float]:
        """How much worse than without any history the shuffled one is, relative; None if one of
        the two was not decoded, or without a history nothing was wrong."""
        return relative_change(self.overall, "none", "shuffled")

    @property
    def leans_too_much(self) -> bool:
        return self.lean is not None and self.lean > LEAN_LIMIT + 1e-9  # exactly 3 % may pass

    @property
    def kept(self) -> Optional[float]:
        """The share of what references gain over ``none`` that own hypotheses gain as well."""
        return kept_share(self.overall)

    def to_dict(self) -> Dict[str, Any]:
        """Plain values; rates that are not finite become None."""
        return {
            "name": self.name,
            "unit": self.unit,
            "shuffled_against_none_relative": self.lean,
            "leans_too_much": self.leans_too_much,
            "limit": LEAN_LIMIT,
            "hyp_keeps_of_ref_gain": self.kept,
            "slices": [
                {
                    "kind": kind,
                    "name": name,
                    "histories": {history: _cell_dict(cell) for history, cell in row.items()},
                }
                for (kind, name), row in self.cells.items()
            ],
        }


def relative_change(cells: Mapping[str, Cell], old: str, new: str) -> Optional[float]:
    """``rate(new) / rate(old) - 1``; None if one is missing or the old rate is 0 or not defined."""
    if old not in cells or new not in cells:
        return None
    before, after = cells[old].counts.rate, cells[new].counts.rate
    if not (math.isfinite(before) and math.isfinite(after)) or before == 0:
        return None
    return after / before - 1


def kept_share(cells: Mapping[str, Cell]) -> Optional[float]:
    """(none - hyp) / (none - ref); None where references gain nothing."""
    if not {"none", "hyp", "ref"} <= set(cells):
        return None
    none, hyp, ref = (cells[history].counts.rate for history in ("none", "hyp", "ref"))
    return (none - hyp) / (none - ref) if none > ref else None


def audit(
    decoded: Mapping[str, Sequence[Utterance]],
    *,
    name: str = "",
    unit: str = "word",
    resamples: int = 2000,
    seed: int = 0,
) -> Audit:
    """Compare the outputs for one test set.

    Args:
      decoded: by history (any of :data:`HISTORIES`) and, for another model, :data:`BASELINE`;
        words already in the unit and under the rules that count.
      resamples: of conversations, for intervals and p-values.

    Raises:
      InputError: outputs of different utterances or references.
    """
    order = [h for h in (BASELINE, *HISTORIES) if h in decoded]
    chosen = {history: decoded[history] for history in order}
    cells = {}
    for kind, part, ids in _slices(chosen[order[0]]):
        rows = {h: [u for u in utterances if u.utt_id in ids] for h, utterances in chosen.items()}
        cells[kind, part] = _cells(rows, resamples, seed)
    return Audit(name, unit, cells)


def _slices(utterances: Sequence[Utterance]) -> Iterator[Tuple[str, str, set]]:
    yield "all", "all", {u.utt_id for u in utterances}
    for kind in SLICES:
        groups: Dict[str, set] = {}
        for utterance in sorted(utterances, key=lambda u: u.turn):
            groups.setdefault(group_name(utterance, kind), set()).add(utterance.utt_id)
        names = sorted(groups) if kind != "turn" else list(groups)
        if len(names) > 1:  # a single group is the whole set
            yield from ((kind, name or "unknown", groups[name]) for name in names)


def _cells(
    rows: Mapping[str, List[Utterance]], resamples: int, seed: int
) -> Dict[str, Cell]:
    cells = {}
    for history, utterances in rows.items():
        counts = {u.utt_id: count_utterance(u) for u in utterances}
        interval = bootstrap_interval(
            *conversation_totals(utterances, counts), resamples=resamples, seed=seed
        )
        against = {
            other: paired_bootstrap(rows[other], utterances, resamples=resamples, seed=seed)
            for other in (BASELINE, "none")
            if other in rows and other != history and history != BASELINE
        }
        cells[history] = Cell(total(counts.values()), interval, against)
    return cells


def _cell_dict(cell: Cell) -> Dict[str, Any]:
    result = counts_to_dict(cell.counts)
    result["interval"] = _bounds(cell.interval)
    result["against"] = {
        other: {
            "difference": finite(d.difference),
            "interval": _bounds(d.interval),
            "p_value": d.p_value,
        }
        for other, d in cell.against.items()
    }
    return result


def _bounds(interval: Interval) -> List[Optional[float]]:
    return interval_to_dict(interval)["bounds"]


def audit_text(result: Audit, rate: str = "WER") -> str:
    """The audit as tables for people, rates in percent, and what follows from them."""
    histories = list(result.overall)
    title = f"{result.name}: " if result.name else ""
    lines = [f"{title}{rate} in %, [95 % intervals over conversations]", ""]
    lines.append(_row("", "utts", "words", [f"{h:^20}" for h in histories]))
    lines += [
        _row(_label(key), *_sizes(cells), [_rate_text(cells[h]) for h in histories])
        for key, cells in result.cells.items()
    ]
    for other in (BASELINE, "none"):
        lines += _difference_lines(result, other)
    return "\n".join(lines + [""] + _verdicts(result)) + "\n"


def _label(key: Tuple[str, str]) -> str:
    kind, name = key
    return name if kind == "all" else f"{kind} {name}"


def _row(label: str, utterances: Any, words: Any, fields: Sequence[str]) -> str:
    return f"{label:<18}{utterances:>6}{words:>7}  " + "  ".join(fields).rstrip()


def _sizes(cells: Mapping[str, Cell]) -> Tuple[int, int]:
    counts = next(iter(cells.values())).counts
    return counts.utterances, counts.ref_words


def _rate_text(cell: Cell) -> str:
    low, high, _ = cell.interval
    return f"{percent(cell.counts.rate):>6} {f'[{percent(low)}, {percent(high)}]':<13}".ljust(20)


def _difference_lines(result: Audit, other: str) -> List[str]:
    compared = [h for h, cell in result.overall.items() if other in cell.against]
    if not compared:
        return []
    what = "the same model without history" if other == "none" else "the baseline"
    lines = ["", f"points against {what}, paired: difference [95 % interval] p", ""]
    lines.append(_row("", "", "", [f"{h:^27}" for h in compared]))
    for key, cells in result.cells.items():
        texts = [_difference_text(cells[h].against[other]) for h in compared]
        lines.append(_row(_label(key), "", "", texts))
    return lines


def _difference_text(difference: PairedDifference) -> str:
    low, high, _ = difference.interval
    interval = f"[{100 * low:+.2f}, {100 * high:+.2f}]"
    return f"{100 * difference.difference:+6.2f} {interval} {difference.p_value:.3f}".ljust(27)


def _verdicts(result: Audit) -> List[str]:
    lines = [_lean_verdict(result)] if result.lean is not None else []
    for old in (BASELINE, "none"):
        change = relative_change(result.overall, old, "hyp")
        if change is not None:
            lines.append(f"hyp against {old}: {100 * change:+.1f} % relative")
    if result.kept is not None:
        lines.append(f"own hypotheses keep {100 * result.kept:.0f} % of what references gain")
    return lines


def _lean_verdict(result: Audit) -> str:
    changes = {
        name: relative_change(cells, "none", "shuffled")
        for (kind, name), cells in result.cells.items()
        if kind == "side"
    }
    sides = ", ".join(f"{name} {100 * c:+.1f} %" for name, c in changes.items() if c is not None)
    verdict = (
        f"leans on its history too much (more than {100 * LEAN_LIMIT:g} %); "
        "train with --history-noise and --history-drop"
        if result.leans_too_much
        else f"does not lean on its history too much (at most {100 * LEAN_LIMIT:g} %)"
    )
    by_side = f" ({sides})" if sides else ""
    return f"shuffled against none: {100 * result.lean:+.1f} % relative{by_side}: {verdict}"
