"""Praat TextGrids, long and short text form: interval tiers and point tiers."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.formats.lines import parse_seconds, read_lines

# Praat reads numbers, quoted strings (a quote is doubled) and <flags> that stand free between
# blanks and takes everything else, such as `intervals [3]: xmin =`, for decoration; a free `!`
# begins a comment.
_TOKEN = re.compile(
    r"""(?<!\S)(?:
        "((?:[^"]|"")*)"(?!\S)
        | (<\w+>)(?!\S)
        | ([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?!\S)
        | !.*
    )""",
    re.VERBOSE,
)


class Interval(NamedTuple):
    start: float  # seconds
    end: float  # equal to start in a point tier
    text: str
    line: int = 0


@dataclass
class Tier:
    name: str
    kind: str  # "IntervalTier" or "TextTier" (points)
    start: float
    end: float
    intervals: List[Interval] = field(default_factory=list)


class _Token(NamedTuple):
    kind: str  # "text", "flag", "number"
    value: str
    line: int


class _End(Exception):
    """The file stops, or holds something else, where a value has to follow."""


class _Tokens:
    def __init__(self, tokens: Iterator[_Token]) -> None:
        self._tokens = iter(tokens)
        self.line = 1

    def take(self, kind: str) -> str:
        token = next(self._tokens, None)
        if token is None:
            raise _End(f"the file ends where a {kind} is wanted")
        self.line = token.line
        if token.kind != kind:
            raise _End(f"{token.value[:40]!r} where a {kind} is wanted")
        return token.value

    def seconds(self) -> float:
        value = parse_seconds(self.take("number"))
        if value is None:
            raise _End("a time out of range")
        return value

    def count(self) -> int:
        number = self.seconds()
        if number < 0 or number != int(number):
            raise _End(f"{number} where a count is wanted")
        return int(number)


def read_textgrid(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> List[Tier]:
    """Tiers in the order of the file.

    A file that stops early or is damaged keeps the intervals before that place, with a problem
    logged.

    Raises:
      InputError: not a TextGrid at all.
    """
    log = ProblemLog() if log is None else log
    lines = list(read_lines(path, log, encoding=encoding))
    tokens = _Tokens(_tokenize(lines))
    tiers: List[Tier] = []
    try:
        _header(tokens, path)
        for _ in range(tokens.count()):
            _read_tier(tokens, tiers, path, log)
    except _End as problem:
        log.add("damaged TextGrid", where(path, tokens.line), str(problem))
    return tiers


def _tokenize(lines: Sequence[Tuple[int, str]]) -> Iterator[_Token]:
    """Tokens with the line each begins on; a quoted string may run over several lines."""
    starts = list(accumulate((len(line) + 1 for _, line in lines), initial=0))
    for match in _TOKEN.finditer("\n".join(line for _, line in lines)):
        line = lines[bisect_right(starts, match.start()) - 1][0]
        text, flag, number = match.groups()
        if text is not None:
            yield _Token("text", text.replace('""', '"'), line)
        elif flag is not None:
            yield _Token("flag", flag, line)
        elif number is not None:
            yield _Token("number", number, line)


def _header(tokens: _Tokens, path: Pathlike) -> None:
    try:
        kinds = tokens.take("text"), tokens.take("text")
    except _End:
        kinds = ("", "")
    if not kinds[0].startswith("ooTextFile") or kinds[1] != "TextGrid":
        raise InputError(f"{path}: not a TextGrid in Praat's text form (long or short)")
    tokens.seconds(), tokens.seconds()  # the file's own start and end
    tokens.take("flag")


def _read_tier(tokens: _Tokens, tiers: List[Tier], path: Pathlike, log: ProblemLog) -> None:
    kind = tokens.take("text")
    if kind not in ("IntervalTier", "TextTier"):
        raise _End(f"unknown tier class {kind[:40]!r}")
    tier = Tier(tokens.take("text"), kind, tokens.seconds(), tokens.seconds())
    tiers.append(tier)
    for _ in range(tokens.count()):
        start = tokens.seconds()
        line = tokens.line
        end = tokens.seconds() if kind == "IntervalTier" else start
        text = tokens.take("text")
        if end < start:
            log.add("times not in order", where(path, line), f"{start} to {end}")
        else:
            tier.intervals.append(Interval(start, end, text.strip(), line))
