"""The readers of ``icefall-ctx import``, one a format; see :mod:`icefall_ctx.corpora.importing`."""

from __future__ import annotations

import bisect
import re
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from icefall_ctx.corpora.bracketed import read_timed_lines
from icefall_ctx.corpora.importing import ImportJob, reader
from icefall_ctx.corpora.json_segments import load_json, milliseconds, number
from icefall_ctx.corpora.reading import parse_ldc_turn, read_text, report
from icefall_ctx.corpora.stm_corpus import CHANNELS, add_stm
from icefall_ctx.errors import InputError, where
from icefall_ctx.formats.ctm import CtmWord, read_ctm
from icefall_ctx.formats.rttm import RttmLine, read_rttm
from icefall_ctx.formats.textgrid import Interval, read_textgrid

WORD_GAP = 0.5  # seconds between words that end a turn, where only words have times


class Turn(NamedTuple):
    place: str  # file:line
    start: float  # seconds in the recording
    end: float
    label: str  # of the speaker
    text: str
    side: Optional[int] = None  # the channel, where the format knows it


def _guarded(job: ImportJob, path: Path, function, *args, **kwargs) -> Any:
    """``function``'s result, or None where a file cannot be read at all, which is reported."""
    try:
        return function(*args, **kwargs)
    except InputError as error:
        if job.problems.strict:
            raise
        report(job.problems, "unreadable file", error, path)
        return None


def _add_turns(job: ImportJob, call: str, turns: Iterable[Turn]) -> None:
    """Add the turns of one call that has one recording, ``call``.

    Without a channel in the format, the speakers of a call with as many channels as speakers are
    taken in the order of their labels.
    """
    job.need_audio(call)
    turns = list(turns)
    recording = job.builder.recordings.get(call)
    channels = recording.num_channels if recording else 1
    labels = sorted({turn.label for turn in turns})
    for index, turn in enumerate(turns):
        if channels == 1:
            channel = 0
        elif turn.side is not None:
            channel = turn.side
        else:
            channel = labels.index(turn.label)
        job.builder.add_turn(
            turn.place,
            f"{call}-{turn.label}-{index:04d}".replace(" ", "_"),
            call,
            turn.start,
            turn.end,
            channel=channel,
            speaker=job.speaker(call, turn.label),
            text=turn.text,
        )


# -------------------------------------------------------------------------------- STM


@reader("stm", shared_speakers=True)
def read_stm_files(job: ImportJob) -> None:
    for path in job.files(".stm"):
        _add_stm_file(job, path)


def _add_stm_file(job: ImportJob, path: Path) -> None:
    for _, line in read_text(path, job.problems, (job.encoding,)):
        if not line.startswith(";;"):
            job.need_audio(line.split()[0])
    add_stm(
        job.builder,
        path,
        speaker=lambda segment: job.speaker(segment.recording, segment.speaker),
        encoding=job.encoding,
    )


# -------------------------------------------------------------------------- RTTM + CTM


@reader("rttm-ctm", shared_speakers=False)
def read_rttm_and_ctm(job: ImportJob) -> None:
    root = job.source if job.source.is_dir() else job.source.parent
    segments: List[Tuple[Path, RttmLine]] = []
    words: List[Tuple[Path, CtmWord]] = []
    for path in job.files(".rttm"):
        lines = _guarded(job, path, read_rttm, path, job.problems, encoding=job.encoding)
        segments += [(path, line) for line in lines or () if line.kind == "SPEAKER"]
    ctm_files = ImportJob(root, job.builder, job.audio).files(".ctm")
    if not ctm_files:
        raise InputError(f"{root}: RTTM files have no words; put the CTM files beside them")
    for path in ctm_files:
        lines = _guarded(job, path, read_ctm, path, job.problems, encoding=job.encoding)
        words += [(path, word) for word in lines or () if word.alternative == 0]
    spoken = assign_words(job, segments, words)
    calls: Dict[str, List[Turn]] = {}
    for (path, line), text in zip(segments, spoken):
        turn = Turn(
            where(path, line.line),
            line.start,
            line.end,
            line.speaker,
            " ".join(text),
            CHANNELS.get(line.channel.upper(), 0),
        )
        calls.setdefault(line.recording, []).append(turn)
    for call, turns in calls.items():
        _add_turns(job, call, turns)


