"""Reference and hypothesis as files that NIST's tools read."""

from __future__ import annotations

from pathlib import Path
from typing import List, Sequence

from icefall_ctx.errors import Pathlike
from icefall_ctx.formats.ctm import CtmWord, write_ctm
from icefall_ctx.formats.stm import StmSegment, write_stm
from icefall_ctx.formats.trn import TrnLine, write_trn
from icefall_ctx.score.loading import Matched
from icefall_ctx.score.nist import spread_words
from icefall_ctx.score.wer import Utterance


def export(
    folder: Pathlike, matched: Matched, words: Sequence[CtmWord] = (), *, notation: bool = False
) -> List[Path]:
    """Write ``ref.trn`` and ``hyp.trn``, and with times known ``ref.stm`` and ``hyp.ctm`` too.

    Args:
      words: the recognised words with their own times; without them times are spread evenly.
      notation: the texts are in NIST's notation already; otherwise what would be read as such is
        escaped.
    """
    folder = Path(folder)
    utterances = matched.utterances
    paths = [folder / "ref.trn", folder / "hyp.trn"]
    write_trn(paths[0], (TrnLine(_id(u), _text(u.ref, notation)) for u in utterances))
    write_trn(paths[1], (TrnLine(_id(u), _text(u.hyp or [], notation)) for u in utterances))
    if matched.segments:
        paths += [folder / "ref.stm", folder / "hyp.ctm"]
        write_stm(paths[2], map(_plain_names, matched.segments))
        write_ctm(paths[3], words or _spread(matched))
    return paths


def _spread(matched: Matched) -> List[CtmWord]:
    return spread_words(
        StmSegment(s.recording, s.channel, s.speaker, s.start, s.end, " ".join(u.hyp or []))
        for s, u in zip(matched.segments, matched.utterances)
    )


def _plain_names(segment: StmSegment) -> StmSegment:
    """Speakers are one field, so blanks in their names have to go."""
    fields = dict(vars(segment), speaker=segment.speaker.replace(" ", "_") or "unknown", line=0)
    return StmSegment(**fields)


def _id(utterance: Utterance) -> str:
    """NIST takes what stands before the last ``-`` or ``_`` for the speaker."""
    return utterance.utt_id.translate({ord(c): "_" for c in "() \t"})


_READ_AS_NOTATION = str.maketrans({"{": "[", "}": "]", "(": "[", ")": "]", ";": "\\;"})


def _text(words: Sequence[str], notation: bool) -> str:
    text = " ".join(words)
    return text if notation else text.translate(_READ_AS_NOTATION)
