"""From the conversation to its word memory: which words of earlier turns become entries.

The rule: a word of a recognised turn enters the session's memory if

- it is rare: the training text has it at most ``max_count`` times,
- it is sure: the turn's confidence is at least ``min_confidence``,
- it can be spelled by the model.

A word that a person corrected enters without these conditions but the last.  A word that is
heard again becomes the newest.  At most ``cap`` words are held; the oldest leaves first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Iterable, Mapping, Sequence

from icefall_ctx.decode.session import ConversationSession
from icefall_ctx.models.memory_bank import EntryList
from icefall_ctx.text.words import WordEntry, WordLoader


@dataclass(frozen=True)
class HistoryWords:
    """The rule above.

    Attributes:
      loader: spells words as the model does.
      counts: how often the training text has each word.
    """

    loader: WordLoader
    counts: Mapping[str, int]
    max_count: int = 2
    min_confidence: float = 0.5
    cap: int = 100

    def hear(self, session: ConversationSession, text: str, confidence: float) -> None:
        """Learn from a recognised turn."""
        if confidence >= self.min_confidence:
            words = text.split()
            self._enter(session, [w for w in words if self.counts.get(w, 0) <= self.max_count])

    def correct(self, session: ConversationSession, text: str) -> None:
        """Learn the words of a correction, each as an entry of its own."""
        self._enter(session, text.split())

    def _enter(self, session: ConversationSession, words: Sequence[str]) -> None:
        if not words:
            return
        if session.learnt_words is None:
            session.learnt_words = EntryList()
        learnt = session.learnt_words
        for ids in self.loader.load([WordEntry(word) for word in words]).weights:
            if ids in learnt:
                learnt.remove(ids)
            learnt.add(ids)
        while len(learnt) > self.cap:
            learnt.remove(next(iter(learnt.weights)))


def word_counts(texts: Iterable[str]) -> Counter:
    """Words of the training text."""
    return Counter(word for text in texts for word in text.split())
