"""Repairs and refusals that any corpus of segments needs before it is linked.

Readers of corpora use :func:`fit_to_audio` for every turn; the others take a manifest and return
a new one.  All say in a :class:`~icefall_ctx.errors.ProblemLog` what they changed or left out; a
strict log turns the first problem into an error.
"""

from __future__ import annotations

import math
from typing import Callable, Iterable, Optional, Tuple

from lhotse import Recording, SupervisionSegment, SupervisionSet
from lhotse.utils import fastcopy

from icefall_ctx.data.validation import TIME_TOLERANCE, speakers_on_two_channels
from icefall_ctx.errors import ProblemLog

FRAME_LENGTH = 0.025  # seconds; a shorter segment has no whole analysis window
# Seconds by which a segment may pass the ends of its audio and still be trimmed.  Transcripts are
# rounded to 0.01 s, and codecs cut or pad the last frames; further off, the two do not belong
# together, and a trimmed segment would have words that nobody can hear.
END_TOLERANCE = 0.5


def fit_to_audio(
    start: float,
    end: float,
    audio_duration: float,
    place: str,
    problems: ProblemLog,
    tolerance: float = END_TOLERANCE,
) -> Optional[Tuple[float, float]]:
    """``(start, end)`` within audio of so many seconds; None where the segment must be left out.

    A segment that ends up to ``tolerance`` seconds after the audio, or starts as much before it,
    is trimmed, one further off is left out.  Both are counted in ``problems`` under ``place``,
    but for differences below a millisecond, which are rounding.
    """
    detail = f"{start:g} to {end:g} s, but the audio has 0 to {audio_duration:g} s"
    if not (math.isfinite(start) and math.isfinite(end)):
        return problems.add("bad time", place, detail)
    excess = max(end - audio_duration, -start)
    if excess > tolerance + 1e-6 or start >= audio_duration or end <= 0:
        return problems.add("outside the recording", place, detail)
    if excess > TIME_TOLERANCE:
        problems.add("trimmed to the recording", place, detail)
    return max(start, 0.0), min(end, audio_duration)


def fix_to_recording(
    supervisions: Iterable[SupervisionSegment],
    recordings: Iterable[Recording],
    tolerance: float = END_TOLERANCE,
    problems: Optional[ProblemLog] = None,
) -> SupervisionSet:
    """Supervisions that lie within their recordings, by the rule of :func:`fit_to_audio`.

    A segment of an unknown recording, or of a channel that the recording lacks, is left out and
    counted in ``problems``.
    """
    problems = ProblemLog() if problems is None else problems
    table = {recording.id: recording for recording in recordings}
    fixed = (_fix(s, table.get(s.recording_id), tolerance, problems) for s in supervisions)
    return SupervisionSet.from_segments(s for s in fixed if s is not None)


def _fix(
    supervision: SupervisionSegment,
    recording: Optional[Recording],
    tolerance: float,
    problems: ProblemLog,
) -> Optional[SupervisionSegment]:
    if recording is None:
        return problems.add("unknown recording", supervision.id, supervision.recording_id)
    channels = supervision.channel
    needed = {channels} if isinstance(channels, int) else set(channels)
    if not needed <= set(recording.channel_ids):
        return problems.add("no such channel", supervision.id, f"{channels} in {recording.id}")
    span = (supervision.start, supervision.end)
    fitted = fit_to_audio(*span, recording.duration, supervision.id, problems, tolerance)
    if fitted is None or fitted == span:
        return None if fitted is None else supervision
    start, end = fitted
    trimmed = supervision.trim(end=recording.duration)
    # trim() rounds the duration to a clock of 48 kHz, which may be past the end by a little
    return fastcopy(trimmed, duration=round(end - start, ndigits=8))


def drop_empty(
    supervisions: Iterable[SupervisionSegment],
    problems: Optional[ProblemLog] = None,
    *,
    normalize: Optional[Callable[[str], str]] = None,
    min_duration: float = FRAME_LENGTH,
) -> SupervisionSet:
    """Supervisions with something to hear and to say.

    Left out, with id and count, are segments shorter than ``min_duration`` seconds and those
    whose text is missing or, after ``normalize``, empty.  Texts are kept as they were.
    """
    problems = ProblemLog() if problems is None else problems
    kept = []
    for supervision in supervisions:
        text = supervision.text or ""
        if supervision.duration < min_duration:
            problems.add("too short", supervision.id, f"{supervision.duration:g} s")
        elif not (normalize(text) if normalize else text).strip():
            problems.add("empty text", supervision.id, repr(text))
        else:
            kept.append(supervision)
    return SupervisionSet.from_segments(kept)


def separate_speakers(
    supervisions: Iterable[SupervisionSegment], problems: Optional[ProblemLog] = None
) -> SupervisionSet:
    """Give the sides of a call two speakers where the corpus gives both one label.

    Where a label is on several channels of one recording, each of its segments there gets the
    channel appended: ``sw02001A`` becomes ``sw02001A-0`` and ``sw02001A-1``.
    """
    problems = ProblemLog() if problems is None else problems
    segments = list(supervisions)
    shared = set(speakers_on_two_channels(segments))
    for recording_id, speaker in sorted(shared):
        problems.add("one speaker on two channels", recording_id, speaker)
    return SupervisionSet.from_segments(
        fastcopy(s, speaker=f"{s.speaker}-{s.channel}")
        if isinstance(s.channel, int) and (s.recording_id, s.speaker) in shared
        else s
        for s in segments
    )
