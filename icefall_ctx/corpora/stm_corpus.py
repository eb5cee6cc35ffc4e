"""Turns out of STM files, for every corpus that is transcribed in them."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, Optional, Union

from icefall_ctx.corpora.reading import ManifestBuilder, report
from icefall_ctx.errors import InputError, where
from icefall_ctx.formats.stm import StmSegment, read_stm

# Spelling of the two channels of a telephone call, and of the channel of a lecture.
CHANNELS = {"A": 0, "B": 1, "1": 0, "2": 1}

Custom = Dict[str, Union[str, float]]


def add_stm(
    builder: ManifestBuilder,
    path: Path,
    *,
    clean: Callable[[str], str] = str,
    speaker: Callable[[StmSegment], str] = lambda segment: segment.speaker,
    custom: Callable[[StmSegment], Custom] = lambda segment: {},
    default_channel: Optional[int] = None,
    encoding: str = "utf-8",
) -> None:
    """Add the segments of an STM file to ``builder``.

    Segments that are marked as not to be scored are gaps, not turns, and passed over.

    :param clean: text of the reference -> text to train on.
    :param speaker: a speaker id that is the same in every file.
    :param custom: custom fields of a turn.
    :param default_channel: the channel in files with one, whatever the STM calls it.
    """
    try:
        segments = read_stm(path, builder.problems, encoding=encoding)
    except InputError as error:
        if builder.problems.strict:
            raise
        report(builder.problems, "unreadable file", error, path)
        return
    for segment in segments:
        if segment.ignored:
            continue
        place = where(path, segment.line)
        channel = _channel(builder, segment, default_channel)
        if channel is None:
            builder.problems.add("unknown channel", place, segment.channel)
            continue
        builder.add_turn(
            place,
            f"{segment.recording}-{segment.channel}-"
            f"{round(segment.start * 1000):08d}-{round(segment.end * 1000):08d}",
            segment.recording,
            segment.start,
            segment.end,
            channel=channel,
            speaker=speaker(segment),
            text=clean(segment.text),
            **_side(segment),
            **custom(segment),
        )


def _side(segment: StmSegment) -> Custom:
    """The side of a call, as the LDC names it; needed to write NIST's formats again."""
    return {"side": segment.channel} if segment.channel in ("A", "B") else {}


def _channel(
    builder: ManifestBuilder, segment: StmSegment, default: Optional[int]
) -> Optional[int]:
    recording = builder.recordings.get(segment.recording)
    if recording is not None and recording.num_channels == 1:
        return 0
    return CHANNELS.get(segment.channel.upper(), default)
