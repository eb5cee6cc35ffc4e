"""Search on the CTC head alone, and CTC prefix scores for joint beam search.

The prefix recursions over time,

    r_n(g, t) = (r_n(g, t-1) + phi(t)) x(t, c)
    r_b(g, t) = (r_b(g, t-1) + r_n(g, t-1)) x(t, blank)

are linear, so with cumulative sums X of the log-probabilities they are one ``logcumsumexp``
over time instead of a loop (in float64, since X reaches minus thousands).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, List, Tuple

import torch
from torch import Tensor

from icefall_ctx.data.batch import length_mask
from icefall_ctx.text.tokenizer import SOS_EOS_ID, UNK_ID

LOG_ZERO = -1e10  # finite, so that differences of impossible scores are not NaN
BLANK = 0


def without_special(log_probs: Tensor) -> Tensor:
    """A copy of (N, T, V) in which ``<sos/eos>`` and ``<unk>`` are impossible: neither is ever
    recognised."""
    blocked = log_probs.clone()
    blocked[..., [SOS_EOS_ID, UNK_ID]] = LOG_ZERO
    return blocked


def greedy(log_probs: Tensor, lens: Tensor) -> List[List[int]]:
    """Best path: (N, T, V) -> token ids with repeats merged and blanks removed."""
    best = log_probs.argmax(dim=-1)
    result = []
    for row, length in zip(best, lens.tolist()):
        merged = torch.unique_consecutive(row[:length]).tolist()
        result.append([token for token in merged if token != BLANK])
    return result


def greedy_confidence(log_probs: Tensor, lens: Tensor) -> List[float]:
    """Mean probability of the best path of each utterance, between 0 and 1."""
    best = log_probs.max(dim=-1).values.exp()
    valid = length_mask(lens, best.size(1))
    sums = best.masked_fill(~valid, 0.0).sum(dim=1) / lens.clamp(min=1)
    return sums.clamp(0.0, 1.0).tolist()


@dataclass
class PrefixState:
    """R hypotheses over utterances padded to T frames.  Index 0 of time is before any frame.

    Attributes:
      nonblank, blank: (R, T+1) log-probability of all alignments of the hypothesis that end at
        a frame in its last token, or in blank (r_n, r_b).
      score: (R,) log-probability of the hypothesis as a prefix.
      last: (R,) last token; -1 before any.
      utterance: (R,) row of the utterance.
    """

    nonblank: Tensor
    blank: Tensor
    score: Tensor
    last: Tensor
    utterance: Tensor

    def select(self, rows: Tensor) -> "PrefixState":
        return PrefixState(
            self.nonblank[rows],
            self.blank[rows],
            self.score[rows],
            self.last[rows],
            self.utterance[rows],
        )


class PrefixScorer:
    """CTC prefix scores for a batch of utterances: ``psi(h) = log P(tokens begin with h)``."""

    def __init__(self, log_probs: Tensor, lens: Tensor) -> None:
        """log_probs (N, T, V) with blank = 0; lens (N,)."""
        x = log_probs.double().clamp(min=LOG_ZERO)
        valid = length_mask(lens, x.size(1)).unsqueeze(-1)
        # beyond its end an utterance only repeats blank with probability one
        x = x.masked_fill(~valid, LOG_ZERO)
        x[..., BLANK].masked_fill_(~valid.squeeze(-1), 0.0)
        self.x = x.transpose(1, 2).contiguous()  # (N, V, T)
        self.cumulative = torch.nn.functional.pad(self.x.cumsum(dim=-1), (1, 0))  # (N, V, T+1)

    def initial(self) -> PrefixState:
        """The empty hypothesis of every utterance."""
        blank = self.cumulative[:, BLANK]
        n = blank.size(0)
        return PrefixState(
            nonblank=torch.full_like(blank, LOG_ZERO),
            blank=blank,
            score=blank.new_zeros(n),
            last=torch.full((n,), -1, dtype=torch.long, device=blank.device),
            utterance=torch.arange(n, device=blank.device),
        )

    def extend(self, state: PrefixState, tokens: Tensor) -> Tuple[Tensor, PrefixState]:
        """Score candidates tokens (R, K), none of them blank or the end.

        Returns:
          psi (R, K) and the states of all R * K extensions.
        """
        rows, k = tokens.shape
        before = torch.logaddexp(state.nonblank, state.blank).unsqueeze(1)
        repeat = (tokens == state.last.unsqueeze(1)).unsqueeze(-1)
        phi = torch.where(repeat, state.blank.unsqueeze(1), before)[..., :-1]  # (R, K, T)
        utterance = state.utterance.unsqueeze(1)
        x = self.x[utterance, tokens]  # (R, K, T)
        total = self.cumulative[utterance, tokens]  # (R, K, T+1)
        nonblank = total[..., 1:] + torch.logcumsumexp(phi - total[..., :-1], dim=-1)
        nonblank = torch.nn.functional.pad(nonblank.clamp(min=LOG_ZERO), (1, 0), value=LOG_ZERO)
        blanks = self.cumulative[state.utterance, BLANK].unsqueeze(1)  # (R, 1, T+1)
        blank = blanks[..., 1:] + torch.logcumsumexp(
            nonblank[..., :-1] - blanks[..., :-1], dim=-1
        )
        blank = torch.nn.functional.pad(blank.clamp(min=LOG_ZERO), (1, 0), value=LOG_ZERO)
        psi = torch.logsumexp(phi + x, dim=-1).clamp(min=LOG_ZERO)
        return psi, PrefixState(
            nonblank.flatten(0, 1),
            blank.flatten(0, 1),
            psi.flatten(),
            tokens.flatten(),
            state.utterance.repeat_interleave(k),
        )

    @staticmethod
    def end(state: PrefixState) -> Tensor:
        """(R,) log-probability of the hypothesis as the whole utterance."""
        return torch.logaddexp(state.nonblank[:, -1], state.blank[:, -1]).clamp(min=LOG_ZERO)


@dataclass
class _Prefix:
    blank: float = LOG_ZERO
    nonblank: float = LOG_ZERO

    @property
    def total(self) -> float:
        return _logadd(self.blank, self.nonblank)


def _logadd(a: float, b: float) -> float:
    high, low = (a, b) if a > b else (b, a)
    return high + math.log1p(math.exp(low - high))


def prefix_beam(
    log_probs: Tensor, length: int, beam: int, forbidden: Tuple[int, ...] = (), top: int = 20
) -> List[Tuple[List[int], float]]:
    """CTC prefix beam search on one utterance.

    Args:
      log_probs: (T, V).
      length: valid frames.
      beam: prefixes kept after each frame.
      forbidden: tokens never emitted.
      top: tokens considered at each frame.

    Returns:
      the best prefixes with the log-probability of all their alignments, best first.
    """
    frames = log_probs[:length].double().clone()
    frames[:, list(forbidden)] = LOG_ZERO
    values, tokens = frames.topk(min(top, frames.size(1)), dim=-1)
    blanks = frames[:, BLANK].tolist()
    prefixes: Dict[Tuple[int, ...], _Prefix] = {(): _Prefix(blank=0.0)}
    for blank, row_values, row_tokens in zip(blanks, values.tolist(), tokens.tolist()):
        prefixes = _advance(prefixes, blank, list(zip(row_tokens, row_values)), beam)
    ranked = sorted(prefixes.items(), key=lambda item: -item[1].total)
    return [(list(prefix), state.total) for prefix, state in ranked]


def _advance(
    prefixes: Dict[Tuple[int, ...], _Prefix],
    blank: float,
    candidates: List[Tuple[int, float]],
    beam: int,
) -> Dict[Tuple[int, ...], _Prefix]:
    """All prefixes after one more frame, pruned to the beam."""
    after: Dict[Tuple[int, ...], _Prefix] = {}

    def at(prefix: Tuple[int, ...]) -> _Prefix:
        return after.setdefault(prefix, _Prefix())

    for prefix, state in prefixes.items():
        total = state.total
        same = at(prefix)
        same.blank = _logadd(same.blank, total + blank)
        for token, value in candidates:
            if token == BLANK:
                continue
            if prefix and token == prefix[-1]:
                same.nonblank = _logadd(same.nonblank, state.nonblank + value)
                start = state.blank
            else:
                start = total
            longer = at(prefix + (token,))
            longer.nonblank = _logadd(longer.nonblank, start + value)
    best = sorted(after.items(), key=lambda item: -item[1].total)[:beam]
    return dict(best)

