"""Switchboard-1 (LDC97S62) with the Mississippi State transcripts.

Two-channel 8 kHz SPHERE files ``sw02001.sph`` in any folders, and two transcripts a call,
``sw2001A-ms98-a-trans.text`` and ``sw2001B-ms98-a-trans.text``, one turn a line::

    sw2001A-ms98-a-0002 0.977625 11.561375 hi um yeah i'd like to talk about [noise]

The tables of the distribution give the persons: ``call_con_tab.csv`` (conversation, side,
caller, ...), or ``conv.tab`` (conversation, ..., caller A, caller B, ...) of earlier releases.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Tuple

from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import (
    ManifestBuilder,
    by_stem,
    find_files,
    finish,
    parse_span,
    read_text,
    remove_spans,
    require_dir,
    split_manifests,
)
from icefall_ctx.errors import Pathlike, ProblemLog, where

# The calls held out for validation: the lowest numbers, about 4,000 turns, as recipes of the
# field do; whole calls here, so that no conversation is cut in two.
NUM_DEV_CALLS = 40

_TRANSCRIPT = re.compile(r"sw(?P<call>\d{4})(?P<side>[AB])-ms98-a-trans\.text$", re.IGNORECASE)

Callers = Dict[Tuple[str, str], str]  # (call, side) -> caller number

# Mississippi State markup, applied in this order.
_REWRITES = (
    (re.compile(r"\[laughter-([^\]]+)\]"), r"\1"),  # said while laughing
    (re.compile(r"\[([^\]/\s]+)/([^\]\s]+)\]"), r"\2"),  # [said/meant]: the word that was meant
    (re.compile(r"(\w)\[[^\]\s]*\](-)|(-)\[[^\]\s]*\](\w)"), r"\1\2\3\4"),  # th[at]- -> th-
    (re.compile(r"\{([^}]*)\}"), r"\1"),  # coinages
    (re.compile(r"\b(\w[\w']*)_\d+\b"), r"\1"),  # them_1, a pronunciation variant
)
_NOISES = r"\[[^\]]*\]|<[^>]*>"


def clean_swbd_text(text: str) -> str:
    """The words of one line, in the transcriber's case; partial words keep their hyphen."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return remove_spans(text, _NOISES)


def _rows(path: Path, problems: ProblemLog) -> Iterator[Tuple[int, List[str]]]:
    for number, line in read_text(path, problems, ("utf-8", "latin-1")):
        try:
            row = next(csv.reader([line], skipinitialspace=True))
        except csv.Error as error:
            problems.add("not a line of the caller table", where(path, number), str(error))
            continue
        yield number, [field.strip() for field in row]


def read_callers(path: Path, problems: ProblemLog) -> Callers:
    """Caller numbers by ``("2001", "A")`` from ``call_con_tab.csv`` or ``conv.tab``."""
    by_side = path.name.lower() == "call_con_tab.csv"
    callers: Callers = {}
    for number, row in _rows(path, problems):
        if by_side and len(row) >= 3 and row[1] in ("A", "B") and row[2]:
            callers[row[0], row[1]] = row[2]
        elif not by_side and len(row) >= 4 and row[0].isdigit() and row[2] and row[3]:
            callers[row[0], "A"], callers[row[0], "B"] = row[2], row[3]
        else:
            problems.add("not a line of the caller table", where(path, number), ",".join(row)[:60])
    return callers


def _find_callers(roots: Tuple[Path, ...], problems: ProblemLog) -> Callers:
    for name in ("call_con_tab.csv", "conv.tab"):
        for root in roots:
            for path in find_files(root, name):
                return read_callers(path, problems)
    problems.add("no caller table", str(roots[0]), "each side of each call is its own speaker")
    return {}


def _add_side(builder: ManifestBuilder, path: Path, callers: Callers) -> None:
    match = _TRANSCRIPT.search(path.name)
    call, side = match.group("call"), match.group("side").upper()
    recording_id = f"sw0{call}"
    caller = callers.get((call, side))
    for number, line in read_text(path, builder.problems):
        turn_id, *fields = line.split(None, 3)
        span = parse_span(*fields[:2]) if len(fields) >= 2 else None
        if span is None:
            builder.problems.add("not 'id start end text'", where(path, number), line[:60])
            continue
        text = fields[2].strip() if len(fields) == 3 else ""
        if text == "[silence]":  # the gaps between turns have lines of their own
            continue
        builder.add_turn(
            where(path, number),
            turn_id,
            recording_id,
            *span,
            channel="AB".index(side),
            speaker=f"sw-{caller}" if caller else f"{recording_id}-{side}",
            text=clean_swbd_text(text),
            side=side,
        )


def prepare_swbd(
    corpus_dir: Pathlike,
    transcript_dir: Optional[Pathlike] = None,
    output_dir: Optional[Pathlike] = None,
    num_dev_calls: int = NUM_DEV_CALLS,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Read the corpus; parts ``train`` and ``dev`` (the first ``num_dev_calls`` calls).

    :param corpus_dir: the folder of LDC97S62.
    :param transcript_dir: ``swb_ms98_transcriptions``; below ``corpus_dir`` if not given.
    :param output_dir: where to write the manifests, if anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    """
    problems = ProblemLog() if problems is None else problems
    audio_root = require_dir(corpus_dir, "Switchboard (LDC97S62)")
    text_root = require_dir(transcript_dir or corpus_dir, "swb_ms98_transcriptions")
    builder = ManifestBuilder(problems, language="English")
    for stem, path in by_stem(find_files(audio_root, ".sph"), problems, "calls").items():
        builder.add_recording(path, stem)
    callers = _find_callers((audio_root, text_root), problems)
    for path in find_files(text_root, "-trans.text"):
        if _TRANSCRIPT.search(path.name):
            _add_side(builder, path, callers)
    manifests = builder.manifests()
    calls = [recording.id for recording in manifests["recordings"]]
    dev = set(calls[:num_dev_calls])
    part_of = {call: "dev" if call in dev else "train" for call in calls}
    return finish("swbd", split_manifests(manifests, part_of), problems, output_dir)