def assign_words(
    job: ImportJob,
    segments: List[Tuple[Path, RttmLine]],
    words: List[Tuple[Path, CtmWord]],
) -> List[List[str]]:
    """The words of every segment: each goes to the segment that its middle lies in.

    Of several, the one on its channel that began last is taken, since an overlapping answer is
    shorter than what it answers.  Words outside every segment are reported.
    """
    spoken: List[List[str]] = [[] for _ in segments]
    order: Dict[Tuple[str, str], List[Tuple[float, int]]] = {}
    for index, (_, line) in enumerate(segments):
        order.setdefault((line.recording, line.channel), []).append((line.start, index))
    for starts in order.values():
        starts.sort()
    for path, word in sorted(words, key=lambda pair: pair[1].start):
        starts = order.get((word.recording, word.channel), [])
        position = bisect.bisect_right(starts, (word.middle, len(segments)))
        for _, index in reversed(starts[:position]):
            if word.middle <= segments[index][1].end:
                spoken[index].append(word.word)
                break
        else:
            job.problems.add("word outside every turn", where(path, word.line), word.word)
    return spoken


# ---------------------------------------------------------------------------- TextGrid


@reader("textgrid", shared_speakers=False)
def read_textgrids(job: ImportJob) -> None:
    for path in job.files(".textgrid"):
        _add_textgrid(job, path)


def _add_textgrid(job: ImportJob, path: Path) -> None:
    tiers = _guarded(job, path, read_textgrid, path, job.problems, encoding=job.encoding) or []
    turns: List[Turn] = []
    side = 0
    for tier in tiers:
        if tier.kind != "IntervalTier" or tier.name.lower().endswith("phones"):
            job.problems.add("tier passed over", str(path), tier.name)
            continue
        intervals = [interval for interval in tier.intervals if interval.text]
        if tier.name.lower().endswith("words"):
            intervals = join_words(intervals)
        label = re.sub(r"\s*-?\s*words$", "", tier.name, flags=re.IGNORECASE) or tier.name
        for interval in intervals:
            text = " ".join(interval.text.split())
            place = where(path, interval.line)
            turns.append(Turn(place, interval.start, interval.end, label, text, side))
        side += 1
    _add_turns(job, path.stem, turns)


def join_words(words: List[Interval]) -> List[Interval]:
    """Turns out of the words of a tier: a pause of :data:`WORD_GAP` seconds ends one."""
    turns: List[Interval] = []
    for word in words:
        if turns and word.start - turns[-1].end <= WORD_GAP:
            last = turns[-1]
            turns[-1] = last._replace(end=word.end, text=f"{last.text} {word.text}")
        else:
            turns.append(word)
    return turns


# -------------------------------------------------------------------------------- JSON

_TEXT = ("human_transcript", "text", "transcript")
_SIDE = ("speaker_role", "side", "channel", "speaker", "channel_index")


@reader("json", shared_speakers=False)
def read_json_files(job: ImportJob) -> None:
    for path in job.files(".json"):
        _add_json(job, path)


def _add_json(job: ImportJob, path: Path) -> None:
    content = _guarded(job, path, load_json, path, (list, dict))
    if isinstance(content, dict):
        content = content.get("segments", content.get("transcript"))
    if not isinstance(content, list):
        job.problems.add("no list of segments", str(path))
        return
    sides = sorted({_first(segment, _SIDE) for segment in content} - {""})
    for index, segment in enumerate(content, start=1):
        _add_json_segment(job, path.stem, f"{path}#{index}", segment, sides)


def _first(segment: Any, keys: Iterable[str]) -> str:
    """The first of ``keys`` that the segment has, as a string; empty if it has none."""
    if not isinstance(segment, dict):
        return ""
    return next((str(segment[key]) for key in keys if segment.get(key) is not None), "")


