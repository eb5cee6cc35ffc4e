"""The history of a training utterance: what was said before it, and how it sounded."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from lhotse.cut import Cut

from icefall_ctx.data.conversation import ConversationIndex, Turn, augmentation_suffix
from icefall_ctx.data.corruption import Corruptor
from icefall_ctx.errors import InputError


def link_of(cut: Cut, name: str) -> Any:
    """The link field ``name`` (utt_id, conv_id, turn, prev) of the cut's one supervision."""
    if len(cut.supervisions) != 1:
        raise InputError(
            f"{cut.id}: holds {len(cut.supervisions)} supervisions; "
            "trim cuts to their supervisions first"
        )
    custom = cut.supervisions[0].custom or {}
    if name not in custom:
        raise InputError(
            f"{cut.id}: has no {name}; run icefall-ctx link on the supervision manifest first"
        )
    return custom[name]


def copy_key(cut: Cut) -> str:
    """Names one augmented copy of an utterance: ``utt_id`` and ``_sp0.9``, for example."""
    return link_of(cut, "utt_id") + augmentation_suffix(cut.supervisions[0])


@dataclass(frozen=True)
class HistoryOptions:
    """Which history a dataset delivers.

    Attributes:
      sentences: earlier turns whose text is given; 0 for none.
      max_tokens: and at most so many tokens of them, newest kept.
      audio_depth: earlier turns whose audio is given; 0 for none.
      speakers: ``all``, ``same`` or ``other``.
      first_text: ``repeat`` gives a first turn its own text as history (paper), ``empty`` none.
      noise: probability that a sentence is corrupted.
      drop: probability that an utterance gets no history, neither text nor audio.
    """

    sentences: int = 0
    max_tokens: int = 100
    audio_depth: int = 0
    speakers: str = "all"
    first_text: str = "empty"
    noise: float = 0.0
    drop: float = 0.0

    def __post_init__(self) -> None:
        for name in ("noise", "drop"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"--history-{name} {getattr(self, name)} is not in 0 .. 1")


class TextHistory(NamedTuple):
    """Earlier sentences, oldest first, and whether the speaker of the utterance said them."""

    texts: List[str]
    same_speaker: List[bool]


class HistoryReader:
    """Finds the history of a cut through the links, never through the order of the cuts.

    Args:
      options: what to find.
      index: every turn of the corpus.
      cuts: all cuts, with every speed copy, among which earlier audio is looked up.
      corruptor: needed if ``options.noise`` is not zero.
    """

    def __init__(
        self,
        options: HistoryOptions,
        index: ConversationIndex,
        cuts: Iterable[Cut] = (),
        corruptor: Optional[Corruptor] = None,
    ) -> None:
        if options.noise and corruptor is None:
            raise ValueError("noise needs a corruptor")
        self.options = options
        self.index = index
        self.corruptor = corruptor
        self._cuts: Mapping[str, Cut] = (
            {copy_key(cut): cut for cut in cuts} if options.audio_depth else {}
        )

    def _history(self, utt_id: str, n: int) -> List[Turn]:
        return self.index.history(utt_id, n, self.options.speakers)

    def text(self, cut: Cut, rng: random.Random) -> TextHistory:
        """The text before ``cut``; what is random comes from ``rng``."""
        utt_id = link_of(cut, "utt_id")
        turns = self._history(utt_id, self.options.sentences)
        if not turns and self.options.first_text == "repeat" and self.options.sentences:
            turns = [self.index[utt_id]]
        texts = [turn.text or "" for turn in turns]
        if self.options.noise:
            texts = self.corruptor(turns, self.options.noise, rng)
        speaker = cut.supervisions[0].speaker
        # An exchanged history may be shorter: flags belong to the nearest turns.
        flags = [turn.speaker == speaker for turn in turns][len(turns) - len(texts) :]
        return TextHistory(texts, flags)

    def audio(self, cut: Cut) -> List[Optional[Cut]]:
        """The ``audio_depth`` cuts before ``cut`` of the same speed, oldest first.

        Where a conversation begins, its first turn stands in for its own past, once (paper:
        "repeat this sentence"); this is also what a decoder remembers of it.  None stands for
        turns before that, and for turns that are not among the cuts.
        """
        depth = self.options.audio_depth
        suffix = augmentation_suffix(cut.supervisions[0])
        keys = [turn.utt_id + suffix for turn in self._history(link_of(cut, "utt_id"), depth)]
        if len(keys) < depth:
            keys.insert(0, keys[0] if keys else copy_key(cut))
        found = [cut if key == copy_key(cut) else self._cuts.get(key) for key in keys]
        return [None] * (depth - len(found)) + found

    def missing(self, cuts: Iterable[Cut]) -> int:
        """How many of ``cuts`` have a turn directly before them whose audio is not there."""
        return sum(self.audio(cut)[-1] is None for cut in cuts) if self.options.audio_depth else 0

    def report_missing(self, cuts: Sequence[Cut]) -> None:
        number = self.missing(cuts)
        if number:
            logging.warning(
                "%d of %d utterances have no audio of the turn before them: it is not among "
                "the cuts, or not at the same speed",
                number,
                len(cuts),
            )


def history_rng(seed: int, epoch: int, cut_id: str) -> random.Random:
    """Random numbers of one utterance in one epoch, the same in whatever process."""
    return random.Random(f"{seed}/{epoch}/{cut_id}")
