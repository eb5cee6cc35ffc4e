"""Reference and hypothesis out of any of the field's formats, matched into utterances."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from icefall_ctx.errors import InputError, Pathlike, ProblemLog
from icefall_ctx.formats.ctm import CtmWord, read_ctm
from icefall_ctx.formats.kaldi import read_table
from icefall_ctx.formats.lhotse_json import Supervision, read_supervisions
from icefall_ctx.formats.lines import is_comment, read_lines
from icefall_ctx.formats.stm import StmSegment, read_stm, read_stm_labels
from icefall_ctx.formats.trn import read_trn
from icefall_ctx.score.nist import Assigned, assign_words, spread_words, words_to_text
from icefall_ctx.score.results import read_transcripts
from icefall_ctx.score.wer import Utterance

FORMATS = ("stm", "trn", "ctm", "kaldi", "lhotse", "recogs")


@dataclass
class Transcripts:
    """What a file holds: texts by utterance id, or segments with times, or words with times."""

    path: Pathlike
    format: str
    texts: Dict[str, str] = field(default_factory=dict)
    segments: List[StmSegment] = field(default_factory=list)
    words: List[CtmWord] = field(default_factory=list)
    details: Dict[str, Utterance] = field(default_factory=dict)  # conversation, speaker, ...
    titles: Dict[str, str] = field(default_factory=dict)  # of STM labels
    hyps: Dict[str, Optional[List[str]]] = field(default_factory=dict)  # second half of recogs

    @property
    def has_times(self) -> bool:
        return bool(self.segments or self.words) or self.format in ("stm", "ctm")

    @property
    def notation(self) -> bool:
        """Whether braces, slashes and parentheses are NIST's notation rather than text."""
        return self.format in ("stm", "trn", "ctm")


