"""First pass: network output x decoding graph -> one lattice an utterance, and best paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional

import torch
from torch import Tensor

from icefall_ctx.lattice.k2_import import k2


@dataclass(frozen=True)
class Beams:
    """Pruning of the first pass; scores are natural logarithms.

    ``output_beam`` decides the size of the lattice: on flat posteriors 8 gives millions of arcs.
    """

    search: float = 15.0
    output: float = 5.0
    min_active: int = 30
    max_active: int = 7_000


def dense_lattices(
    graph: k2.Fsa, log_probs: Tensor, lens: Tensor, beams: Beams
) -> List[Optional[k2.Fsa]]:
    """Lattices of a batch, each an FsaVec of one with the frame of every arc in ``frame``.

    Args:
      graph: H or HLG with ``tokens`` and ``lm_scores``.
      log_probs: (N, T, V) float32, log-softmax, column 0 is blank.
      lens: (N,) frames of each utterance; those without a frame get None.
    """
    rows = [i for i, n in enumerate(lens.tolist()) if n > 0]
    result: List[Optional[k2.Fsa]] = [None] * len(lens)
    if not rows:
        return result
    segments = torch.tensor([[i, 0, int(lens[i])] for i in rows], dtype=torch.int32)
    dense = k2.DenseFsaVec(log_probs.detach().float(), segments)
    lattices = k2.intersect_dense_pruned(
        graph,
        dense,
        search_beam=beams.search,
        output_beam=beams.output,
        min_active_states=beams.min_active,
        max_active_states=beams.max_active,
        frame_idx_name="frame",
    )
    for k, i in enumerate(rows):
        result[i] = k2.index_fsa(lattices, torch.tensor([k], dtype=torch.int32))
    return result


def is_empty(lattice: Optional[k2.Fsa]) -> bool:
    """Whether there is no lattice, or no path through it (an FsaVec of one)."""
    if lattice is None or lattice.num_arcs == 0:
        return True
    total = lattice.get_tot_scores(use_double_scores=True, log_semiring=False)
    return not bool(torch.isfinite(total).all())


def per_arc(values: Tensor | k2.RaggedTensor) -> List[List[int]]:
    """The labels above 0 of every arc, whether there is one an arc or a ragged list."""
    if isinstance(values, torch.Tensor):
        return [[v] if v > 0 else [] for v in values.tolist()]
    return [[v for v in row if v > 0] for row in values.tolist()]


def best_path(lattice: k2.Fsa) -> k2.Fsa:
    """The path with the highest score: an FsaVec of one linear FSA, attributes kept."""
    return k2.shortest_path(lattice, use_double_scores=True)


def prune_to(lattice: k2.Fsa, max_arcs: int) -> k2.Fsa:
    """At most about ``max_arcs`` arcs: those on the best paths.  The argument is unchanged.

    Arcs are ranked by the best path through them, so the best path itself always stays and the
    result is never disconnected, as it could be by a threshold on posteriors.  Arcs that tie
    with the last one kept go, unless they are on a best path.
    """
    if lattice.num_arcs <= max_arcs:
        return lattice
    worth = lattice.get_arc_post(use_double_scores=True, log_semiring=False)
    threshold = min(worth.topk(max_arcs).values[-1].item(), -1e-6)
    return k2.connect(select_arcs(lattice, (worth > threshold).nonzero().squeeze(1)))


def select_arcs(lattice: k2.Fsa, arcs: Tensor) -> k2.Fsa:
    """The lattice (an FsaVec of one) with only these arcs, attributes kept; not connected."""
    kept = k2.Fsa(lattice.arcs.values()[arcs.long()])
    return _with_attributes(lattice, kept, arcs)


def _with_attributes(source: k2.Fsa, fsa: k2.Fsa, arc_map: Tensor) -> k2.Fsa:
    vector = k2.Fsa.from_fsas([fsa])
    result = k2.utils.fsa_from_unary_function_tensor(source, vector.arcs, arc_map.int())
    result.scores = source.scores[arc_map.long()]
    return result


def lattice_from_arcs(source: k2.Fsa, arcs: Tensor, arc_map: Tensor) -> k2.Fsa:
    """A new lattice of ``arcs`` (n, 3) from, to, label, that takes the attributes of ``source``.

    ``arc_map`` (n,) names the arc of ``source`` that each new one came from; states are
    numbered as wished, the largest is the final one.
    """
    order = torch.argsort(arcs[:, 0], stable=True)
    full = torch.zeros(len(arcs), 4, dtype=torch.int32)
    full[:, :3] = arcs[order]
    return _with_attributes(source, k2.Fsa(full), arc_map[order])


def partial_graph(graph: k2.Fsa, penalty: float = 10.0) -> k2.Fsa:
    """``graph`` in which every state may be the last one, at a price.

    An utterance that ends inside a word or a sentence of the grammar still gets a lattice.
    """
    arcs = graph.arcs.values()
    final = int(arcs[:, 1].max())
    states = torch.unique(arcs[:, 0])
    states = states[~torch.isin(states, arcs[arcs[:, 2] == -1, 0])]
    extra = torch.stack(
        [states, torch.full_like(states, final), torch.full_like(states, -1), states * 0], dim=1
    )
    combined = torch.cat([arcs, extra])
    order = torch.argsort(combined[:, 0], stable=True).int()
    result = k2.Fsa(combined[order.long()])
    zeros = torch.zeros(len(extra))
    scores = torch.cat([graph.scores, zeros - penalty])
    result.scores = scores[order.long()]
    result.lm_scores = torch.cat([graph.lm_scores, zeros])[order.long()]
    result.tokens = torch.cat([graph.tokens, zeros.int() - 1])[order.long()]
    result.aux_labels = _extended(graph.aux_labels, len(extra), order)
    for name, value in graph.named_non_tensor_attr():
        setattr(result, name, value)
    return k2.arc_sort(result)


def _extended(aux_labels, extra: int, order: Tensor):
    """``aux_labels`` with ``extra`` final arcs appended, reordered."""
    if isinstance(aux_labels, torch.Tensor):
        return torch.cat([aux_labels, aux_labels.new_full((extra,), -1)])[order.long()]
    tail = k2.RaggedTensor([[-1]] * extra, dtype=torch.int32)
    both = k2.ragged.cat([aux_labels, tail], axis=0)
    return both.index(order, axis=0, need_value_indexes=False)[0]