def _json_times(segment: Any) -> Optional[Tuple[float, float, Optional[float]]]:
    """Start and end in the file, and start in the conversation if that is another clock."""
    if not isinstance(segment, dict):
        return None
    starts = milliseconds(segment, "start_ms"), number(segment, "start")
    start = next((value for value in starts if value is not None), None)
    offsets = milliseconds(segment, "offset_ms"), number(segment, "offset")
    offset = next((value for value in offsets if value is not None), None)
    begin = start if offset is None else offset
    lengths = milliseconds(segment, "duration_ms"), number(segment, "duration")
    length = next((value for value in lengths if value is not None), None)
    if begin is None:
        return None
    if length is None:
        ends = milliseconds(segment, "end_ms"), number(segment, "end")
        end = next((value for value in ends if value is not None), None)
        length = None if end is None else end - (begin if start is None else start)
    if length is None:
        return None
    return begin, begin + length, None if offset is None else start


def _add_json_segment(
    job: ImportJob, call: str, place: str, segment: Any, sides: List[str]
) -> None:
    times = _json_times(segment)
    side = _first(segment, _SIDE)
    if times is None or not side:
        job.problems.add("segment without times or side", place, str(segment)[:60])
        return
    begin, end, conv_start = times
    recording_id, channel = _recording_of_side(job, call, side, sides)
    custom = {"conv_id": call, "side": side}
    if conv_start is not None:
        custom["conv_start"] = conv_start
    job.builder.add_turn(
        place,
        f"{call}-{side}-{place.rpartition('#')[2]}".replace(" ", "_"),
        recording_id,
        begin,
        end,
        channel=channel,
        speaker=job.speaker(call, _first(segment, ("speaker_id",)) or side),
        text=_first(segment, _TEXT),
        **custom,
    )


def _recording_of_side(
    job: ImportJob, call: str, side: str, sides: List[str]
) -> Tuple[str, int]:
    """The recording and channel of one side.

    A file a side is ``<side>/<call>.wav`` or ``<call>-<side>.wav`` (also with ``_`` or ``.``);
    else the sides of ``<call>.wav`` are its channels in the order of their names.
    """
    recording_id = f"{call}-{side}"
    if recording_id in job.builder.recordings:
        return recording_id, 0
    in_folder = [path for path in job.audio.get(call, []) if path.parent.name == side]
    named = [p for sign in "-_." for p in job.audio.get(f"{call}{sign}{side}", [])]
    for path in in_folder + named:
        if job.builder.add_recording(path, recording_id):
            return recording_id, 0
    job.need_audio(call)
    recording = job.builder.recordings.get(call)
    mono = recording is None or recording.num_channels == 1
    return call, 0 if mono else sides.index(side)


# ------------------------------------------------------------- a folder of calls


@reader("calls", shared_speakers=False)
def read_folder_of_calls(job: ImportJob) -> None:
    """Each audio file with the transcript of its name: .stm, .TextGrid, .json or .txt."""
    root = job.source if job.source.is_dir() else job.source.parent
    suffixes = {".stm": _add_stm_file, ".textgrid": _add_textgrid, ".json": _add_json}
    suffixes[".txt"] = _add_text_file
    done = set()
    for path in ImportJob(root, job.builder, job.audio).files(*suffixes):
        if path.stem not in job.audio:
            job.problems.add("transcript without audio", str(path))
        elif path.stem in done:
            job.problems.add("second transcript of a call", str(path))
        else:
            done.add(path.stem)
            suffixes[path.suffix.lower()](job, path)
    for name in sorted(job.audio.keys() - done):
        job.problems.add("call without a transcript", str(job.audio[name][0]))


def _add_text_file(job: ImportJob, path: Path) -> None:
    """Lines ``12.3 14.5 A: text``, or ``[12.3,14.5]<tab>speaker<tab>...<tab>text``."""
    lines = list(read_text(path, job.problems, (job.encoding, "gb18030")))
    if any(line.lstrip().startswith("[") for _, line in lines[:3]):
        timed = read_timed_lines(path, job.problems)
        turns = [Turn(t.place, t.start, t.end, t.speaker, t.text) for t in timed]
    else:
        turns = []
        for line_number, line in lines:
            turn = parse_ldc_turn(line)
            if turn:
                start, end, side, text = turn
                place = where(path, line_number)
                turns.append(Turn(place, start, end, side, text, "AB".index(side)))
            elif not line.startswith(("#", ";")):
                place = where(path, line_number)
                job.problems.add("not 'start end A: text'", place, line[:60])
    _add_turns(job, path.stem, turns)
