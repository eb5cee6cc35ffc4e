"""MagicData-RAMC: 180 h of Mandarin dialogue, 351 calls, 16 kHz, openly downloadable (SLR123).

::

    DataPartition/{train,dev,test}.tsv        the official parts, one WAV name a line
    MDT2021S003/WAV/<call>.wav
    MDT2021S003/TXT/<call>.txt                [1.319,6.691]<tab>G00000140<tab>女,普通话<tab>text
    MDT2021S003/UTTERANCEINFO.txt             the two speakers of each call, in order
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Optional

from icefall_ctx.corpora.bracketed import clean_dialog_text, read_timed_lines
from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import (
    ManifestBuilder,
    by_stem,
    find_files,
    finish,
    read_text,
    require_dir,
    split_manifests,
)
from icefall_ctx.errors import InputError, Pathlike, ProblemLog

PARTS = ("train", "dev", "test")
_WAV = re.compile(r"([\w.-]+)\.wav", re.IGNORECASE)
_SPEAKER = re.compile(r"G\d+")


def _read_parts(root: Path, problems: ProblemLog) -> Dict[str, str]:
    """Call -> part, from the official partition."""
    part_of: Dict[str, str] = {}
    for part in PARTS:
        paths = find_files(root, f"{part}.tsv")
        if not paths:
            raise InputError(f"{root}: no {part}.tsv below it; the folder DataPartition has it")
        for _, line in read_text(paths[0], problems):
            match = _WAV.search(line)
            if match:  # the first line is a header
                part_of[match.group(1)] = part
    return part_of


def _read_speaker_order(root: Path, problems: ProblemLog) -> Dict[str, List[str]]:
    """Call -> its speakers, the one of channel 0 first, from ``UTTERANCEINFO.txt``."""
    order: Dict[str, List[str]] = {}
    for path in find_files(root, "utteranceinfo.txt"):
        for _, line in read_text(path, problems):
            match = _WAV.search(line)
            if match:
                order[match.group(1)] = _SPEAKER.findall(line[match.end() :])
    return order


def add_dialog(builder: ManifestBuilder, path: Path, speakers: List[str], prefix: str) -> None:
    """The turns of one call.

    In a one-channel file every turn is on channel 0.  In a two-channel one the n-th of
    ``speakers`` is on channel n; without a list, they are numbered as they first speak.
    """
    recording = builder.recordings.get(path.stem)
    channels = recording.num_channels if recording else 1
    speakers = list(speakers)
    for number, line in enumerate(read_timed_lines(path, builder.problems), start=1):
        if line.speaker not in speakers:
            speakers.append(line.speaker)
        builder.add_turn(
            line.place,
            f"{path.stem}-{line.speaker}-{number:04d}",
            path.stem,
            line.start,
            line.end,
            channel=speakers.index(line.speaker) if channels > 1 else 0,
            speaker=f"{prefix}-{line.speaker}",
            text=clean_dialog_text(line.text),
            gender=line.gender,
        )


def prepare_magicdata_ramc(
    corpus_dir: Pathlike,
    output_dir: Optional[Pathlike] = None,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Read the corpus; the official parts ``train``, ``dev`` and ``test``.

    :param corpus_dir: the unpacked archive; holds ``DataPartition`` and ``MDT2021S003``.
    :param output_dir: where to write the manifests, if anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    """
    problems = ProblemLog() if problems is None else problems
    root = require_dir(corpus_dir, "MagicData-RAMC")
    part_of = _read_parts(root, problems)
    order = _read_speaker_order(root, problems)
    builder = ManifestBuilder(problems, language="Chinese")
    for call, path in by_stem(find_files(root, ".wav"), problems, "calls").items():
        if call in part_of:
            builder.add_recording(path, call)
        else:
            problems.add("call in no part", str(path))
    texts = (path for path in find_files(root, ".txt") if path.parent.name.upper() == "TXT")
    for path in by_stem(texts, problems, "transcripts").values():
        add_dialog(builder, path, order.get(path.stem, []), "ramc")
    parts = split_manifests(builder.manifests(), part_of)
    return finish("magicdata_ramc", parts, problems, output_dir)
