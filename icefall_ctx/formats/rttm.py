"""NIST RTTM: one event a line; speaker turns (``SPEAKER``) and words (``LEXEME``) matter here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, List, Optional

from icefall_ctx.errors import Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import parse_seconds, read_fields

NOTHING = "<NA>"


@dataclass(frozen=True)
class RttmLine:
    kind: str  # SPEAKER, LEXEME, ...
    recording: str
    channel: str
    start: float  # seconds
    duration: float
    word: str  # of LEXEME; empty elsewhere
    speaker: str
    confidence: Optional[float] = None
    line: int = 0

    @property
    def end(self) -> float:
        return self.start + self.duration


def read_rttm(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> List[RttmLine]:
    """Events that have a time, in the order of the file (``SPKR-INFO`` lines have none)."""
    log = ProblemLog() if log is None else log
    lines = []
    for number, fields in read_fields(path, log, 8, encoding=encoding):
        if fields[3] == NOTHING and fields[4] == NOTHING:
            continue
        start, duration = parse_seconds(fields[3]), parse_seconds(fields[4])
        if start is None or duration is None:
            log.add("bad time", where(path, number), f"{fields[3]!r} {fields[4]!r}")
        elif start < 0 or duration < 0:
            log.add("negative time", where(path, number), f"{start} {duration}")
        else:
            word = "" if fields[5] == NOTHING else fields[5]
            confidence = parse_seconds(fields[8]) if len(fields) > 8 else None
            event = (*fields[:3], start, duration, word, fields[7], confidence, number)
            lines.append(RttmLine(*event))
    return lines


def rttm_line(event: RttmLine) -> str:
    confidence = NOTHING if event.confidence is None else f"{event.confidence:.4f}"
    return (
        f"{event.kind} {event.recording} {event.channel} {event.start:.3f} {event.duration:.3f} "
        f"{event.word or NOTHING} {NOTHING} {event.speaker} {confidence} {NOTHING}"
    )


def write_rttm(path: Pathlike, events: Iterable[RttmLine]) -> None:
    ordered = sorted(events, key=lambda e: (e.recording, e.start))
    write_text(path, "".join(rttm_line(event) + "\n" for event in ordered))
