"""History with mistakes in it, so that a model does not learn to trust its history blindly.

In training the history is the reference; in decoding it is what the recogniser made of earlier
turns.  Corrupted history closes that gap (A3, ``--history-noise``), and history of another
conversation teaches the model that history can be of no use at all.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from kaldialign import align

from icefall_ctx.data.conversation import Turn

MAX_EDIT_RATE = 0.5  # a sentence loses or changes up to this share of its words
_GAP = "*"


def units_of(text: str) -> List[str]:
    """Words; characters where the text is written without blanks."""
    words = text.split()
    return words if len(words) > 1 or text.isascii() else list(text.strip())


def join_units(units: Sequence[str], like: str) -> str:
    return (" " if " " in like.strip() or like.isascii() else "").join(units)


def confusion_table(pairs: Iterable[Tuple[str, str]]) -> Dict[str, List[str]]:
    """What each word was recognised as, by aligning (reference, hypothesis) pairs.

    A word that was confused twice with another stands twice in its list, so that drawing from
    the list follows the counts.
    """
    table: Dict[str, List[str]] = {}
    for reference, hypothesis in pairs:
        for ref, hyp in align(units_of(reference), units_of(hypothesis), _GAP):
            if ref != hyp and _GAP not in (ref, hyp):
                table.setdefault(ref, []).append(hyp)
    return table


class Corruptor:
    """Replaces the text of a history by text as a recogniser might have left it.

    Args:
      turns: turns of the training set, whose sentences stand in for those of a history.
      hypotheses: decoded text by utt_id; where there is one it is used in place of random edits,
        and what it confuses makes the confusion table.  Words that the table lacks are
        confused with any word of the training set, frequent ones more often.
    """

    def __init__(
        self, turns: Iterable[Turn], hypotheses: Optional[Mapping[str, str]] = None
    ) -> None:
        self.hypotheses = dict(hypotheses or {})
        # Sorted: the order of the manifest must not change what a seed draws.
        self._turns = sorted(turns, key=lambda turn: (turn.conv_id, turn.turn))
        counts = Counter(u for turn in self._turns for u in units_of(turn.text or ""))
        self._words = sorted(counts)
        self._weights = [counts[word] for word in self._words]
        known = {turn.utt_id: turn.text or "" for turn in self._turns}
        self._confusions = confusion_table(
            (known[utt_id], text) for utt_id, text in self.hypotheses.items() if utt_id in known
        )

    def __call__(self, history: Sequence[Turn], noise: float, rng: random.Random) -> List[str]:
        """The texts of ``history``, each corrupted with probability ``noise``.

        Half of the noise exchanges a whole history for consecutive turns of another
        conversation, the other half edits single sentences.
        """
        if history and rng.random() < noise / 2:
            return self._elsewhere(history, rng)
        # What is left for one sentence, so that it is corrupted with probability ``noise``.
        edited = (noise / 2) / (1 - noise / 2)
        return [
            self.edit(turn, rng) if rng.random() < edited else turn.text or ""
            for turn in history
        ]

    def _elsewhere(self, history: Sequence[Turn], rng: random.Random) -> List[str]:
        """Consecutive turns of another conversation; the texts themselves if there is none."""
        here = history[0].conv_id
        for _ in range(10):
            start = rng.randrange(len(self._turns)) if self._turns else 0
            turns = self._turns[start : start + len(history)]
            if turns and turns[0].conv_id != here:
                conv_id = turns[0].conv_id
                return [turn.text or "" for turn in turns if turn.conv_id == conv_id]
        return [turn.text or "" for turn in history]

    def edit(self, turn: Turn, rng: random.Random) -> str:
        """The decoded hypothesis of ``turn``, or its text with words deleted and confused."""
        if turn.utt_id in self.hypotheses:
            return self.hypotheses[turn.utt_id]
        text = turn.text or ""
        rate = rng.uniform(0.0, MAX_EDIT_RATE)
        edited = []
        for unit in units_of(text):
            if rng.random() >= rate:
                edited.append(unit)
            elif rng.random() >= 0.5:
                edited.append(self._confused(unit, rng))
        return join_units(edited, text)

    def _confused(self, unit: str, rng: random.Random) -> str:
        if unit in self._confusions:
            return rng.choice(self._confusions[unit])
        if not self._words:
            return unit
        return rng.choices(self._words, self._weights)[0]
