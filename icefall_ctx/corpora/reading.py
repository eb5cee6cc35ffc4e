"""What every corpus reader needs: lines of uncertain encoding, audio files, and a careful list.

A reader goes on over bad input.  Whatever it skips or repairs becomes an entry, with file and
line, in a :class:`~icefall_ctx.errors.ProblemLog`; with ``strict`` the first one stops it.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio.utils import AudioLoadingError

from icefall_ctx.corpora.manifests import Manifests, write_manifests
from icefall_ctx.corpora.sphere import sphere_recording, use_sphere_backend
from icefall_ctx.data.sanitize import FRAME_LENGTH, fit_to_audio
from icefall_ctx.errors import InputError, Pathlike, ProblemLog
from icefall_ctx.formats.lines import parse_seconds, read_bytes, read_lines

AUDIO_SUFFIXES = (".wav", ".flac", ".sph", ".mp3", ".ogg", ".opus", ".m4a")

# Problems that lose no speech: repairs, lines without words, remarks about the corpus.
HARMLESS = frozenset({
    "trimmed to the recording",
    "no speech in the text",
    "no caller table",
    "no speaker ids",
    "audio without turns",
    "call in no part",
})  # fmt: skip


def require_dir(path: Pathlike, what: str) -> Path:
    """``path`` if it is a folder, else an :class:`InputError` that says what should be there."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give the folder of {what}")
    return path


def find_files(root: Pathlike, suffix: Union[str, Sequence[str]]) -> List[Path]:
    """Files below ``root`` with one of the suffixes in any case, sorted by path."""
    suffixes = (suffix,) if isinstance(suffix, str) else tuple(suffix)
    return sorted(
        path
        for path in Path(root).rglob("*")
        if path.name.lower().endswith(suffixes) and path.is_file()
    )


def _encoding_of(path: Pathlike, encodings: Sequence[str]) -> str:
    """The first of ``encodings`` that decodes the whole file, else the last one.

    Chinese text in GB18030 is practically never valid UTF-8, so that UTF-8 may be tried first.
    """
    data = read_bytes(path)
    for encoding in encodings[:-1]:
        try:
            data.decode(encoding)
            return encoding
        except UnicodeDecodeError:
            continue
    return encodings[-1]


def read_text(
    path: Pathlike, problems: ProblemLog, encodings: Sequence[str] = ("utf-8",)
) -> Iterator[Tuple[int, str]]:
    """``(line number, line)`` of the lines that are not blank.

    One file of a corpus that cannot be read at all is a problem like others, not the end.
    """
    try:
        encoding = _encoding_of(path, encodings) if len(encodings) > 1 else encodings[0]
        yield from read_lines(path, problems, encoding=encoding)
    except InputError as error:
        if problems.strict:
            raise
        report(problems, "unreadable file", error, path)


def report(problems: ProblemLog, kind: str, error: InputError, path: Pathlike) -> None:
    """Log an error about ``path`` that is no reason to stop, unless the log is strict."""
    problems.add(kind, str(path), str(error).removeprefix(f"{path}: "))


def parse_span(begin: str, end: str) -> Optional[Tuple[float, float]]:
    """Start and end in seconds, or None when either is not a time."""
    start, stop = parse_seconds(begin), parse_seconds(end)
    return None if start is None or stop is None else (start, stop)


_LDC_TURN = re.compile(r"\s*(\S+)\s+(\S+)\s+([ABab])\s*[:：]\s*(.*)")


def parse_ldc_turn(line: str) -> Optional[Tuple[float, float, str, str]]:
    """``12.3 14.5 A: text`` as start, end, ``"A"`` or ``"B"``, and text; None if it is not one."""
    match = _LDC_TURN.match(line)
    span = match and parse_span(match.group(1), match.group(2))
    if not span:
        return None
    return span[0], span[1], match.group(3).upper(), match.group(4).strip()


def open_recording(path: Pathlike, recording_id: str) -> Recording:
    """The recording of one audio file, from its header.

    Raises :class:`InputError` where the file is missing, empty, truncated or of no known format.
    """
    path = Path(path)
    if not path.is_file() or path.stat().st_size == 0:
        raise InputError(f"{path}: the audio file is {'empty' if path.is_file() else 'missing'}")
    if path.suffix.lower() == ".sph":
        return sphere_recording(path, recording_id)
    try:
        recording = Recording.from_file(path, recording_id=recording_id)
    except (AudioLoadingError, RuntimeError, OSError, AssertionError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"{path}: not readable as audio ({reason})") from None
    if recording.num_samples <= 0:
        raise InputError(f"{path}: the audio file has no samples")
    return recording


