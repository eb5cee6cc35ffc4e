"""Recognise one turn of each of N conversations, with everything they remember."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, List, Optional, Sequence

import torch
from torch import Tensor

from icefall_ctx.data.batch import Batch, TokenHistory
from icefall_ctx.decode import ctc
from icefall_ctx.decode.beam import BeamOptions, BeamSearch, Hypothesis
from icefall_ctx.decode.lattice_search import LatticeSearch
from icefall_ctx.decode.methods import CTC_METHODS, uses_decoder
from icefall_ctx.decode.session import MAX_SCORE_FRAMES, ConversationSession, PastTurn
from icefall_ctx.decode.word_memory import WordMemory
from icefall_ctx.models.asr import AsrModel
from icefall_ctx.models.attention import AttentionScores
from icefall_ctx.models.encoder import EncoderOutput
from icefall_ctx.models.memory_bank import MemoryBank


@dataclass(frozen=True)
class RecogniserOptions:
    """Attributes:
    method: a name of :mod:`icefall_ctx.decode.methods`.
    beam: widths and weights of the search.
    speakers: earlier turns used as history: all, same, other.
    first_text: ``repeat`` decodes a first turn twice, the second time with its own first
      hypothesis as history (paper A); ``empty`` once.
    """

    method: str = "beam"
    beam: BeamOptions = BeamOptions()
    speakers: str = "all"
    first_text: str = "empty"


class Recogniser:
    """Model, search and language model behind one call.

    Args:
      model: in eval mode.
      options: how to search.
      lm: language model of the same vocabulary, or None.
      carry_lm_state: the language model reads the conversation's own hypotheses.
      words: the word lists, for a model with a word memory; default: those of the sessions.
      lattice: the search of the methods over lattices.
    """

    def __init__(
        self,
        model: AsrModel,
        options: RecogniserOptions = RecogniserOptions(),
        lm: Any = None,
        carry_lm_state: bool = False,
        words: Optional[WordMemory] = None,
        lattice: Optional[LatticeSearch] = None,
    ) -> None:
        self.model = model
        self.options = options
        self.lm = lm
        self.carry_lm_state = carry_lm_state
        self.words = words
        self.lattice = lattice
        self.uses_decoder = uses_decoder(options.method)
        if words is None and model.has_memory and self.uses_decoder:
            self.words = WordMemory(MemoryBank(model.decoder))
        self.search = BeamSearch(model.decoder, options.beam, lm)

    @property
    def reads_text(self) -> bool:
        """Whether text history changes what is recognised."""
        return self.model.config.text_context != "none" and self.uses_decoder

    @torch.no_grad()
    def recognise(
        self,
        batch: Batch,
        sessions: Sequence[ConversationSession],
        histories: Optional[Sequence[List[PastTurn]]] = None,
    ) -> List[List[Hypothesis]]:
        """Recognise a batch and let every session remember.

        Args:
          batch: one turn of each conversation; its tokens are not read, and its texts by
            ``nbest-oracle`` only.
          sessions: one a row.
          histories: text history to use instead of the sessions' own.

        Returns:
          n-best lists, best first.
        """
        encoded = self.encode(batch, sessions)
        if histories is None:
            histories = [self.history_of(s, who) for s, who in zip(sessions, batch.speakers)]
        results = self._decode(batch, encoded, sessions, histories)
        if self.reads_text and self.options.first_text == "repeat":
            results = self._repeat_first(batch, encoded, sessions, histories, results)
        self._remember(batch, sessions, results)
        if self.words is not None:
            self.words.remember(sessions, results)
        return results

    def history_of(self, session: ConversationSession, speaker: str) -> List[PastTurn]:
        n = self.model.config.history_sentences
        return session.history(n, speaker, self.options.speakers)

    def encode(self, batch: Batch, sessions: Sequence[ConversationSession]) -> EncoderOutput:
        """Encode with the scores that the sessions hold; they keep the new ones.

        A conversation's first turn is run once more over its own audio, whose scores stand in
        for the past (A2).
        """
        if self.model.config.attention != "context":
            return self.model.encode(batch)
        first = [row for row, session in enumerate(sessions) if session.scores is None]
        for row, scores in zip(first, self._own_scores(batch, first)):
            sessions[row].scores = scores
        previous = AttentionScores.stack([session.scores for session in sessions])
        encoded = self.model.encode(batch, previous=previous)
        for row, session in enumerate(sessions):
            kept = encoded.scores.single(row, MAX_SCORE_FRAMES)
            session.scores = session.scores if kept is None else kept
        return encoded

    def _own_scores(self, batch: Batch, rows: List[int]) -> List[Optional[AttentionScores]]:
        if not rows:
            return []
        index = torch.tensor(rows, device=batch.features.device)
        lens = batch.feature_lens[index]
        speaker = None if batch.speaker_features is None else batch.speaker_features[index]
        features = batch.features[index, : int(lens.max())]
        x = self.model.encoder_input(features, lens, speaker, None)
        scores = self.model.encoder.history_scores(x, lens)
        return [scores.single(row, MAX_SCORE_FRAMES) for row in range(len(rows))]

    def token_history(
        self, batch: Batch, histories: Sequence[List[PastTurn]]
    ) -> Optional[TokenHistory]:
        """The capped, padded history of a batch; None for a model that reads none."""
        if not self.reads_text:
            return None
        config = self.model.config
        rows = list(zip(histories, batch.speakers))
        history = TokenHistory.from_lists(
            [[turn.tokens for turn in turns] for turns in histories],
            [[turn.speaker == speaker for turn in turns] for turns, speaker in rows],
            config.history_sentences,
            config.history_tokens,
        )
        device = batch.features.device
        return TokenHistory(
            history.tokens.to(device), history.lens.to(device), history.same_speaker.to(device)
        )

    def _decode(
        self,
        batch: Batch,
        encoded: EncoderOutput,
        sessions: Sequence[ConversationSession],
        histories: Sequence[List[PastTurn]],
    ) -> List[List[Hypothesis]]:
        log_probs = self.model.ctc_log_probs(encoded.out)
        if self.options.method in CTC_METHODS:
            return ctc_search(log_probs, encoded.lens, self.options)
        state = self._prepare(batch, encoded, sessions, histories) if self.uses_decoder else None
        scores = (log_probs, encoded.lens, self._lm_state(sessions))
        if self.lattice is not None:
            results = self.lattice.search(batch, state, *scores)
        else:
            results = self.search.search(state, *scores)
        if self.words is not None and self.words.trace:
            self.words.keep_trace(batch, self.model.decoder, state, results)
        return results

    def _prepare(self, batch, encoded: EncoderOutput, sessions, histories) -> Any:
        """The decoder's state before the first token, with the history and the words of each."""
        history = self.token_history(batch, histories)
        memory = None if self.words is None else self.words.memory(batch, sessions)
        if memory is None:
            return self.model.decoder.prepare(encoded.out, encoded.lens, history)
        audio = self.model.memory_audio(batch)
        return self.model.decoder.prepare(encoded.out, encoded.lens, history, memory, audio)

    def _repeat_first(self, batch, encoded, sessions, histories, results):
        """Paper A: where there is no history, the turn's own first hypothesis becomes it."""
        own = [
            [PastTurn(tuple(nbest[0].tokens), who)] if not history else history
            for history, nbest, who in zip(histories, results, batch.speakers)
        ]
        return self._decode(batch, encoded, sessions, own) if own != list(histories) else results

    def _lm_state(self, sessions: Sequence[ConversationSession]) -> Any:
        if self.lm is None or not self.carry_lm_state:
            return None
        fresh = self.lm.initial_state(1)
        states = [fresh if s.lm_state is None else s.lm_state for s in sessions]
        return type(fresh)(*(torch.cat(parts, dim=1) for parts in zip(*states)))

    def _remember(
        self,
        batch: Batch,
        sessions: Sequence[ConversationSession],
        results: Sequence[List[Hypothesis]],
    ) -> None:
        kept = [
            session.add(nbest[0].tokens, speaker, nbest[0].confidence)
            for session, nbest, speaker in zip(sessions, results, batch.speakers)
        ]
        if self.lm is None or not self.carry_lm_state:
            return
        # a turn that is not kept leaves the state as it was: silence does not erase history
        rows = [row for row, turn in enumerate(kept) if turn is not None]
        if rows:
            before = self._lm_state([sessions[row] for row in rows])
            _, after = self.lm.score([kept[row].tokens for row in rows], before)
            for i, row in enumerate(rows):
                index = torch.tensor([i], device=batch.features.device)
                sessions[row].lm_state = after.select(index)


def ctc_search(
    log_probs: Tensor, lens: Tensor, options: RecogniserOptions
) -> List[List[Hypothesis]]:
    """``ctc-greedy`` and ``ctc-prefix-beam``: (N, T, V) -> n-best lists."""
    blocked = ctc.without_special(log_probs)
    if options.method == "ctc-greedy":
        scores = torch.tensor(ctc.greedy_confidence(blocked, lens)).clamp(min=1e-12).log()
        found = ctc.greedy(blocked, lens)
        return [
            [Hypothesis(tokens, float(s) * (len(tokens) + 1), float(s) * (len(tokens) + 1))]
            for tokens, s in zip(found, scores)
        ]
    results = []
    for row, length in zip(blocked, lens.tolist()):
        ranked = ctc.prefix_beam(row, length, options.beam.beam)[: options.beam.nbest]
        results.append([Hypothesis(list(h), s, att=s, ctc=s) for h, s in ranked])
    return results


def with_beam(options: RecogniserOptions, **changes: Any) -> RecogniserOptions:
    """The same options with other search settings."""
    return replace(options, beam=replace(options.beam, **changes))
