"""Word times and confidences out of a hypothesis and its lattice."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from icefall_ctx.formats.ctm import CtmWord
from icefall_ctx.lattice.intersect import per_arc
from icefall_ctx.lattice.k2_import import k2
from icefall_ctx.lattice.lexicon import UNK_WORD
from icefall_ctx.lattice.nbest import Hypothesis

NEARBY = 5  # frames: the same word, a little earlier or later, is the same event


class WordTime(NamedTuple):
    """One recognised word: seconds from the start of the utterance, confidence in 0..1."""

    word: str
    start: float
    duration: float
    confidence: float


def word_frames(
    hypothesis: Hypothesis, token_spans: Iterable[Tuple[int, int]]
) -> List[Tuple[int, int]]:
    """First and last + 1 frame of every word, given where its tokens are in the hypothesis.

    CTC says where a token starts, not where it ends: a word ends one frame after its last
    token starts.
    """
    spans: List[Tuple[int, int]] = []
    for first, end in token_spans:
        own = hypothesis.token_frames[first:end]
        before = spans[-1][1] if spans else 0
        spans.append((own[0], own[-1] + 1) if own else (before, before))
    return spans


def word_confidences(lattice: Optional[k2.Fsa], hypothesis: Hypothesis) -> List[float]:
    """Posterior of every word: the mass of lattice paths that say it within NEARBY frames.

    The lattice is the one that was rescored, scores as decoding used them; 0 without one.
    """
    if lattice is None:
        return [0.0] * len(hypothesis.words)
    posteriors = lattice.get_arc_post(use_double_scores=True, log_semiring=True).exp().tolist()
    frames = lattice.frame.tolist()
    wanted = set(hypothesis.words)
    mass: Dict[int, List[Tuple[int, float]]] = {}
    for frame, words, posterior in zip(frames, per_arc(lattice.aux_labels), posteriors):
        for word in wanted.intersection(words):
            mass.setdefault(word, []).append((frame, posterior))
    result = []
    for word, at in zip(hypothesis.words, hypothesis.word_frames):
        near = (p for frame, p in mass.get(word, ()) if abs(frame - at) <= NEARBY)
        result.append(min(1.0, sum(near)))
    return result


def ctm_words(
    words: Iterable[WordTime], recording: str, channel: str, offset: float = 0.0
) -> List[CtmWord]:
    """The words on the recording's clock; ``offset`` is where the utterance starts, seconds.

    An unknown word has no text and is left out, as in the recognised text.
    """
    return [
        CtmWord(recording, channel, offset + w.start, w.duration, w.word, w.confidence)
        for w in words
        if w.word != UNK_WORD
    ]
