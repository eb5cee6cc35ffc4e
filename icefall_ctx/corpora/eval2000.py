"""eval2000, the Hub5 2000 test set: LDC2002S09 (audio) and LDC2002T43 (references).

Forty two-channel calls, ``hub5e_00/english/*.sph``: twenty from Switchboard (``sw_4390``) and
twenty from CallHome (``en_4156``).  The segments to decode, and to score, are those of the STM
reference ``hub5e00.english.000405.stm`` (or of another date).  Lhotse has a recipe that takes
the segments of the transcripts instead, which are not the ones that are scored.
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
from icefall_ctx.formats.stm import StmSegment

_STM_NAME = re.compile(r"hub5e00\.english\.\d+\.stm$", re.IGNORECASE)
_NOISES = r"<[^>]*>|\[[^\]]*\]"
_ALTERNATION = re.compile(r"\{\s*([^/{}]*?)\s*/[^{}]*\}")  # { first / second }
_OPTIONAL = re.compile(r"\(([^()]*)\)")


def clean_eval2000_text(text: str) -> str:
    """Plain words: the first of each alternation, optional words kept, ``%hesitation`` bare.

    For reading and for quick looks only.  Scores come from the STM reference itself.
    """
    text = _OPTIONAL.sub(r"\1", _ALTERNATION.sub(r"\1", text))
    return remove_spans(text.replace("%", " ").replace("@", " "), _NOISES)


def subset_of(recording_id: str) -> str:
    """``swbd`` or ``callhome``, the two halves that are reported separately."""
    return "callhome" if recording_id.lower().startswith("en_") else "swbd"


def find_reference(root: Path) -> Path:
    """The STM reference below ``root``; one called ``hub5e00.english.<date>.stm`` if there is."""
    paths = find_files(root, ".stm")
    named = [path for path in paths if _STM_NAME.search(path.name)] or paths
    if not named:
        raise InputError(f"{root}: no .stm reference below it; LDC2002T43 has it in reference/")
    return named[0]


def _speaker(segment: StmSegment) -> str:
    return f"{segment.recording}-{segment.channel.upper()}"


def prepare_eval2000(
    corpus_dir: Pathlike,
    transcript_dir: Optional[Pathlike] = None,
    output_dir: Optional[Pathlike] = None,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Read the test set; the one part ``eval2000``, with ``custom["subset"]``.

    :param corpus_dir: the folder of LDC2002S09, or one that holds both.
    :param transcript_dir: the folder of LDC2002T43, ``corpus_dir`` if not given.
    :param output_dir: where to write the manifests (as ``swbd_..._eval2000``), if anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    """
    problems = ProblemLog() if problems is None else problems
    audio_root = require_dir(corpus_dir, "eval2000 (LDC2002S09)")
    text_root = require_dir(transcript_dir or corpus_dir, "eval2000 references (LDC2002T43)")
    builder = ManifestBuilder(problems, language="English")
    for path in find_files(audio_root, ".sph"):
        # the distribution has a Mandarin half too
        if "mandarin" not in (folder.lower() for folder in path.relative_to(audio_root).parts):
            builder.add_recording(path, path.stem)
    add_stm(
        builder,
        find_reference(text_root),
        clean=clean_eval2000_text,
        speaker=_speaker,
        custom=lambda segment: {"subset": subset_of(segment.recording)},
    )
    return finish("swbd", {"eval2000": builder.manifests()}, problems, output_dir)
