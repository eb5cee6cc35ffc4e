"""One evaluation, raw and under named rules side by side, as text for people and JSON for tools."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from icefall_ctx.score.bootstrap import Interval, PairedDifference
from icefall_ctx.score.glm import Glm
from icefall_ctx.score.network import has_notation, map_words
from icefall_ctx.score.units import RATE_NAMES, UNITS
from icefall_ctx.score.wer import (
    GROUPINGS,
    Aligner,
    ErrorCounts,
    Scores,
    Utterance,
    align,
    score_utterances,
    total,
)

MAX_ROWS = 40  # rows of one group in the text report; JSON has all


@dataclass(frozen=True)
class Report:
    """Rates of one hypothesis set: as they stand and, where rules were named, under the rules."""

    name: str
    unit: str  # a key of UNITS
    raw: Scores
    rules: str = ""  # name of the rule set; empty: none applied
    alignment: str = "levenshtein"
    official: Optional[Scores] = None  # under the rules

    @property
    def main(self) -> Scores:
        return self.raw if self.official is None else self.official

    def text(self) -> str:
        return "\n".join(_text_lines(self)) + "\n"

    def to_dict(self) -> Dict[str, Any]:
        """Plain values only; rates that are not finite become ``None``."""
        result: Dict[str, Any] = {"name": self.name, "unit": self.unit, "rules": self.rules or None}
        result["alignment"] = self.alignment
        result["raw"] = scores_to_dict(self.raw)
        if self.official is not None:
            result["normalized"] = scores_to_dict(self.official)
        return result

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Rules:
    """A named way of changing texts before they are compared."""

    name: str = ""  # empty: change nothing
    ref: Callable[[str], str] = str
    hyp: Callable[[str], str] = str

    def then(self, other: Rules) -> Rules:
        if not (self.name and other.name):
            return self if self.name else other
        return Rules(
            f"{self.name} + {other.name}",
            lambda text: other.ref(self.ref(text)),
            lambda text: other.hyp(self.hyp(text)),
        )


def normalizer_rules(name: str, *, notation: bool = False) -> Rules:
    """The rule set ``name`` of :mod:`icefall_ctx.text.normalize`, the same on both sides.

    Args:
      notation: leave NIST's marks (braces, slashes, parentheses) in place.

    Raises:
      InputError: no such rule set.
    """
    if not name:
        return Rules()
    from icefall_ctx.text.normalize import get_normalizer

    rules = get_normalizer(name)
    if not notation:
        return Rules(name, rules, rules)

    def change(text: str) -> str:
        return map_words(text, lambda run: rules(run).split())

    return Rules(name, change, change)


def glm_rules(glm: Glm, *, word_by_word: bool = False) -> Rules:
    """A mapping file as rules; ``word_by_word`` for the words of a CTM, as csrfilt does it."""

    def change_hyp(text: str) -> str:
        if word_by_word and not has_notation(text):
            return " ".join(glm.apply_to_words(text.split()))
        return glm.apply(text, hypothesis=True)

    return Rules(f"glm {glm.name}", glm.apply, change_hyp)


def retokenize(
    utterances: Sequence[Utterance],
    *,
    unit: str = "word",
    rules: Rules = Rules(),
    notation: bool = False,
) -> List[Utterance]:
    """The same utterances under ``rules`` and in another unit; ``notation`` as above."""
    split = UNITS[unit]

    def convert(words: Optional[List[str]], change: Callable[[str], str]) -> Optional[List[str]]:
        if words is None:
            return None
        text = change(" ".join(words))
        return map_words(text, split).split() if notation and unit != "word" else split(text)

    return [
        replace(u, ref=convert(u.ref, rules.ref), hyp=convert(u.hyp, rules.hyp)) for u in utterances
    ]


def evaluate(
    utterances: Sequence[Utterance],
    *,
    name: str = "",
    unit: str = "word",
    rules: Union[Rules, str] = Rules(),
    notation: bool = False,
    by: Sequence[str] = GROUPINGS,
    bootstrap: int = 1000,
    seed: int = 0,
    aligner: Aligner = align,
    alignment: str = "levenshtein",
    subsets: Optional[Mapping[str, Sequence[int]]] = None,
) -> Report:
    """Score utterances as they are and, where there are rules, under the rules as well.

    Args:
      rules: a :class:`Rules`, or the name of a normaliser.
      notation: the words hold NIST's notation, which ``aligner`` has to know too.
      alignment: what the report calls the aligner.
      subsets: further groups, name -> indices of utterances; they may overlap.
    """
    if isinstance(rules, str):
        rules = normalizer_rules(rules, notation=notation)
    options = dict(by=by, bootstrap=bootstrap, seed=seed, aligner=aligner)

    def scored(applied: Rules) -> Scores:
        changed = retokenize(utterances, unit=unit, rules=applied, notation=notation)
        return _with_subsets(score_utterances(changed, **options), utterances, subsets or {})

    official = scored(rules) if rules.name else None
    return Report(name, unit, scored(Rules()), rules.name, alignment, official)


def _with_subsets(
    scores: Scores, utterances: Sequence[Utterance], subsets: Mapping[str, Sequence[int]]
) -> Scores:
    if not subsets:
        return scores
    counts = {
        name: total(scores.per_utterance[utterances[i].utt_id] for i in indices)
        for name, indices in subsets.items()
    }
    return replace(scores, groups={"subset": counts, **scores.groups})


def percent(rate: float) -> str:
    """``12.34``, or ``n/a`` where there is no reference word to divide by."""
    return f"{100 * rate:.2f}" if math.isfinite(rate) else "n/a"


def counts_line(counts: ErrorCounts) -> str:
    """``12.34 % (ins 1, del 2, sub 3; 50 words, 6 utterances)``."""
    unit = " %" if math.isfinite(counts.rate) else ""
    missing = f", {counts.missing} without output" if counts.missing else ""
    return (
        f"{percent(counts.rate)}{unit} (ins {counts.ins}, del {counts.dels}, sub {counts.subs}; "
        f"{counts.ref_words} in the reference, {counts.utterances} utterances{missing})"
    )


def interval_text(scores: Scores) -> str:
    """``[11.20, 13.50] 95 % over conversations``; empty without an interval."""
    if scores.interval is None:
        return ""
    low, high, confidence = scores.interval
    return f"[{percent(low)}, {percent(high)}] {100 * confidence:g} % over conversations"


def difference_text(difference: PairedDifference) -> str:
    low, high, confidence = difference.interval
    return (
        f"difference {100 * difference.difference:+.2f} points, "
        f"{100 * confidence:g} % interval [{100 * low:+.2f}, {100 * high:+.2f}], "
        f"p = {difference.p_value:.4f}"
    )


def _text_lines(report: Report) -> List[str]:
    rate = RATE_NAMES[report.unit]
    title = f"{report.name} " if report.name else ""
    title += f"[{report.alignment} alignment] " if report.alignment != "levenshtein" else ""
    lines = [_total_line(f"{title}{rate}, raw", report.raw)]
    if report.official is not None:
        lines.append(_total_line(f"{title}{rate}, rules {report.rules}", report.official))
    for kind, groups in report.main.groups.items():
        raw = report.raw.groups.get(kind, {}) if report.official is not None else None
        lines += ["", *_group_table(kind, groups, raw)]
    return lines


def _total_line(label: str, scores: Scores) -> str:
    return f"{label}: {counts_line(scores.total)} {interval_text(scores)}".rstrip()


def _group_table(
    kind: str, groups: Dict[str, ErrorCounts], raw: Optional[Dict[str, ErrorCounts]]
) -> List[str]:
    names = sorted(groups, key=lambda name: _group_order(kind, name))
    width = max(len(kind), 7, *(len(name) for name in names[:MAX_ROWS]))
    extra = f"{'raw %':>8}" if raw is not None else ""
    lines = [f"{kind:<{width}}{'utts':>7}{'words':>8}{'ins':>6}{'del':>6}{'sub':>6}{'%':>8}{extra}"]
    for name in names[:MAX_ROWS]:
        c = groups[name]
        other = f"{percent(raw[name].rate):>8}" if raw is not None and name in raw else ""
        lines.append(
            f"{name or 'unknown':<{width}}{c.utterances:>7}{c.ref_words:>8}{c.ins:>6}{c.dels:>6}"
            f"{c.subs:>6}{percent(c.rate):>8}{other}"
        )
    if len(names) > MAX_ROWS:
        lines.append(f"... {len(names) - MAX_ROWS} more; the JSON report has all")
    return lines


def _group_order(kind: str, name: str):
    digits = name.rstrip("+").partition("-")[0]
    return (not name, int(digits), "") if kind == "turn" and digits else (not name, 0, name)


def finite(value: float) -> Optional[float]:
    """As JSON takes it: None for what is not a finite number."""
    return value if math.isfinite(value) else None


def interval_to_dict(interval: Interval) -> Dict[str, Any]:
    low, high, confidence = interval
    return {"bounds": [finite(low), finite(high)], "confidence": confidence}


def counts_to_dict(counts: ErrorCounts) -> Dict[str, Any]:
    return {
        "rate": finite(counts.rate),
        "errors": counts.errors,
        "ins": counts.ins,
        "del": counts.dels,
        "sub": counts.subs,
        "ref_words": counts.ref_words,
        "utterances": counts.utterances,
        "wrong_utterances": counts.wrong_utterances,
        "missing": counts.missing,
    }


def scores_to_dict(scores: Scores) -> Dict[str, Any]:
    result: Dict[str, Any] = {"total": counts_to_dict(scores.total)}
    if scores.interval is not None:
        result["interval"] = interval_to_dict(scores.interval)
    result["groups"] = {
        kind: {name: counts_to_dict(counts) for name, counts in groups.items()}
        for kind, groups in scores.groups.items()
    }
    return result
