"""Batched beam search over any decoder of the interface, with CTC prefix and LM scores.

    score(h) = (1 - w) log P_att(h) + w log P_ctc(h) + beta log P_lm(h) + bonus |h|

Tokens that the decoder reads out of a word memory have a w of their own, usually 0: the CTC head
hears how an entry sounds, but has never seen how it is spelled, and would leave out its silent
letters.

All hypotheses of all utterances advance together; an utterance leaves the batch when nothing
that is still open can beat what it has finished.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, List, Optional, Tuple

import torch
from torch import Tensor

from icefall_ctx.decode.ctc import BLANK, PrefixScorer, PrefixState

SOS_EOS, UNK = 1, 2
NEVER = (BLANK, UNK)  # ids that search never emits
IMPOSSIBLE = -1e9


@dataclass(frozen=True)
class BeamOptions:
    """Attributes:
    beam: hypotheses an utterance.
    ctc_weight: w; 0 leaves CTC out, 1 leaves the decoder out.
    lm_scale: beta.
    length_bonus: added for every token.
    max_len_ratio: tokens an encoder frame at the most.
    nbest: finished hypotheses wanted, best first.
    memory_ctc_weight: w of tokens of the word memory, where it is less than ctc_weight.
    """

    beam: int = 5
    ctc_weight: float = 0.3
    lm_scale: float = 0.0
    length_bonus: float = 0.0
    max_len_ratio: float = 1.0
    nbest: int = 1
    memory_ctc_weight: float = 0.0

    def __post_init__(self) -> None:
        """The search ends early because scores only fall, so the weights must not be negative."""
        if self.beam < 1 or self.nbest < 1:
            raise ValueError(f"beam {self.beam} and nbest {self.nbest} must be at least 1")
        if not 0.0 <= self.ctc_weight <= 1.0 or not 0.0 <= self.memory_ctc_weight <= 1.0:
            raise ValueError("ctc_weight and memory_ctc_weight must be in 0 .. 1")
        if not self.lm_scale >= 0.0:
            raise ValueError("lm_scale must not be negative")


@dataclass
class Hypothesis:
    """Attributes:
    tokens: ids without ``<sos/eos>``.
    score: the combined score.
    att, ctc, lm: natural logarithms of the parts, whole utterance.
    text: of a search over words; None: the tokens spell it.
    """

    tokens: List[int]
    score: float
    att: float = 0.0
    ctc: float = 0.0
    lm: float = 0.0
    text: Optional[str] = None

    @property
    def confidence(self) -> float:
        """Geometric mean of the decoder's token probabilities, end included: in [0, 1]."""
        mean = self.att / (len(self.tokens) + 1)
        return float(min(1.0, max(0.0, torch.tensor(mean).exp())))


@dataclass
class Scores:
    """Partial scores of rows, each (R,)."""

    total: Tensor
    att: Tensor
    ctc: Tensor
    lm: Tensor

    def select(self, rows: Tensor) -> "Scores":
        return Scores(self.total[rows], self.att[rows], self.ctc[rows], self.lm[rows])


@dataclass
class Front:
    """The open hypotheses: ``beam`` rows for each of the utterances still active."""

    utterances: Tensor  # (A,) rows of the batch
    beam: int
    tokens: Tensor  # (R, u) with <sos/eos> in front
    scores: Scores
    decoder: Any
    lm: Any
    prefix: Optional[PrefixState]

    def select(self, rows: Tensor, beam: int) -> "Front":
        """Rows (M,) of the current ones, ``beam`` for each utterance that stays."""
        kept = rows.view(-1, beam)[:, 0] // self.beam
        return Front(
            self.utterances[kept],
            beam,
            self.tokens[rows],
            self.scores.select(rows),
            self.decoder.select(rows),
            None if self.lm is None else self.lm.select(rows),
            None,  # the prefix state of an extension comes with its candidate
        )


@dataclass
class Candidates:
    """Extensions of every row: K tokens, the last of which is the end."""

    tokens: Tensor  # (R, K)
    scores: Scores  # each (R, K)
    prefix: Optional[PrefixState]  # of the R * (K - 1) extensions that are not the end


