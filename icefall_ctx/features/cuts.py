"""Turns of recorded calls as cuts: one cut, one channel, one supervision each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, List, Optional

from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.utils import fastcopy

from icefall_ctx.errors import InputError, ProblemLog


@dataclass
class TurnCutter:
    """Makes cuts of supervisions and keeps account of those it could not.

    The result is what trimming every channel on its own to its supervisions gives, in the order of
    the supervisions: the cut has the supervision's id, ``cut.start`` is its place in the
    recording, its supervision starts at 0 and keeps its custom fields.

    Args:
      recordings: by id.
      min_duration: seconds; shorter turns are skipped.
      allow_empty_text: keep turns without text (audio that is only to be recognised).
      normalize: a turn is skipped if its text is empty after this.
      end_tolerance: seconds; a turn that ends later after its recording is refused, and one within
        the tolerance is cut there.
    """

    recordings: Dict[str, Recording]
    min_duration: float = 0.1
    allow_empty_text: bool = False
    normalize: Callable[[str], str] = str.strip
    end_tolerance: float = 0.1
    skipped: ProblemLog = field(default_factory=ProblemLog)  # fine, but nothing to learn from
    trimmed: ProblemLog = field(default_factory=ProblemLog)
    bad: ProblemLog = field(default_factory=ProblemLog)

    def cut_all(self, supervisions: Iterable[SupervisionSegment]) -> List[MonoCut]:
        """Raises :class:`InputError` if an id occurs twice, as neighbours are found by id."""
        cuts: List[MonoCut] = []
        seen = set()
        for supervision in supervisions:
            if supervision.id in seen:
                raise InputError(f"{supervision.id}: two supervisions have this id; rename one")
            seen.add(supervision.id)
            cut = self.cut(supervision)
            if cut is not None:
                cuts.append(cut)
        return cuts

    def cut(self, supervision: SupervisionSegment) -> Optional[MonoCut]:
        """The cut of this turn, or None with the reason in one of the logs."""
        if not self.allow_empty_text and not self.normalize(supervision.text or ""):
            self.skipped.add("empty text", supervision.id, repr(supervision.text))
            return None
        recording = self.recordings.get(supervision.recording_id)
        if recording is None:
            self.bad.add("no such recording", supervision.id, supervision.recording_id)
            return None
        channel = self._channel(supervision, recording)
        if channel is None:
            return None
        duration = self._duration(supervision, recording)
        if duration is None:
            return None
        return MonoCut(
            id=supervision.id,
            start=supervision.start,
            duration=duration,
            channel=channel,
            recording=recording,
            supervisions=[fastcopy(supervision, start=0.0, duration=duration, channel=channel)],
        )

    def _channel(self, supervision: SupervisionSegment, recording: Recording) -> Optional[int]:
        channels = supervision.channel
        channels = [channels] if isinstance(channels, int) else list(channels)
        if len(channels) != 1:
            self.bad.add("turn on several channels", supervision.id, str(channels))
        elif channels[0] not in recording.channel_ids:
            detail = f"{channels[0]}, {recording.id} has {recording.channel_ids}"
            self.bad.add("no such channel", supervision.id, detail)
        else:
            return channels[0]
        return None

    def _duration(self, supervision: SupervisionSegment, recording: Recording) -> Optional[float]:
        late = supervision.end - recording.duration
        detail = f"ends at {supervision.end} s, {recording.id} at {recording.duration} s"
        if supervision.start < 0:
            self.bad.add("negative start", supervision.id, f"{supervision.start} s")
            return None
        if late > self.end_tolerance:
            self.bad.add("outside the recording", supervision.id, detail)
            return None
        duration = supervision.duration
        if late > 0:
            duration = round(recording.duration - supervision.start, ndigits=8)
            if late > 1 / recording.sampling_rate:  # less is rounding
                self.trimmed.add("end trimmed to the recording", supervision.id, detail)
        if duration < self.min_duration:
            limit = f"{duration} s, the least is {self.min_duration} s"
            self.skipped.add("too short", supervision.id, limit)
            return None
        return duration
