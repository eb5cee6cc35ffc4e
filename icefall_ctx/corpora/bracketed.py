"""Transcripts of Chinese vendors: ``[start,end]<tab>speaker<tab>gender,region<tab>text``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Iterator, NamedTuple, Optional

from icefall_ctx.corpora.reading import parse_span, read_text, remove_spans
from icefall_ctx.errors import ProblemLog, where

ENCODINGS = ("utf-8", "gb18030")

_LINE = re.compile(r"\s*\[\s*([^,\]]+)\s*,\s*([^,\]]+)\s*\]\s*\t?\s*(\S.*)")
_GENDERS: Dict[str, str] = {"男": "male", "女": "female", "m": "male", "f": "female"}
_TAGS = r"\[[^\]]*\]|<[^>]*>"
_MARKS = r"[，。？！、；：“”‘’…《》（）()＋+*,.?!;:\"~]"


class TimedLine(NamedTuple):
    place: str  # file:line
    start: float  # seconds
    end: float
    speaker: str
    gender: Optional[str]
    text: str  # with the markup of the transcriber


def clean_dialog_text(text: str) -> str:
    """What was said: no tags such as ``[LAUGHTER]``, ``[+]`` (overlap), ``[*]``; no punctuation."""
    return remove_spans(remove_spans(text, _TAGS), _MARKS)


def read_timed_lines(path: Path, problems: ProblemLog) -> Iterator[TimedLine]:
    """The turns of one file; lines of another form are reported.

    Speaker ``0`` marks noise between the turns; such lines are passed over, being no turns.
    """
    for number, line in read_text(path, problems, ENCODINGS):
        match = _LINE.match(line)
        span = match and parse_span(match.group(1), match.group(2))
        fields = match.group(3).split("\t") if span else []
        if len(fields) < 2:
            problems.add("not '[start,end] speaker ... text'", where(path, number), line[:60])
            continue
        speaker, text = fields[0].strip(), fields[-1].strip() if len(fields) > 2 else ""
        if len(fields) == 2:  # no column for gender and region
            text = fields[1].strip()
        if speaker == "0":
            continue
        gender = fields[1].split(",")[0].strip().lower() if len(fields) > 2 else ""
        yield TimedLine(where(path, number), *span, speaker, _GENDERS.get(gender), text)
