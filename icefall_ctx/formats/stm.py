"""NIST STM: one segment a line, ``recording channel speaker start end [<labels>] words``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Tuple

from icefall_ctx.errors import Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import parse_seconds, read_fields, read_lines

# The second spelling, without underscores, is found in NIST's own example files.
IGNORED = ("IGNORE_TIME_SEGMENT_IN_SCORING", "IGNORETIMESEGMENTINSCORING")
_LABEL = re.compile(r';;\s*LABEL\s+"([^"]*)"\s+"([^"]*)"')


@dataclass(frozen=True)
class StmSegment:
    recording: str
    channel: str
    speaker: str
    start: float  # seconds
    end: float
    text: str  # as written, with alternations { a / b } and optional words (a)
    labels: Tuple[str, ...] = ()  # of <o,f0,male>: ("o", "f0", "male")
    line: int = 0

    @property
    def ignored(self) -> bool:
        """Not to be scored: reference and hypothesis words in this time are both left out."""
        return self.text.strip().upper() in IGNORED


def read_stm(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> List[StmSegment]:
    """Segments in the order of the file."""
    log = ProblemLog() if log is None else log
    segments = []
    for number, fields in read_fields(path, log, 5, encoding=encoding, splits=5):
        start, end = parse_seconds(fields[3]), parse_seconds(fields[4])
        if start is None or end is None:
            log.add("bad time", where(path, number), f"{fields[3]!r} {fields[4]!r}")
        elif end < start or start < 0:
            log.add("times not in order", where(path, number), f"{start} to {end}")
        else:
            labels, text = _split_labels(fields[5] if len(fields) > 5 else "")
            segments.append(StmSegment(*fields[:3], start, end, text, labels, number))
    return segments


def _split_labels(text: str) -> Tuple[Tuple[str, ...], str]:
    """``<o,f0> words`` -> (("o", "f0"), "words")."""
    match = re.match(r"<([^<>\s]*)>(?:\s+|$)", text)
    if not match:
        return (), text.strip()
    return tuple(filter(None, match[1].split(","))), text[match.end() :].strip()


def read_stm_labels(path: Pathlike, *, encoding: str = "utf-8") -> Dict[str, str]:
    """Label -> title, from the comments ``;; LABEL "O" "Overall" "..."`` of an STM file."""
    found = (_LABEL.match(line.strip()) for _, line in read_lines(path, encoding=encoding))
    return {match[1]: match[2] for match in found if match}


def stm_line(segment: StmSegment) -> str:
    labels = f"<{','.join(segment.labels)}> " if segment.labels else ""
    return (
        f"{segment.recording} {segment.channel} {segment.speaker} "
        f"{segment.start:.3f} {segment.end:.3f} {labels}{segment.text}".rstrip()
    )


def write_stm(path: Pathlike, segments: Iterable[StmSegment]) -> None:
    """Sorted by recording, channel and time, as NIST's scorer wants them."""
    ordered = sorted(segments, key=lambda s: (s.recording, s.channel, s.start, s.end))
    write_text(path, "".join(stm_line(segment) + "\n" for segment in ordered))
