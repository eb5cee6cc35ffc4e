"""HKUST Mandarin telephone speech: LDC2005S15 (audio) and LDC2005T32 (transcripts).

Two-channel 8 kHz SPHERE files ``audio/{train,dev}/<date>_<time>_A<pin>_B<pin>.sph``, and for each a
transcript ``trans/{train,dev}/<same>.txt`` in a GB encoding::

    # 20040503_220846_A901153_B901154
    0.58 3.21 A: 喂 你 好
    2.90 4.02 B: {laugh} <foreign language="English"> hello </foreign>

The official development set is the ``dev`` folder (24 calls); the papers report on it, so that
checkpoints are to be chosen by calls of the training set.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Optional

from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import (
    ManifestBuilder,
    by_stem,
    find_files,
    finish,
    parse_ldc_turn,
    read_text,
    remove_spans,
    require_dir,
    split_manifests,
)
from icefall_ctx.errors import Pathlike, ProblemLog, where

PARTS = ("train", "dev")
ENCODINGS = ("utf-8", "gb18030")

_FILE_NAME = re.compile(r"\d+_\d+_A(?P<A>\d+)_B(?P<B>\d+)$", re.IGNORECASE)
_NOISES = r"\{[^}]*\}|\[[^\]]*\]"
_TAGS = r"</?[^>]*>"
_MARKS = r"[()（）*+~^%#=]|[，。？！、；：“”‘’…《》,.?!;:\"]"


def clean_hkust_text(text: str) -> str:
    """What was said, without the markup of the transcribers.

    Noises in braces go, tagged and doubtful (``((...))``) words stay, punctuation goes.  Blanks
    between characters stay as they were: they are word boundaries of the transcriber.
    """
    for pattern in (_NOISES, _TAGS, _MARKS):
        text = remove_spans(text, pattern)
    return text


def _part(path: Path, root: Path) -> Optional[str]:
    """``train`` or ``dev``, by the nearest folder below ``root`` that is called so."""
    folders = [folder.lower() for folder in path.relative_to(root).parent.parts]
    return next((folder for folder in reversed(folders) if folder in PARTS), None)


def _speaker(call: str, side: str) -> str:
    """The participant's number in the file name, the same in every call of that person."""
    match = _FILE_NAME.search(call)
    return f"hkust-{match.group(side)}" if match else f"{call}-{side}"


def _add_call(builder: ManifestBuilder, path: Path) -> None:
    call = path.stem
    for number, line in read_text(path, builder.problems, ENCODINGS):
        if line.lstrip().startswith("#"):
            continue
        turn = parse_ldc_turn(line)
        if turn is None:
            builder.problems.add("not 'start end A: text'", where(path, number), line[:60])
            continue
        start, end, side, text = turn
        builder.add_turn(
            where(path, number),
            f"{call}-{side}-{round(start * 100):06d}-{round(end * 100):06d}",
            call,
            start,
            end,
            channel="AB".index(side),
            speaker=_speaker(call, side),
            text=clean_hkust_text(text),
            side=side,
        )


def prepare_hkust(
    corpus_dir: Pathlike,
    transcript_dir: Optional[Pathlike] = None,
    output_dir: Optional[Pathlike] = None,
    problems: Optional[ProblemLog] = None,
    num_valid_calls: int = 0,
) -> Dict[str, Manifests]:
    """Read the corpus; parts ``train``, ``valid`` (with ``num_valid_calls``) and ``dev``.

    :param corpus_dir: the folder of LDC2005S15, or one that holds both.
    :param transcript_dir: the folder of LDC2005T32, ``corpus_dir`` if not given.
    :param output_dir: where to write the manifests, if anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    :param num_valid_calls: the first so many calls of the training set, by date, are the part
        ``valid``.
    """
    problems = ProblemLog() if problems is None else problems
    audio_root = require_dir(corpus_dir, "HKUST (LDC2005S15)")
    text_root = require_dir(transcript_dir or corpus_dir, "HKUST transcripts (LDC2005T32)")
    builder = ManifestBuilder(problems, language="Chinese")
    part_of: Dict[str, str] = {}
    for path in find_files(audio_root, ".sph"):
        part = _part(path, audio_root)
        if part is None:
            problems.add("neither in a train nor in a dev folder", str(path))
        elif builder.add_recording(path, path.stem):
            part_of[path.stem] = part
    texts = (path for path in find_files(text_root, ".txt") if _part(path, text_root))
    for path in by_stem(texts, problems, "transcripts").values():
        _add_call(builder, path)
    manifests = builder.manifests()
    train = [r.id for r in manifests["recordings"] if part_of[r.id] == "train"]
    part_of.update(dict.fromkeys(train[:num_valid_calls], "valid"))
    return finish("hkust", split_manifests(manifests, part_of), problems, output_dir)
