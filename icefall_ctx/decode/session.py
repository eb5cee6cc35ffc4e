"""The one place where a conversation remembers: its text, encoder scores, LM state and words.

Batch decoding runs many sessions in step; live transcription runs one.  Both go through
:class:`~icefall_ctx.decode.recogniser.Recogniser` and give the same text.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Deque, List, Optional, Sequence, Tuple

from icefall_ctx.models.attention import AttentionScores
from icefall_ctx.models.memory_bank import EntryList

MAX_PAST_TURNS = 64  # more than any model reads; bounds what an endless call keeps
MAX_SCORE_FRAMES = 1000  # 40 s, more than the next turn reads; scores grow with the square
MAX_NGRAM = 8
MAX_REPEATS = 4


@dataclass(frozen=True)
class PastTurn:
    """One recognised turn.

    Attributes:
      tokens: ids without ``<sos/eos>``, repeated n-grams already cut.
      speaker: who said it; empty if unknown.
      confidence: of the hypothesis, in [0, 1].
    """

    tokens: Tuple[int, ...]
    speaker: str
    confidence: float = 1.0


def cut_repeats(
    tokens: Sequence[int], max_ngram: int = MAX_NGRAM, max_repeats: int = MAX_REPEATS
) -> List[int]:
    """Cut an n-gram said more than ``max_repeats`` times in a row down to one.

    A decoder that has fallen into a loop must not read its own loop as history.  What people
    repeat ("no no no", "five five five five") stays.
    """
    tokens = list(tokens)
    while True:
        before = tokens
        for n in range(1, max_ngram + 1):
            tokens = _cut_ngram(tokens, n, max_repeats)
        if tokens == before:  # else a cut may have joined two shorter loops
            return tokens


def _cut_ngram(tokens: List[int], n: int, max_repeats: int) -> List[int]:
    kept: List[int] = []
    position = 0
    while position < len(tokens):
        gram = tokens[position : position + n]
        end = position + n
        while len(gram) == n and tokens[end : end + n] == gram:
            end += n
        looped = (end - position) // n > max_repeats
        kept.extend(gram if looped else tokens[position : position + 1])
        position = end if looped else position + 1
    return kept


@dataclass
class ConversationSession:
    """What one conversation remembers between two turns.

    Attributes:
      conv_id: its name, for messages.
      min_confidence: a hypothesis below this is not used as history.
      past: recognised turns with words in them, newest last; silence takes no place.
      scores: encoder scores of the last turn (A2), of its first MAX_SCORE_FRAMES; or None.
      lm_state: of the language model after the last turn, one row; or None.
      words: the session's own word list for the memory; None uses the model-wide list.
      learnt_words: entries that earlier turns or corrections brought, see ``session_words``.
      turns: turns seen, silent ones included.
    """

    conv_id: str = ""
    min_confidence: float = 0.0
    past: Deque[PastTurn] = field(default_factory=lambda: deque(maxlen=MAX_PAST_TURNS))
    scores: Optional[AttentionScores] = None
    lm_state: Any = None
    words: Optional[EntryList] = None
    learnt_words: Optional[EntryList] = None
    turns: int = 0

    def add(
        self, tokens: Sequence[int], speaker: str, confidence: float
    ) -> Optional[PastTurn]:
        """Remember a recognised turn.

        Returns:
          What is kept of it; None for an empty or doubtful turn, which is counted only.
        """
        self.turns += 1
        tokens = cut_repeats(tokens)
        if not tokens or confidence < self.min_confidence:
            return None
        turn = PastTurn(tuple(tokens), speaker, confidence)
        self.past.append(turn)
        return turn

    def history(self, n: int, speaker: str, speakers: str = "all") -> List[PastTurn]:
        """The last ``n`` turns, oldest first.

        Args:
          speaker: who speaks now.
          speakers: ``all``, or only turns of the ``same`` or of ``other`` speakers.
        """
        chosen = [
            turn
            for turn in self.past
            if speakers == "all" or (turn.speaker == speaker) == (speakers == "same")
        ]
        return chosen[-n:] if n > 0 else []