def detect_format(path: Pathlike) -> str:
    """By suffix, else by the first lines.

    Raises:
      InputError: no such file, or nothing in it to tell by.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    for name in ("stm", "trn", "ctm"):
        if f".{name}" in suffixes[-2:]:
            return name
    if any(suffix in suffixes[-2:] for suffix in (".jsonl", ".json")):
        return "lhotse"
    lines = [line for _, line in islice(read_lines(path), 50) if not is_comment(line)]
    if not lines:
        raise InputError(f"{path}: empty file; transcripts are wanted")
    if re.search(r":\t(ref|hyp)=", lines[0]):
        return "recogs"
    if lines[0].lstrip().startswith(("{\"", "[{", "[\n")):
        return "lhotse"
    number = r"-?\d+(\.\d*)?"
    if all(re.match(rf"\S+ +\S+ +\S+ +{number} +{number}( |$)", line) for line in lines):
        return "stm"
    if all(re.match(rf"\S+ +\S+ +({number} +{number}|\* +\*) +\S", line) for line in lines):
        return "ctm"
    if all(re.search(r"\([^()\s]+\)\s*$", line) for line in lines):
        return "trn"
    return "kaldi"


def load(
    path: Pathlike, log: ProblemLog, *, format: str = "", encoding: str = "utf-8"
) -> Transcripts:
    """Read one file of any of :data:`FORMATS`.

    Raises:
      InputError: nothing usable in it.
    """
    format = format or detect_format(path)
    result = Transcripts(path, format)
    _READERS[format](result, log, encoding)
    if not (result.texts or result.segments or result.words):
        raise InputError(f"{path}: no usable line in it, read as {format}; is it another format?")
    return result


def _load_stm(result: Transcripts, log: ProblemLog, encoding: str) -> None:
    result.segments = read_stm(result.path, log, encoding=encoding)
    result.titles = read_stm_labels(result.path, encoding=encoding)


def _load_ctm(result: Transcripts, log: ProblemLog, encoding: str) -> None:
    result.words = read_ctm(result.path, log, encoding=encoding)


def _load_trn(result: Transcripts, log: ProblemLog, encoding: str) -> None:
    for line in read_trn(result.path, log, encoding=encoding):
        result.texts[line.utt_id] = line.text
        result.details[line.utt_id] = Utterance(line.utt_id, [], [], speaker=line.speaker)


def _load_kaldi(result: Transcripts, log: ProblemLog, encoding: str) -> None:
    result.texts = read_table(result.path, log, encoding=encoding)


def _load_recogs(result: Transcripts, log: ProblemLog, encoding: str) -> None:
    for utterance in read_transcripts(result.path, log):
        result.texts[utterance.utt_id] = " ".join(utterance.ref)
        result.hyps[utterance.utt_id] = utterance.hyp


def _load_lhotse(result: Transcripts, log: ProblemLog, encoding: str) -> None:
    for item in read_supervisions(result.path, log):
        if item.utt_id in result.texts:
            log.add("repeated utterance", f"{result.path}:{item.line}", item.utt_id)
            continue
        result.texts[item.utt_id] = item.text
        result.details[item.utt_id] = _detail(item)
        if item.end >= item.start >= 0:
            result.segments.append(_segment(item))


def _detail(item: Supervision) -> Utterance:
    place = (item.conv_id, item.speaker, item.side, item.turn, item.snr)
    return Utterance(item.utt_id, [], [], *place)


def _segment(item: Supervision) -> StmSegment:
    """The utterance id travels as the only label."""
    speaker = item.speaker or "unknown"
    times = (item.start, item.end)
    return StmSegment(
        item.recording, item.channel, speaker, *times, item.text, (item.utt_id,), item.line
    )


_READERS = {
    "stm": _load_stm,
    "ctm": _load_ctm,
    "trn": _load_trn,
    "kaldi": _load_kaldi,
    "lhotse": _load_lhotse,
    "recogs": _load_recogs,
}


@dataclass
class Matched:
    utterances: List[Utterance]
    segments: List[StmSegment] = field(default_factory=list)  # of each utterance, or none


def match(ref: Transcripts, hyp: Optional[Transcripts], log: ProblemLog) -> Matched:
    """Utterances with both sides, in the order of the reference.

    Raises:
      InputError: the two formats do not go together.
    """
    if hyp is None:
        if ref.format != "recogs":
            raise InputError(f"{ref.path}: holds no hypotheses; name a second file with them")
        return Matched([_utterance(ref, utt_id, ref.hyps[utt_id]) for utt_id in ref.texts])
    if not hyp.texts:
        return _match_by_time(ref, hyp, log)
    if not ref.texts:
        raise InputError(
            f"{hyp.path}: has no times, but {ref.path} is matched by time; "
            "give hypotheses as CTM or STM, or references with utterance ids"
        )
    return _match_by_id(ref, hyp, log)


def _utterance(ref: Transcripts, utt_id: str, hyp: Optional[List[str]]) -> Utterance:
    detail = ref.details.get(utt_id, Utterance(utt_id, [], []))
    return replace(detail, ref=ref.texts[utt_id].split(), hyp=hyp)


def _match_by_id(ref: Transcripts, hyp: Transcripts, log: ProblemLog) -> Matched:
    found: Dict[str, Optional[List[str]]] = {k: text.split() for k, text in hyp.texts.items()}
    if hyp.format == "recogs":
        found = dict(hyp.hyps)
    utterances = []
    for utt_id in ref.texts:
        if utt_id not in found:
            log.add("utterance without output", str(hyp.path), utt_id)
        utterances.append(_utterance(ref, utt_id, found.pop(utt_id, None)))
    for utt_id in found:
        log.add("output without reference", str(hyp.path), utt_id)
    if utterances and all(utterance.hyp is None for utterance in utterances):
        raise InputError(
            f"{hyp.path}: no utterance id of {ref.path} occurs in it, "
            f"for example '{utterances[0].utt_id}'"
        )
    return Matched(utterances, _places(ref, utterances))


def _places(ref: Transcripts, utterances: Sequence[Utterance]) -> List[StmSegment]:
    """Where each utterance of a Lhotse manifest is; nothing if one is unknown.

    Sides A and B are channels by these names in NIST's files.
    """
    places = {segment.labels[0]: segment for segment in ref.segments}
    if not all(utterance.utt_id in places for utterance in utterances):
        return []
    return [
        replace(places[u.utt_id], channel=u.side) if u.side in ("A", "B") else places[u.utt_id]
        for u in utterances
    ]


def _match_by_time(ref: Transcripts, hyp: Transcripts, log: ProblemLog) -> Matched:
    segments = ref.segments or _whole_channels(ref.words)
    if not segments:
        raise InputError(
            f"{ref.path}: has no times to place the words of {hyp.path}; "
            "give references as STM or a Lhotse manifest"
        )
    words = hyp.words or spread_words(s for s in hyp.segments if not s.ignored)
    kept = [entry for entry in assign_words(segments, words, log) if not entry.segment.ignored]
    ignored = len(segments) - len(kept)
    if ignored:
        logging.info("%s: %d segments marked not to be scored are left out", ref.path, ignored)
    if not any(entry.words for entry in kept) and words:
        raise InputError(f"{hyp.path}: none of its recordings and channels is in {ref.path}")
    utterances = _timed_utterances(ref, kept)
    return Matched(utterances, [entry.segment for entry in kept])


def _whole_channels(words: Sequence[CtmWord]) -> List[StmSegment]:
    """A reference CTM: one segment a channel."""
    channels: Dict[tuple, List[CtmWord]] = defaultdict(list)
    for word in words:
        channels[word.recording, word.channel].append(word)
    return [
        StmSegment(*key, "unknown", 0, max(word.end for word in group), words_to_text(group))
        for key, group in channels.items()
    ]


def _timed_utterances(ref: Transcripts, kept: Sequence[Assigned]) -> List[Utterance]:
    turns: Counter = Counter()
    seen: Counter = Counter()
    by_start = sorted(kept, key=lambda e: (e.segment.recording, e.segment.start))
    turn_of = {}
    for entry in by_start:
        turn_of[id(entry)] = turns[entry.segment.recording]
        turns[entry.segment.recording] += 1
    utterances = []
    for entry in kept:
        segment, hyp = entry.segment, words_to_text(entry.words).split()
        if ref.format == "lhotse":
            utterances.append(_utterance(ref, segment.labels[0], hyp))
            continue
        utt_id = f"{segment.recording}-{segment.channel}-{segment.start:.2f}-{segment.end:.2f}"
        seen[utt_id] += 1
        utt_id += f"-{seen[utt_id]}" if seen[utt_id] > 1 else ""
        place = (segment.recording, segment.speaker, segment.channel, turn_of[id(entry)])
        utterances.append(Utterance(utt_id, segment.text.split(), hyp, *place))
    return utterances


def add_details(utterances: Sequence[Utterance], manifest: Transcripts) -> List[Utterance]:
    """Conversation, speaker, side and turn from a Lhotse manifest, by utterance id."""
    details = manifest.details
    return [
        replace(details[u.utt_id], ref=u.ref, hyp=u.hyp) if u.utt_id in details else u
        for u in utterances
    ]
