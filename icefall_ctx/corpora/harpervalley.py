"""HarperValleyBank: 1,446 simulated bank calls, openly licensed, 8 kHz, one file a side.

::

    data/audio/{agent,caller}/<sid>.wav    the two sides, of different start and length
    data/transcript/<sid>.json             a list of segments
    data/metadata/<sid>.json               speaker ids of both sides, tasks

A segment has two clocks: ``offset_ms`` is its position in the file of its side, ``start_ms`` its
position in the conversation.  They differ, by about two seconds for the agent, so audio is cut by
the first and turns are ordered by the second (``custom["conv_start"]``).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Dict, Optional

from icefall_ctx.corpora.json_segments import load_json, milliseconds
from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import (
    ManifestBuilder,
    find_files,
    finish,
    remove_spans,
    report,
    require_dir,
    split_manifests,
)
from icefall_ctx.errors import InputError, Pathlike, ProblemLog

SIDES = ("agent", "caller")
_TAGS = r"\[[^\]]*\]|<[^>]*>"


def clean_harpervalley_text(text: str) -> str:
    """The human transcript without tags such as ``[noise]`` and ``<unk>``."""
    return remove_spans(text, _TAGS)


def part_of_call(sid: str) -> str:
    """``train``, ``dev`` or ``test`` (80, 10, 10 %), by a hash of the call's id.

    The corpus has no official parts.  A call is never cut in two; its speakers (59 in all) occur
    in every part.
    """
    bucket = hashlib.md5(sid.encode()).digest()[0] % 10
    return {8: "dev", 9: "test"}.get(bucket, "train")


def _read_speakers(path: Path, problems: ProblemLog) -> Dict[str, str]:
    """Speaker of each side; a side without a speaker id is a speaker of its own."""
    try:
        metadata = load_json(path, dict)
    except InputError as error:
        report(problems, "no speaker ids", error, path)
        metadata = {}
    speakers = {}
    for side in SIDES:
        entry = metadata.get(side)
        number = entry.get("speaker_id") if isinstance(entry, dict) else None
        speakers[side] = f"{path.stem}-{side}" if number is None else f"harpervalley-{number}"
    return speakers


def _add_segment(
    builder: ManifestBuilder, place: str, sid: str, segment: Any, speakers: Dict[str, str]
) -> None:
    side = segment.get("speaker_role") if isinstance(segment, dict) else None
    if side not in SIDES:
        builder.problems.add("segment without a side", place, str(segment)[:60])
        return
    offset, duration = milliseconds(segment, "offset_ms"), milliseconds(segment, "duration_ms")
    start = milliseconds(segment, "start_ms")
    text = segment.get("human_transcript")
    if offset is None or duration is None or start is None or not isinstance(text, str):
        builder.problems.add("segment without times or text", place, str(segment)[:60])
        return
    builder.add_turn(
        place,
        f"{sid}-{side}-{segment.get('index', place.rpartition('#')[2])}",
        f"{sid}-{side}",
        offset,
        offset + duration,
        channel=0,
        speaker=speakers[side],
        text=clean_harpervalley_text(text),
        conv_id=sid,
        conv_start=start,
        side=side,
    )


def prepare_harpervalley(
    corpus_dir: Pathlike,
    output_dir: Optional[Pathlike] = None,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Read the corpus; parts ``train``, ``dev`` and ``test`` (see :func:`part_of_call`).

    :param corpus_dir: the checkout; the folder that holds ``data/``.
    :param output_dir: where to write the manifests, if anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    """
    problems = ProblemLog() if problems is None else problems
    root = require_dir(corpus_dir, "HarperValley")
    root = require_dir(root / "data" if (root / "data").is_dir() else root, "HarperValley")
    builder = ManifestBuilder(problems, language="English")
    part_of: Dict[str, str] = {}
    for path in find_files(require_dir(root / "transcript", "HarperValley transcripts"), ".json"):
        sid = path.stem
        try:
            segments = load_json(path, list)
        except InputError as error:
            report(problems, "unreadable transcript", error, path)
            continue
        for side in SIDES:
            builder.add_recording(root / "audio" / side / f"{sid}.wav", f"{sid}-{side}")
            part_of[f"{sid}-{side}"] = part_of_call(sid)
        speakers = _read_speakers(root / "metadata" / f"{sid}.json", problems)
        for number, segment in enumerate(segments, start=1):
            _add_segment(builder, f"{path}#{number}", sid, segment, speakers)
    parts = split_manifests(builder.manifests(), part_of)
    return finish("harpervalley", parts, problems, output_dir)
