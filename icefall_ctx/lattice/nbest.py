"""N-best lists out of a lattice: distinct word sequences, each with its best path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Tuple

import torch

from icefall_ctx.lattice.intersect import best_path, per_arc
from icefall_ctx.lattice.k2_import import k2


@dataclass
class Hypothesis:
    """One word sequence and what each model says about it.

    Attributes:
      words: word ids (token ids where the graph has no lexicon).
      tokens: token ids of the path, without blank and repeats.
      token_frames: frame at which each token starts.
      word_frames: frame of the arc that carries each word.
      scores: natural logarithms by name: ``acoustic`` (CTC), ``lm`` (n-gram), and after
        rescoring ``attention``, ``lstm``.
    """

    words: Tuple[int, ...]
    tokens: Tuple[int, ...] = ()
    token_frames: Tuple[int, ...] = ()
    word_frames: Tuple[int, ...] = ()
    scores: Dict[str, float] = field(default_factory=dict)

    def total(self, scales: Mapping[str, float]) -> float:
        """``acoustic + sum of scale x score``; a score without a scale does not count."""
        return sum(self.scores[name] * scales.get(name, 0.0) for name in self.scores)


def best_hypothesis(lattice: k2.Fsa, lm_scale: float) -> Hypothesis:
    """The hypothesis of the best path; the lattice (FsaVec of one) must not be empty."""
    return _hypotheses(best_path(lattice), lm_scale)[0]


def nbest(
    lattice: k2.Fsa, num_paths: int = 100, nbest_scale: float = 0.5, lm_scale: float = 1.0
) -> List[Hypothesis]:
    """Distinct word sequences of ``num_paths`` sampled paths and of the best path, which is first.

    Args:
      lattice: FsaVec of one, not empty; unchanged.
      nbest_scale: scores are multiplied by it before sampling: smaller is more varied.
      lm_scale: with which ``lm_scores`` are inside ``scores``.
    """
    sampled = lattice.clone()
    sampled.scores = lattice.scores * nbest_scale
    paths = k2.random_paths(sampled, use_double_scores=True, num_paths=num_paths)
    words_of_arc = per_arc(lattice.aux_labels)
    sequences: Dict[Tuple[int, ...], None] = {
        tuple(w for arc in path for w in words_of_arc[arc]): None for path in paths.tolist()[0]
    }
    best = best_hypothesis(lattice, lm_scale)
    sequences.pop(best.words, None)
    return [best, *_best_paths(lattice, list(sequences), lm_scale)]


def _best_paths(
    lattice: k2.Fsa, sequences: List[Tuple[int, ...]], lm_scale: float
) -> List[Hypothesis]:
    """The best path of the lattice for each word sequence it holds."""
    if not sequences:
        return []
    by_words = lattice.clone()
    by_words.frame_filler = -1  # of the arcs that a list of words is expanded into
    by_words = k2.arc_sort(k2.invert(by_words))
    acceptors = k2.linear_fsa([list(words) for words in sequences])
    matched = k2.intersect_device(
        by_words,
        k2.add_epsilon_self_loops(acceptors),
        b_to_a_map=torch.zeros(len(sequences), dtype=torch.int32),
        sorted_match_a=True,
    )
    paths = best_path(k2.top_sort(k2.connect(matched)))
    return _hypotheses(k2.invert(paths), lm_scale)


def _hypotheses(paths: k2.Fsa, lm_scale: float) -> List[Hypothesis]:
    """Read off linear paths, an FsaVec."""
    shape = paths.arcs.shape()
    bounds = shape.row_splits(2)[shape.row_splits(1).long()].tolist()
    words, tokens = per_arc(paths.aux_labels), per_arc(paths.tokens)
    frames, lm_scores = paths.frame.tolist(), paths.lm_scores.tolist()
    scores = paths.scores.tolist()
    result = []
    for first, end in zip(bounds, bounds[1:]):
        arcs = range(first, end)
        at = _filled(frames[first:end])
        lm = sum(lm_scores[first:end])
        said = [(w, at[i - first]) for i in arcs for w in words[i]]
        spelled = [(t, at[i - first]) for i in arcs for t in tokens[i]]
        acoustic = sum(scores[first:end]) - lm_scale * lm
        result.append(
            Hypothesis(
                words=tuple(w for w, _ in said),
                tokens=tuple(t for t, _ in spelled),
                token_frames=tuple(f for _, f in spelled),
                word_frames=tuple(f for _, f in said),
                scores={"acoustic": acoustic, "lm": lm},
            )
        )
    return result


def _filled(frames: List[int]) -> List[int]:
    """Arcs that a list of words was expanded into have no frame: they share the one before."""
    filled: List[int] = []
    for frame in frames:
        filled.append(frame if frame >= 0 or not filled else filled[-1])
    return filled