class ManifestBuilder:
    """Collects recordings and turns, and lets only sound ones through.

    >>> builder = ManifestBuilder(ProblemLog())
    >>> builder.add_recording("call.wav", "call")
    >>> builder.add_turn("call.txt:7", "call-A-7", "call", 1.0, 2.5, channel=0, speaker="ann",
    ...                  text="good morning")
    >>> builder.manifests()["supervisions"]
    """

    def __init__(self, problems: ProblemLog, language: Optional[str] = None) -> None:
        use_sphere_backend()
        self.problems = problems
        self.language = language
        self.recordings: Dict[str, Recording] = {}
        self.supervisions: Dict[str, SupervisionSegment] = {}
        self.turns_seen = 0

    def add_recording(self, path: Pathlike, recording_id: str) -> Optional[Recording]:
        """Register one audio file; None, and an entry in the problems, if it is of no use."""
        if recording_id in self.recordings:
            self.problems.add("duplicate recording", str(path), recording_id)
            return None
        path = Path(path).absolute()  # manifests are read from other folders too
        try:
            recording = open_recording(path, recording_id)
        except InputError as error:
            report(self.problems, "unusable audio", error, path)
            return None
        return self.register(recording)

    def register(self, recording: Recording) -> Recording:
        self.recordings[recording.id] = recording
        return recording

    def add_turn(
        self,
        place: str,
        turn_id: str,
        recording_id: str,
        start: float,
        end: float,
        *,
        channel: int,
        speaker: str,
        text: str,
        gender: Optional[str] = None,
        **custom,
    ) -> Optional[SupervisionSegment]:
        """Add one turn; None, and an entry in the problems, if it cannot be used.

        ``start`` and ``end`` are seconds in the recording, ``place`` is where the turn was read.
        """
        self.turns_seen += 1
        recording = self.recordings.get(recording_id)
        if recording is None:
            return self.problems.add("turn without audio", place, recording_id)
        if turn_id in self.supervisions:
            return self.problems.add("duplicate turn", place, turn_id)
        if channel not in recording.channel_ids:
            return self.problems.add("no such channel", place, f"{channel} in {recording_id}")
        if not text.strip():
            return self.problems.add("no speech in the text", place, turn_id)
        span = fit_to_audio(start, end, recording.duration, place, self.problems)
        if span is None:
            return None
        start, duration = span[0], round(span[1] - span[0], ndigits=8)
        if duration < FRAME_LENGTH:
            return self.problems.add("turn shorter than a frame", place, f"{duration:g} s")
        supervision = SupervisionSegment(
            id=turn_id,
            recording_id=recording_id,
            start=start,
            duration=duration,
            channel=channel,
            text=text,
            speaker=speaker,
            gender=gender,
            language=self.language,
            custom=custom or None,
        )
        self.supervisions[turn_id] = supervision
        return supervision

    def manifests(self) -> Manifests:
        """Both sets, turns sorted by recording and start.

        Recordings without any turn are left out and reported.
        """
        used = {supervision.recording_id for supervision in self.supervisions.values()}
        for recording_id in self.recordings.keys() - used:
            self.problems.add("audio without turns", recording_id)
        turns = sorted(
            self.supervisions.values(), key=lambda s: (s.recording_id, s.start, s.channel, s.id)
        )
        recordings = [self.recordings[recording_id] for recording_id in sorted(used)]
        return {
            "recordings": RecordingSet.from_recordings(recordings),
            "supervisions": SupervisionSet.from_segments(turns),
        }


def split_manifests(manifests: Manifests, part_of: Dict[str, str]) -> Dict[str, Manifests]:
    """Distribute recordings, with their turns, over parts: ``part_of[recording id]``."""
    parts: Dict[str, Tuple[List[Recording], List[SupervisionSegment]]] = {}
    for recording in manifests["recordings"]:
        parts.setdefault(part_of[recording.id], ([], []))[0].append(recording)
    for supervision in manifests["supervisions"]:
        parts[part_of[supervision.recording_id]][1].append(supervision)
    return {
        part: {
            "recordings": RecordingSet.from_recordings(recordings),
            "supervisions": SupervisionSet.from_segments(supervisions),
        }
        for part, (recordings, supervisions) in sorted(parts.items())
    }


def merge_manifests(parts: Iterable[Manifests]) -> Manifests:
    """One part out of several, in their order; their ids must differ."""
    parts = list(parts)
    return {
        "recordings": RecordingSet.from_recordings(r for p in parts for r in p["recordings"]),
        "supervisions": SupervisionSet.from_segments(s for p in parts for s in p["supervisions"]),
    }


def finish(
    corpus: str,
    parts: Dict[str, Manifests],
    problems: ProblemLog,
    output_dir: Optional[Pathlike] = None,
) -> Dict[str, Manifests]:
    """Say what was read, refuse an empty corpus, and write the manifests if asked to."""
    for part, manifests in parts.items():
        seconds = sum(supervision.duration for supervision in manifests["supervisions"])
        logging.info(
            "%s %s: %d recordings, %d turns, %.2f h of speech",
            *(corpus, part, len(manifests["recordings"]), len(manifests["supervisions"])),
            seconds / 3600,
        )
    if problems:
        logging.warning("%s: %s", corpus, problems.summary())
    if not any(len(manifests["supervisions"]) for manifests in parts.values()):
        found = problems.summary() or "no transcript found"
        raise InputError(f"{corpus}: not one usable turn was found ({found})")
    if output_dir is not None:
        write_manifests(parts, Path(output_dir), corpus)
    return parts


def share_lost(parts: Dict[str, Manifests], problems: ProblemLog) -> float:
    """The share of turns, lines and files that could not be used, between 0 and 1."""
    lost = sum(count for kind, count in problems.counts().items() if kind not in HARMLESS)
    kept = sum(len(manifests["supervisions"]) for manifests in parts.values())
    return lost / max(lost + kept, 1)


def by_stem(paths: Iterable[Path], problems: ProblemLog, what: str) -> Dict[str, Path]:
    """Files by their name without suffix; a second file of the same name is reported."""
    found: Dict[str, Path] = {}
    for path in paths:
        if path.stem in found:
            problems.add(f"two {what} of one name", str(path), f"kept {found[path.stem]}")
        else:
            found[path.stem] = path
    return found


def remove_spans(text: str, pattern: str) -> str:
    """``text`` without what ``pattern`` matches, and with single blanks."""
    return " ".join(re.sub(pattern, " ", text).split())
