"""Second pass: n-gram, LSTM LM and attention decoder on n-best lists or on whole lattices."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import torch
from torch import Tensor

from icefall_ctx.lattice.backoff import BackoffG
from icefall_ctx.lattice.intersect import lattice_from_arcs, per_arc, prune_to
from icefall_ctx.lattice.k2_import import k2
from icefall_ctx.lattice.nbest import Hypothesis
from icefall_ctx.models.lm import LmState, LstmLm, lm_batch, token_nll


class LatticeTooLarge(Exception):
    """Rescoring would make more arcs than allowed."""


def add_ngram_scores(hypotheses: Sequence[Hypothesis], g: BackoffG) -> None:
    """Put the n-gram score of G into ``scores["lm"]``, in place of the first pass's."""
    for hypothesis in hypotheses:
        hypothesis.scores["lm"] = g.score(hypothesis.words)


def rescore_lattice(
    lattice: k2.Fsa,
    g: BackoffG,
    old_lm_scale: float,
    lm_scale: float,
    max_arcs: int = 200_000,
) -> Tuple[k2.Fsa, bool]:
    """The lattice with G's exact scores in place of the first pass's, and whether it was pruned.

    Every path of the result scores ``acoustic + lm_scale * log P_G(words)``.  While the result
    would have more than ``max_arcs`` arcs, the input is pruned to a quarter and tried again:
    it always ends.  ``lattice`` (FsaVec of one, not empty) is unchanged.
    """
    smaller, limit, pruned = lattice, max_arcs, False
    while True:
        if smaller.num_arcs > limit:
            smaller, pruned = prune_to(smaller, limit), True
        try:
            return _compose(smaller, g, old_lm_scale, lm_scale, max_arcs), pruned
        except LatticeTooLarge:
            limit = min(limit, smaller.num_arcs) // 4


def _compose(
    lattice: k2.Fsa, g: BackoffG, old_lm_scale: float, lm_scale: float, max_arcs: int
) -> k2.Fsa:
    lattice = k2.top_sort(lattice)
    arcs, arc_map, lm_scores = _pair_states(lattice, g, max_arcs)
    result = lattice_from_arcs(lattice, arcs, arc_map)
    order = torch.argsort(arcs[:, 0], stable=True)
    acoustic = result.scores - old_lm_scale * result.lm_scores
    result.lm_scores = lm_scores[order]
    result.scores = acoustic + lm_scale * result.lm_scores
    return k2.top_sort(k2.connect(result))


def _pair_states(
    lattice: k2.Fsa, g: BackoffG, max_arcs: int
) -> Tuple[Tensor, Tensor, Tensor]:
    """Arcs (n, 3), their origin (n,) and LM scores (n,) over pairs (lattice state, G state).

    Lattice states are visited in topological order, so each pair is expanded once.
    """
    table = lattice.arcs.values()[:, :3].tolist()
    words = per_arc(lattice.aux_labels)
    leaving: Dict[int, List[int]] = {}
    for i, (source, _, _) in enumerate(table):
        leaving.setdefault(source, []).append(i)
    number = {(0, g.start): 0}
    waiting: Dict[int, List[int]] = {0: [g.start]}
    arcs, arc_map, scores = [], [], []
    for state in sorted(leaving):
        for g_state in waiting.pop(state, ()):
            for i in leaving[state]:
                _, destination, label = table[i]
                next_g, score = _advance(g, g_state, words[i], label)
                pair = (destination, next_g)
                if pair not in number:
                    number[pair] = len(number)
                    waiting.setdefault(destination, []).append(next_g)
                arcs.append((number[state, g_state], number[pair], label))
                arc_map.append(i)
                scores.append(score)
            if len(arcs) > max_arcs:
                raise LatticeTooLarge
    final = len(number)  # k2 wants the final state to have the largest number
    arcs = [(s, final if label == -1 else d, label) for s, d, label in arcs]
    table_out = torch.tensor(arcs, dtype=torch.int32)
    return table_out, torch.tensor(arc_map), torch.tensor(scores, dtype=torch.float32)


def _advance(g: BackoffG, state: int, words: List[int], label: int) -> Tuple[int, float]:
    """G's state after the words of one arc and their score; a final arc ends the sentence."""
    total = 0.0
    for word in words:
        state, score = g.advance(state, word)
        total += score
    if label == -1:
        return g.start, total + g.advance(state, -1)[1]
    return state, total


@torch.no_grad()
def add_attention_scores(
    hypotheses: Sequence[Hypothesis], decoder: Any, state: Any, row: int, chunk: int = 64
) -> None:
    """``scores["attention"]``: ``log P(tokens <eos>)`` by the attention decoder.

    Args:
      decoder: anything with ``decoder(tokens (M, U), state) -> log_probs (M, U, V)``; its
        history and memory are inside ``state``, which ``decoder.prepare`` made for a batch.
      row: the utterance's row in ``state``.
      chunk: hypotheses scored together.
    """
    for start in range(0, len(hypotheses), chunk):
        part = hypotheses[start : start + chunk]
        inputs, targets, _ = lm_batch([h.tokens for h in part])
        device = next(decoder.parameters()).device
        rows = state.select(torch.full((len(part),), row, dtype=torch.long, device=device))
        log_probs = decoder(inputs.to(device), rows)
        totals = -token_nll(log_probs, targets.to(log_probs.device)).double().sum(dim=1)
        for hypothesis, total in zip(part, totals.tolist()):
            hypothesis.scores["attention"] = total


@torch.no_grad()
def add_lstm_scores(
    hypotheses: Sequence[Hypothesis], lm: LstmLm, state: LmState | None, row: int
) -> None:
    """``scores["lstm"]``: ``log P(tokens <eos>)``; ``state`` (a batch) is from earlier turns."""
    if state is not None:
        rows = torch.full((len(hypotheses),), row, dtype=torch.long, device=state.h.device)
        state = state.select(rows)
    totals, _ = lm.score([h.tokens for h in hypotheses], state)
    for hypothesis, total in zip(hypotheses, totals.tolist()):
        hypothesis.scores["lstm"] = total
