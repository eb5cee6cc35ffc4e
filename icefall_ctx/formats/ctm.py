"""NIST CTM: one recognised word a line, ``recording channel start duration word [confidence]``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, List, Optional, Tuple

from icefall_ctx.errors import Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import parse_seconds, read_fields

NO_WORD = "@"  # an alternative, or a whole entry, without a word
_MARKS = ("<ALT_BEGIN>", "<ALT>", "<ALT_END>")


@dataclass(frozen=True)
class CtmWord:
    recording: str
    channel: str
    start: float  # seconds
    duration: float
    word: str
    confidence: Optional[float] = None
    # Words between <ALT_BEGIN> and <ALT_END> carry the alternation's number, from 1, and which of
    # its alternatives they belong to; a reader that wants one text keeps ``alternative == 0``.
    alternation: int = 0
    alternative: int = 0
    line: int = 0

    @property
    def end(self) -> float:
        return self.start + self.duration

    @property
    def middle(self) -> float:
        return self.start + self.duration / 2


class _Alternations:
    """Where in ``<ALT_BEGIN> .. <ALT> .. <ALT_END>`` the reader is."""

    def __init__(self) -> None:
        self.count = 0
        self.alternative = 0
        self.is_open = False
        self.is_empty = False  # the alternative being read has no word yet
        self.opened_at = 0

    def mark(self, word: str, number: int) -> bool:
        """Take a mark; False where it does not belong."""
        if (word == _MARKS[0]) == self.is_open:
            return False
        if word == _MARKS[0]:
            self.count, self.alternative, self.is_open = self.count + 1, 0, True
            self.opened_at = number
        elif word == _MARKS[1]:
            self.alternative += 1
        else:
            self.is_open = False
        self.is_empty = True
        return True

    @property
    def position(self) -> Tuple[int, int]:
        return (self.count, self.alternative) if self.is_open else (0, 0)


def read_ctm(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> List[CtmWord]:
    """Words in the order of the file."""
    log = ProblemLog() if log is None else log
    words: List[CtmWord] = []
    state = _Alternations()
    last_time = 0.0
    for number, fields in read_fields(path, log, 5, encoding=encoding):
        if fields[4].upper() in _MARKS:
            before, was_empty = state.position, state.is_empty
            if not state.mark(fields[4].upper(), number):
                log.add("alternation mark out of place", where(path, number), fields[4])
            elif before[0] and was_empty:
                words.append(
                    CtmWord(*fields[:2], last_time, 0.0, NO_WORD, None, *before, line=number)
                )
            continue
        word = _parse_word(fields, state.position, where(path, number), number, log)
        if word is not None:
            state.is_empty = False
            last_time = word.start
            words.append(word)
    if state.is_open:
        log.add("alternation not closed", where(path, state.opened_at))
    return words


def _parse_word(
    fields: List[str], position: Tuple[int, int], place: str, number: int, log: ProblemLog
) -> Optional[CtmWord]:
    start, duration = parse_seconds(fields[2]), parse_seconds(fields[3])
    if start is None or duration is None:
        log.add("bad time", place, f"{fields[2]!r} {fields[3]!r}")
        return None
    if duration < 0 or start < 0:
        log.add("negative time", place, f"{start} {duration}")
        return None
    confidence = parse_seconds(fields[5]) if len(fields) > 5 else None
    return CtmWord(*fields[:2], start, duration, fields[4], confidence, *position, line=number)


def ctm_line(word: CtmWord) -> str:
    confidence = "" if word.confidence is None else f" {word.confidence:.4f}"
    return (
        f"{word.recording} {word.channel} {word.start:.3f} {word.duration:.3f} "
        f"{word.word}{confidence}"
    )


def write_ctm(path: Pathlike, words: Iterable[CtmWord]) -> None:
    """Sorted by recording, channel and time; of alternatives only the first is written."""
    ordered = sorted(words, key=lambda w: (w.recording, w.channel, w.start))
    lines = [ctm_line(word) + "\n" for word in ordered if word.alternative == 0]
    write_text(path, "".join(lines))
