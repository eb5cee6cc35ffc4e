"""Recognised words with times against reference segments, as sclite aligns a CTM with an STM."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np

from icefall_ctx.errors import ProblemLog
from icefall_ctx.formats.ctm import CtmWord
from icefall_ctx.formats.stm import StmSegment

Key = Tuple[str, str]  # (recording, channel) in lower case


@dataclass
class Assigned:
    """A segment and the words that fall to it."""

    segment: StmSegment
    words: List[CtmWord]


def key_of(entry) -> Key:
    """Names of recordings and channels compare without case."""
    return entry.recording.lower(), entry.channel.lower()


def assign_words(
    segments: Sequence[StmSegment], words: Iterable[CtmWord], log: Optional[ProblemLog] = None
) -> List[Assigned]:
    """Each word goes to the first segment of its channel that ends after the word's middle.

    So a word in a gap falls to the segment after it, and words after the last segment to the last.
    Words of a channel that has no segment are logged and left out.  The order is that of
    ``segments``; ignored segments are among them, with the words to be ignored.
    """
    log = ProblemLog() if log is None else log
    assigned = [Assigned(segment, []) for segment in segments]
    channels: Dict[Key, List[Assigned]] = defaultdict(list)
    for entry in assigned:
        channels[key_of(entry.segment)].append(entry)
    for entries in channels.values():
        entries.sort(key=lambda entry: entry.segment.start)
    for key, units in _by_channel(words).items():
        if key not in channels:
            count = sum(len(unit) for unit in units)
            log.add("words of a channel without reference", " ".join(key), f"{count} words")
            continue
        _distribute(channels[key], units)
    return assigned


def _by_channel(words: Iterable[CtmWord]) -> Dict[Key, List[List[CtmWord]]]:
    """Units of each channel by time: single words, and alternations, which are never torn."""
    units: Dict[Tuple[Key, int], List[CtmWord]] = defaultdict(list)
    for index, word in enumerate(words):
        units[key_of(word), -word.alternation if word.alternation else index].append(word)
    channels: Dict[Key, List[List[CtmWord]]] = defaultdict(list)
    for (key, _), unit in units.items():
        channels[key].append(unit)
    for channel_units in channels.values():
        channel_units.sort(key=_middle)
    return channels


def _middle(unit: Sequence[CtmWord]) -> float:
    if len(unit) == 1:
        return unit[0].middle
    return (min(word.start for word in unit) + max(word.end for word in unit)) / 2


def _distribute(entries: Sequence[Assigned], units: Sequence[List[CtmWord]]) -> None:
    # sclite keeps the ends of segments in single precision, which decides where a word falls
    # whose middle is an end: a usual case, as recognisers cut at the same silences.
    ends = [float(np.float32(entry.segment.end)) for entry in entries]
    position = 0
    for unit in units:
        while position + 1 < len(entries) and _middle(unit) >= ends[position]:
            position += 1
        entries[position].words += unit


def words_to_text(words: Sequence[CtmWord]) -> str:
    """The words in NIST's notation, alternations as ``{ a / b }``."""
    out: List[str] = []
    previous: Optional[CtmWord] = None
    for word in words:
        if previous is not None and previous.alternation != word.alternation:
            out += ["}"] if previous.alternation else []
        if word.alternation:
            if previous is None or previous.alternation != word.alternation:
                out.append("{")
            elif previous.alternative != word.alternative:
                out.append("/")
        out.append(word.word)
        previous = word
    if previous is not None and previous.alternation:
        out.append("}")
    return " ".join(out)


def spread_words(segments: Iterable[StmSegment]) -> List[CtmWord]:
    """Words of hypothesis segments with times spread evenly over each segment."""
    words: List[CtmWord] = []
    for segment in segments:
        texts = segment.text.split()
        step = (segment.end - segment.start) / max(1, len(texts))
        words += [
            CtmWord(segment.recording, segment.channel, segment.start + i * step, step, text)
            for i, text in enumerate(texts)
        ]
    return words


# ---- lines of a hubscr report ------------------------------------------------------------------

# eval2000: the Switchboard half has recordings named sw_, the CallHome half en_.
_PREFIXES = (("swbd", "sw"), ("callhome", "en"))


def subsets(segments: Sequence[StmSegment], titles: Dict[str, str]) -> Dict[str, List[int]]:
    """Name of a line of the report -> indices of its segments.

    Lines are the labels of the segments, under their titles, and, where both halves are there,
    ``swbd`` and ``callhome`` by the names of the recordings.
    """
    lines: Dict[str, List[int]] = defaultdict(list)
    known = {label.lower(): title for label, title in titles.items()}
    for index, segment in enumerate(segments):
        for name, prefix in _PREFIXES:
            if segment.recording.lower().startswith((f"{prefix}_", f"{prefix}-")):
                lines[name].append(index)
        for label in segment.labels:
            lines[known.get(label.lower(), label)].append(index)
    found = dict(lines)
    if not all(name in found for name, _ in _PREFIXES):
        for name, _ in _PREFIXES:
            found.pop(name, None)
    return found
