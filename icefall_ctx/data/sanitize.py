"""Repairs and refusals that any corpus of segments needs before it is linked.

Each function returns a new manifest and says in a :class:`~icefall_ctx.errors.ProblemLog` what it
changed or left out; a strict log turns the first problem into an error.
"""

from __future__ import annotations

from typing import Callable, Iterable, Optional

from lhotse import Recording, SupervisionSegment, SupervisionSet
from lhotse.utils import fastcopy

from icefall_ctx.data.validation import TIME_TOLERANCE, speakers_on_two_channels
from icefall_ctx.errors import ProblemLog

FRAME_LENGTH = 0.025  # seconds; a shorter segment has no whole analysis window


def fix_to_recording(
    supervisions: Iterable[SupervisionSegment],
    recordings: Iterable[Recording],
    tolerance: float = 0.5,
    problems: Optional[ProblemLog] = None,
) -> SupervisionSet:
    """Supervisions that lie within their recordings.

    A segment that ends up to ``tolerance`` seconds after its recording, or starts as much before
    it, is trimmed; one further off, of an unknown recording or of a channel that the recording
    lacks is left out.  Both are counted in ``problems``, but for differences below a
    millisecond, which are rounding and are trimmed silently.
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
        problems.add("unknown recording", supervision.id, supervision.recording_id)
        return None
    channels = supervision.channel
    needed = {channels} if isinstance(channels, int) else set(channels)
    if not needed <= set(recording.channel_ids):
        problems.add("no such channel", supervision.id, f"{channels} in {recording.id}")
        return None
    excess = max(supervision.end - recording.duration, -supervision.start)
    if excess <= 0:
        return supervision
    detail = (
        f"{supervision.start:g} to {supervision.end:g} s, but recording {recording.id} "
        f"has 0 to {recording.duration:g} s"
    )
    if excess > tolerance + 1e-6 or supervision.start >= recording.duration:
        problems.add("outside the recording", supervision.id, detail)
        return None
    if excess > TIME_TOLERANCE:
        problems.add("trimmed to the recording", supervision.id, detail)
    trimmed = supervision.trim(end=recording.duration)
    end = min(supervision.end, recording.duration)
    # trim() rounds the duration to a clock of 48 kHz, which may be past the end by a little
    return fastcopy(trimmed, duration=round(end - trimmed.start, ndigits=8))


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
