"""Where a decode takes its history from: the run itself, references, nowhere, or elsewhere."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence

from icefall_ctx.data.batch import Batch
from icefall_ctx.data.conversation import ConversationIndex
from icefall_ctx.decode.recogniser import Recogniser
from icefall_ctx.decode.session import ConversationSession, PastTurn
from icefall_ctx.models.attention import AttentionScores
from icefall_ctx.text.tokenizer import Tokenizer

MAX_FOREIGN = 16  # conversations whose scores are kept for others; bounds memory


class HistorySource:
    """What a model is given as history: ``hyp``, ``ref``, ``none`` or ``shuffled``.

    ``shuffled`` gives a turn the hypotheses, and the encoder scores, of another conversation of
    the run, the control that shows whether a model uses what it gets.  ``none`` makes every turn
    a first turn.

    Args:
      kind: as above.
      index: every turn of the test set; read with ``ref`` only.
      tokenizer, normalize: references to token ids; with ``ref`` only.
    """

    def __init__(
        self,
        kind: str,
        recogniser: Recogniser,
        index: Optional[ConversationIndex] = None,
        tokenizer: Optional[Tokenizer] = None,
        normalize: Any = str,
        seed: int = 0,
    ) -> None:
        self.kind, self.recogniser = kind, recogniser
        self.index, self.tokenizer, self.normalize = index, tokenizer, normalize
        self.rng = random.Random(seed)
        self.pool: Dict[str, List[PastTurn]] = {}
        self.scores: Dict[str, AttentionScores] = {}

    def replace_scores(self, sessions: Sequence[ConversationSession]) -> None:
        """What the encoder is given of the turn before (A2), in place of the sessions' own."""
        if self.kind == "none":
            for session in sessions:
                session.scores = None
        elif self.kind == "shuffled":
            for session in sessions:
                self._keep_scores(session)
            for session in sessions:
                others = sorted(conv for conv in self.scores if conv != session.conv_id)
                if session.scores is not None:
                    session.scores = self.scores[self.rng.choice(others)] if others else None

    def _keep_scores(self, session: ConversationSession) -> None:
        if session.scores is not None:
            self.scores.pop(session.conv_id, None)  # the newest stand last
            self.scores[session.conv_id] = session.scores
            if len(self.scores) > MAX_FOREIGN:
                del self.scores[next(iter(self.scores))]

    def histories(
        self, batch: Batch, sessions: Sequence[ConversationSession]
    ) -> Optional[List[List[PastTurn]]]:
        """For each row the turns to read, oldest first; None leaves it to the sessions."""
        if self.kind == "hyp":
            return None
        if self.kind == "none":
            return [[] for _ in sessions]
        if self.kind == "ref":
            return [self._reference(u, who) for u, who in zip(batch.utt_ids, batch.speakers)]
        own = [self.recogniser.history_of(s, who) for s, who in zip(sessions, batch.speakers)]
        self.pool.update({s.conv_id: turns for s, turns in zip(sessions, own) if turns})
        rows = zip(sessions, own, batch.speakers)
        return [self._foreign(session, turns, speaker) for session, turns, speaker in rows]

    def _reference(self, utt_id: str, speaker: str) -> List[PastTurn]:
        n = self.recogniser.model.config.history_sentences
        turns = self.index.history(utt_id, n, self.recogniser.options.speakers)
        encoded = [self.tokenizer.encode(self.normalize(turn.text or "")) for turn in turns]
        return [PastTurn(tuple(ids), turn.speaker) for ids, turn in zip(encoded, turns) if ids]

    def _foreign(self, session, own: List[PastTurn], speaker: str) -> List[PastTurn]:
        """As much of another conversation as this one has, with the same speaker pattern; while
        there is no other conversation, nothing: its own words would not be a control."""
        others = sorted(conv for conv in self.pool if conv != session.conv_id)
        if not own or not others:
            return []
        foreign = self.pool[self.rng.choice(others)][-len(own) :]
        mine = own[len(own) - len(foreign) :]
        return [replace(turn, speaker=place.speaker) for turn, place in zip(foreign, mine)]