@dataclass
class BeamSearch:
    """Configured once; :meth:`search` decodes a batch.

    Attributes:
      decoder: anything with ``step`` (see ``models/decoder.py``).
      options: widths and weights.
      lm: a language model with ``step``, or None.
    """

    decoder: Any
    options: BeamOptions = field(default_factory=BeamOptions)
    lm: Any = None

    @torch.no_grad()
    def search(
        self, state: Any, ctc_log_probs: Tensor, lens: Tensor, lm_state: Any = None
    ) -> List[List[Hypothesis]]:
        """Decode N utterances.

        Args:
          state: ``decoder.prepare(...)`` of the batch.
          ctc_log_probs: (N, T, V).
          lens: (N,) encoder frames.
          lm_state: where the language model stands before each utterance; default: its start.

        Returns:
          for each utterance up to ``nbest`` hypotheses, best first; at least one.
        """
        n = lens.size(0)
        scorer = PrefixScorer(ctc_log_probs, lens) if self.options.ctc_weight > 0 else None
        front = self._start(state, n, lm_state, scorer, ctc_log_probs.device)
        finished: List[List[Hypothesis]] = [[] for _ in range(n)]
        limits = self._limits(lens)
        for length in range(int(limits.max()) + 1):
            candidates, front = self._extend(front, scorer)
            front = self._advance(front, candidates, finished, limits, length)
            if front is None:
                break
        return [self._ranked(hypotheses) for hypotheses in finished]

    def _limits(self, lens: Tensor) -> Tensor:
        """(N,) tokens at the most."""
        return (lens * self.options.max_len_ratio).long().clamp(min=1)

    def _start(self, state, n: int, lm_state, scorer, device) -> Front:
        zeros = torch.zeros(n, dtype=torch.double, device=device)
        if self.lm is not None and lm_state is None:
            lm_state = self.lm.initial_state(n)
        return Front(
            utterances=torch.arange(n, device=device),
            beam=1,
            tokens=torch.full((n, 1), SOS_EOS, dtype=torch.long, device=device),
            scores=Scores(zeros, zeros, zeros, zeros),
            decoder=state,
            lm=lm_state if self.lm is not None else None,
            prefix=scorer.initial() if scorer is not None else None,
        )

    def _extend(self, front: Front, scorer: Optional[PrefixScorer]) -> Tuple[Candidates, Front]:
        """Score the most likely next tokens, and the end, of every row."""
        options, last = self.options, front.tokens[:, -1]
        att, front.decoder = self.decoder.step(last, front.decoder)
        att = att.double()
        att[:, list(NEVER)] = IMPOSSIBLE
        local = (1 - options.ctc_weight) * att
        lm = None
        if self.lm is not None:
            lm, front.lm = self.lm.step(last, front.lm)
            lm = lm.double()
            local = local + options.lm_scale * lm
        tokens = self._preselect(local, scorer, front)
        ends = torch.full_like(tokens[:, :1], SOS_EOS)
        tokens = torch.cat([tokens, ends], dim=1)
        ctc, prefix = torch.zeros_like(tokens, dtype=torch.double), None
        if scorer is not None:
            psi, prefix = scorer.extend(front.prefix, tokens[:, :-1])
            ctc = torch.cat([psi, scorer.end(front.prefix).unsqueeze(1)], dim=1)
        scores = self._combine(front, tokens, att, ctc, lm)
        return Candidates(tokens, scores, prefix), front

    def _preselect(self, local: Tensor, scorer, front: Front) -> Tensor:
        """(R, K) candidates by the decoder and LM, or by CTC where those have no say."""
        local = local.clone()
        local[:, [*NEVER, SOS_EOS]] = float("-inf")
        size = min(local.size(1) - 3, max(2 * self.options.beam, self.options.beam + 8))
        if self.options.ctc_weight < 1.0 or scorer is None:
            return local.topk(size, dim=1).indices
        every = torch.arange(3, local.size(1), device=local.device)
        return every.expand(local.size(0), -1)

    def _combine(self, front: Front, tokens: Tensor, att, ctc: Tensor, lm) -> Scores:
        options, before = self.options, front.scores
        att = att.gather(1, tokens)
        weight = self._ctc_weight(front, tokens)
        total = (1 - weight) * att + weight * (ctc - before.ctc.unsqueeze(1))
        lm_total = before.lm.unsqueeze(1).expand_as(att)
        if lm is not None:
            lm = lm.gather(1, tokens)
            lm_total = lm_total + lm
            total = total + options.lm_scale * lm
        total[:, :-1] += options.length_bonus  # the end is not a token of the hypothesis
        return Scores(
            before.total.unsqueeze(1) + total, before.att.unsqueeze(1) + att, ctc, lm_total
        )

    def _ctc_weight(self, front: Front, tokens: Tensor) -> Tensor:
        """w of every candidate, (R, K).  The end always has it: all audio must be used up."""
        weight = torch.full(
            tokens.shape, self.options.ctc_weight, dtype=torch.double, device=tokens.device
        )
        reading = getattr(front.decoder, "reading", None)
        if reading is not None and self.options.ctc_weight < 1.0:
            less = min(self.options.memory_ctc_weight, self.options.ctc_weight)
            weight[:, :-1].masked_fill_(reading.unsqueeze(1), less)
        return weight

    def _advance(
        self,
        front: Front,
        candidates: Candidates,
        finished: List[List[Hypothesis]],
        limits: Tensor,
        length: int,
    ) -> Optional[Front]:
        """Move ends among the best candidates to ``finished``; the best others stay open."""
        k = candidates.tokens.size(1)
        beam = min(self.options.beam, front.beam * (k - 1))
        flat = candidates.scores.total.view(front.utterances.numel(), front.beam * k)
        # at most front.beam candidates are ends, so enough others are among these
        width = max(self.options.beam, front.beam)
        values, order = flat.topk(min(width + front.beam, flat.size(1)), dim=1)
        chosen: List[int] = []
        for a, utterance in enumerate(front.utterances.tolist()):
            base = a * front.beam * k
            ranked = [(base + i, v) for i, v in zip(order[a].tolist(), values[a].tolist())]
            limit = int(limits[utterance])
            if length >= limit:
                ranked = [(base + row * k + k - 1, 0.0) for row in range(front.beam)]
            ends = [cell for cell, _ in ranked[:width] if cell % k == k - 1]
            for cell in ends:
                finished[utterance].append(self._finish(front, candidates, cell))
            open_cells = [(cell, value) for cell, value in ranked if cell % k != k - 1][:beam]
            if length < limit and self._can_win(open_cells, finished[utterance], limit - length):
                chosen.extend(cell for cell, _ in open_cells)
        return self._next_front(front, candidates, chosen, beam) if chosen else None

    def _can_win(
        self, open_cells: List[Tuple[int, float]], done: List[Hypothesis], left: int
    ) -> bool:
        """Whether an open hypothesis can still be among the wanted ones: scores only fall, but
        for the length bonus."""
        if len(done) < self.options.nbest:
            return True
        worst = sorted((h.score for h in done), reverse=True)[self.options.nbest - 1]
        return open_cells[0][1] + max(0.0, self.options.length_bonus) * left > worst

    @staticmethod
    def _finish(front: Front, candidates: Candidates, cell: int) -> Hypothesis:
        row, column = divmod(cell, candidates.tokens.size(1))
        scores = candidates.scores
        return Hypothesis(
            tokens=front.tokens[row, 1:].tolist(),
            score=float(scores.total[row, column]),
            att=float(scores.att[row, column]),
            ctc=float(scores.ctc[row, column]),
            lm=float(scores.lm[row, column]),
        )

    @staticmethod
    def _next_front(front: Front, candidates: Candidates, cells: List[int], beam: int) -> Front:
        k = candidates.tokens.size(1)
        index = torch.tensor(cells, device=front.tokens.device)
        rows, columns = index // k, index % k
        after = front.select(rows, beam)
        after.tokens = torch.cat([after.tokens, candidates.tokens[rows, columns, None]], dim=1)
        scores = candidates.scores
        after.scores = Scores(
            scores.total[rows, columns],
            scores.att[rows, columns],
            scores.ctc[rows, columns],
            scores.lm[rows, columns],
        )
        if candidates.prefix is not None:
            after.prefix = candidates.prefix.select(rows * (k - 1) + columns)
        return after

    def _ranked(self, hypotheses: List[Hypothesis]) -> List[Hypothesis]:
        return sorted(hypotheses, key=lambda h: -h.score)[: self.options.nbest]
