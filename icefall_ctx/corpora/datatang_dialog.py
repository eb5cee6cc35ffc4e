"""Datatang Mandarin dialogue: telephone calls or face-to-face talk, as the vendor delivers them.

Deliveries differ.  This reader takes one audio file a call (one channel, or one channel a
speaker) and a transcript of the same name beside it or in a folder of its own, each line
``[start,end]<tab>speaker<tab>gender,region<tab>text``, in UTF-8 or GB18030.

There are no official parts: calls with ``/dev/`` or ``/test/`` in their path are those, else one
call in twenty is held out for each, chosen by name, so that runs agree.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Dict, Optional

from icefall_ctx.corpora.magicdata_ramc import PARTS, add_dialog
from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import (
    AUDIO_SUFFIXES,
    ManifestBuilder,
    by_stem,
    find_files,
    finish,
    require_dir,
    split_manifests,
)
from icefall_ctx.errors import Pathlike, ProblemLog


def part_of_call(path: Path, root: Path) -> str:
    """The part named by a folder below ``root``; else ``train``, and 5 % each dev and test."""
    folders = [folder.lower() for folder in path.relative_to(root).parent.parts]
    for part in PARTS:
        if part in folders:
            return part
    bucket = hashlib.md5(path.stem.encode()).digest()[0] % 20
    return {18: "dev", 19: "test"}.get(bucket, "train")


def prepare_datatang_dialog(
    corpus_dir: Pathlike,
    output_dir: Optional[Pathlike] = None,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Read the corpus; parts ``train``, ``dev`` and ``test`` (see :func:`part_of_call`).

    :param corpus_dir: the delivery.
    :param output_dir: where to write the manifests, if anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    """
    problems = ProblemLog() if problems is None else problems
    root = require_dir(corpus_dir, "Datatang dialogue")
    builder = ManifestBuilder(problems, language="Chinese")
    part_of: Dict[str, str] = {}
    for call, path in by_stem(find_files(root, AUDIO_SUFFIXES), problems, "calls").items():
        builder.add_recording(path, call)
        part_of[call] = part_of_call(path, root)
    texts = by_stem(find_files(root, ".txt"), problems, "transcripts")
    for call in sorted(texts.keys() & part_of.keys()):
        add_dialog(builder, texts[call], [], "datatang")
    parts = split_manifests(builder.manifests(), part_of)
    return finish("datatang_dialog", parts, problems, output_dir)
