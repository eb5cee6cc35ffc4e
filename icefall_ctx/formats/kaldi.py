"""Kaldi data directories: ``text``, ``utt2spk``, ``segments``, ``wav.scp`` and their kin."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Iterable, Mapping, Optional, Tuple

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import parse_seconds, read_fields

TO_THE_END = -1.0  # Kaldi's mark for "up to the end of the recording"


@dataclass(frozen=True)
class KaldiSegment:
    utt_id: str
    recording: str
    start: float  # seconds
    end: float  # TO_THE_END: up to the end of the recording
    channel: str = ""  # fifth column of older directories, else empty
    line: int = 0


@dataclass
class KaldiDir:
    """What a directory says; every table maps an id to the rest of its line."""

    path: Path
    wav_scp: Dict[str, str] = field(default_factory=dict)
    text: Dict[str, str] = field(default_factory=dict)
    utt2spk: Dict[str, str] = field(default_factory=dict)
    utt2dur: Dict[str, str] = field(default_factory=dict)
    reco2dur: Dict[str, str] = field(default_factory=dict)
    reco2file_and_channel: Dict[str, str] = field(default_factory=dict)
    spk2gender: Dict[str, str] = field(default_factory=dict)
    segments: Dict[str, KaldiSegment] = field(default_factory=dict)


def read_table(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> Dict[str, str]:
    """``id rest of the line``; the rest may be empty.  A repeated id is logged, the first kept."""
    log = ProblemLog() if log is None else log
    table: Dict[str, str] = {}
    for number, fields in _fields(path, log, 1, encoding, splits=1):
        if fields[0] in table:
            log.add("repeated id", where(path, number), fields[0])
            continue
        table[fields[0]] = fields[1].strip() if len(fields) > 1 else ""
    return table


def _fields(path: Pathlike, log: ProblemLog, least: int, encoding: str, splits: int = -1):
    """Unlike NIST's formats Kaldi's have no comments: an id may begin with ``;;``."""
    return read_fields(path, log, least, encoding=encoding, splits=splits, comments=False)


def read_segments(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> Dict[str, KaldiSegment]:
    """``utterance recording start end [channel]`` by utterance id."""
    log = ProblemLog() if log is None else log
    segments: Dict[str, KaldiSegment] = {}
    for number, fields in _fields(path, log, 4, encoding):
        utt_id, recording = fields[:2]
        start, end = parse_seconds(fields[2]), parse_seconds(fields[3])
        channel = fields[4] if len(fields) > 4 else ""
        if start is None or end is None:
            log.add("bad time", where(path, number), f"{fields[2]!r} {fields[3]!r}")
        elif start < 0 or (end != TO_THE_END and end <= start):
            log.add("times not in order", where(path, number), f"{utt_id}: {start} to {end}")
        elif utt_id in segments:
            log.add("repeated id", where(path, number), utt_id)
        else:
            segments[utt_id] = KaldiSegment(utt_id, recording, start, end, channel, number)
    return segments


TABLES = (
    "wav.scp",
    "text",
    "utt2spk",
    "utt2dur",
    "reco2dur",
    "reco2file_and_channel",
    "spk2gender",
)


def read_kaldi_dir(
    folder: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> KaldiDir:
    """Read what is there and drop, with a word about each, utterances that lack a part.

    Raises:
      InputError: no such folder, or neither ``wav.scp`` nor ``text`` in it.
    """
    log = ProblemLog() if log is None else log
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; a Kaldi data directory is wanted")
    if not any((folder / name).is_file() for name in ("wav.scp", "text")):
        raise InputError(f"{folder}: neither wav.scp nor text here; not a Kaldi data directory")
    result = KaldiDir(folder)
    for name in TABLES:
        if (folder / name).is_file():
            table = read_table(folder / name, log, encoding=encoding)
            setattr(result, name.replace(".", "_"), table)
    if (folder / "segments").is_file():
        result.segments = read_segments(folder / "segments", log, encoding=encoding)
    _drop_incomplete(result, log)
    return result


def _drop_incomplete(kaldi: KaldiDir, log: ProblemLog) -> None:
    """Cross-check the tables; an utterance that cannot be used is logged once and leaves all."""
    if kaldi.wav_scp:
        for utt_id, segment in list(kaldi.segments.items()):
            if segment.recording not in kaldi.wav_scp:
                place = where(kaldi.path / "segments", segment.line)
                log.add("recording not in wav.scp", place, segment.recording)
                del kaldi.segments[utt_id]
    audio = kaldi.segments if (kaldi.path / "segments").is_file() else kaldi.wav_scp
    if audio or kaldi.wav_scp:
        _drop_unmatched(kaldi.text, audio, "text without audio", kaldi.path / "text", log)
    if kaldi.text:
        for utt_id in [utt_id for utt_id in audio if utt_id not in kaldi.text]:
            log.add("utterance without text", str(kaldi.path / "text"), utt_id)
            if audio is kaldi.segments:
                del audio[utt_id]
    for utt_id in kaldi.text:
        if kaldi.utt2spk and not kaldi.utt2spk.get(utt_id):
            log.add("utterance without speaker", str(kaldi.path / "utt2spk"), utt_id)


def _drop_unmatched(
    table: Dict[str, str], known: Mapping[str, object], kind: str, path: Path, log: ProblemLog
) -> None:
    for utt_id in [utt_id for utt_id in table if utt_id not in known]:
        log.add(kind, str(path), utt_id)
        del table[utt_id]


def write_table(path: Pathlike, rows: Iterable[Tuple[str, str]]) -> None:
    """Sorted by id in the byte order (``LC_ALL=C``) that Kaldi's tools want."""
    ordered = sorted(rows, key=lambda row: row[0].encode("utf-8"))
    write_text(path, "".join(f"{key} {value}".rstrip() + "\n" for key, value in ordered))
