"""CTC loss through k2's graphs, one utterance at a time comparable with torch's."""

from __future__ import annotations

from typing import List, Sequence

import torch
from torch import Tensor

from icefall_ctx.lattice.k2_import import k2


def min_frames(tokens: Sequence[int]) -> int:
    """Frames that a CTC path needs: one a token, and a blank between equal neighbours."""
    return len(tokens) + sum(a == b for a, b in zip(tokens, tokens[1:]))


def k2_ctc_loss(log_probs: Tensor, lens: Tensor, targets: List[List[int]]) -> Tensor:
    """``-log P(targets)`` of each utterance (N,), natural logarithm.

    Args:
      log_probs: (N, T, V) float32, log-softmax, column 0 is blank.
      lens: (N,) frames, all >= 1.
      targets: token ids.
    An utterance with fewer frames than :func:`min_frames` has loss 0 and no gradient, so that it
    cannot hide the others; who batches data names and drops it before.
    """
    order = torch.argsort(lens, descending=True, stable=True)  # k2 wants the longest first
    segments = torch.tensor([[i, 0, int(lens[i])] for i in order.tolist()], dtype=torch.int32)
    graph = k2.ctc_graph([targets[i] for i in order.tolist()])
    dense = k2.DenseFsaVec(log_probs.float(), segments)
    sorted_loss = k2.ctc_loss(graph, dense, output_beam=10.0, reduction="none")
    loss = torch.empty_like(sorted_loss).index_copy(0, order.to(sorted_loss.device), sorted_loss)
    possible = [min_frames(t) <= n for t, n in zip(targets, lens.tolist())]
    mask = torch.tensor(possible, device=loss.device)
    return torch.where(mask, loss, torch.zeros_like(loss))
