"""TED-LIUM release 2: 1,495 talks, 16 kHz SPHERE, STM transcripts; a talk is a conversation.

::

    {train,dev,test}/sph/<talk>.sph
    {train,dev,test}/stm/<talk>.stm     <talk> 1 <talk> 14.87 16.00 <o,f0,male> words

The folders ``dev`` (8 talks, 507 segments) and ``test`` (11 talks, 1,155 segments) are the
official sets.  Lhotse has a recipe too; it needs the program ``sph2pipe`` and stops at the first
talk without audio, which is why this reader exists.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Optional

from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import (
    ManifestBuilder,
    find_files,
    finish,
    remove_spans,
    require_dir,
)
from icefall_ctx.corpora.stm_corpus import add_stm
from icefall_ctx.errors import InputError, Pathlike, ProblemLog

PARTS = ("train", "dev", "test")

_NOISES = r"<[^>]*>|\[[^\]]*\]|\{[^}]*\}"
_VARIANT = re.compile(r"(\w)\(\d+\)")  # "the(2)", a pronunciation variant
_SUFFIX = re.compile(r"(\w) '(\w)")  # "they 're"
_PREFIX = re.compile(r"(^|\s)' (\w)")  # "' cause"


def clean_tedlium_text(text: str) -> str:
    """Words as they are written elsewhere: suffixes joined, no noises, no variant numbers."""
    text = remove_spans(_VARIANT.sub(r"\1", text), _NOISES)
    return _PREFIX.sub(r"\1'\2", _SUFFIX.sub(r"\1'\2", text))


def read_tedlium(root: Path, problems: ProblemLog) -> Dict[str, Manifests]:
    """The parts below ``root``, which release 3 calls ``legacy``; a missing one is a problem."""
    parts: Dict[str, Manifests] = {}
    for part in PARTS:
        if not (root / part).is_dir():
            problems.add("part missing", str(root / part))
            continue
        builder = ManifestBuilder(problems, language="English")
        for path in find_files(root / part, ".sph"):
            builder.add_recording(path, path.stem)
        for path in find_files(root / part, ".stm"):
            add_stm(builder, path, clean=clean_tedlium_text, default_channel=0)
        parts[part] = builder.manifests()
    if not parts:
        raise InputError(f"{root}: none of the folders {', '.join(PARTS)} is here")
    return parts


def prepare_tedlium2(
    corpus_dir: Pathlike,
    output_dir: Optional[Pathlike] = None,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Read the corpus; the official parts ``train``, ``dev`` and ``test``.

    :param corpus_dir: ``TEDLIUM_release2``.
    :param output_dir: where to write the manifests, if anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    """
    problems = ProblemLog() if problems is None else problems
    root = require_dir(corpus_dir, "TED-LIUM 2 (TEDLIUM_release2)")
    parts = read_tedlium(root, problems)
    return finish("tedlium2", parts, problems, output_dir)
