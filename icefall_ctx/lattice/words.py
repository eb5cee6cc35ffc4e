"""Word times and confidences out of a hypothesis and its lattice, written as CTM."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from icefall_ctx.files import write_text
from icefall_ctx.lattice.intersect import per_arc
from icefall_ctx.lattice.k2_import import k2
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


def ctm_lines(
    words: Iterable[WordTime], recording: str, channel: str = "1", offset: float = 0.0
) -> List[str]:
    """``recording channel start duration word confidence``; ``offset`` is the utterance's start."""
    return [
        f"{recording} {channel} {offset + w.start:.2f} {w.duration:.2f} {w.word} {w.confidence:.3f}"
        for w in words
    ]


def write_ctm(path: Path, lines: Iterable[str]) -> None:
    """Write CTM lines sorted by recording, channel and time, as scoring tools want them."""

    def order(line: str) -> Tuple[str, str, float]:
        recording, channel, start = line.split()[:3]
        return recording, channel, float(start)

    write_text(path, "".join(f"{line}\n" for line in sorted(lines, key=order)))
