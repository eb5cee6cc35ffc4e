"""Conversation links: which turn follows which, written once and looked up ever after.

:func:`link_conversations` orders the turns of every conversation by time, over all channels, and
writes into ``supervision.custom``

=========  =========================================================================
utt_id     the supervision's id before any augmentation
conv_id    the conversation
turn       position in the conversation, from 0
prev       utt_ids of up to ``num_prev`` turns before this one, the nearest last
=========  =========================================================================

Nothing else guesses the order of a conversation.  :class:`ConversationIndex` finds neighbours by
``utt_id``, so the links survive speed perturbation, shuffling, filtering, trimming and Shar, all
of which change ids, times or the set of supervisions but leave ``custom`` alone.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from lhotse import SupervisionSegment

from icefall_ctx.data.linking import (
    augmentation_suffix,
    conversation_start,
    is_linked,
    link_conversations,
    previous_ids,
)
from icefall_ctx.data.manifests import iter_supervisions, open_manifest
from icefall_ctx.errors import InputError

__all__ = [
    "ConversationIndex",
    "Turn",
    "augmentation_suffix",
    "link_conversations",
    "previous_ids",
]

SPEAKERS = ("all", "same", "other")


class Turn(NamedTuple):
    """One turn of a conversation, as the index hands it out."""

    utt_id: str
    conv_id: str
    turn: int  # position in the conversation, from 0
    speaker: Optional[str]
    text: Optional[str]
    start: float  # seconds, as the manifest gives it; order turns by ``turn``, not by this
    prev: Tuple[str, ...]  # utt_ids before this one, the nearest last


class ConversationIndex:
    """Turns by ``utt_id``, with the history of each.

    Build it from the full linked manifest; any part, copy or shuffling of it finds its
    neighbours here.  Augmented copies of a turn are one entry: the original where it is there.
    """

    def __init__(self, turns: Dict[str, Turn]) -> None:
        self._turns = turns

    @classmethod
    def from_supervisions(cls, supervisions: Iterable[Any]) -> "ConversationIndex":
        """Index linked supervisions, or the supervisions of cuts.

        :raises InputError: for a supervision without links, and for two different turns with
            one ``utt_id``.  Repeated equal turns are counted and logged.
        """
        turns: Dict[str, Turn] = {}
        copies = set()  # utt_ids of which only an augmented copy was met so far
        names: Dict[str, str] = {}  # one object per conversation and speaker
        repeated = 0
        for supervision in iter_supervisions(supervisions):
            turn = _to_turn(supervision, names.setdefault, turns)
            original = len(supervision.id) == len(turn.utt_id)
            known = turns.setdefault(turn.utt_id, turn)
            if known is turn:
                if not original:
                    copies.add(turn.utt_id)
                continue
            _check_same_turn(known, turn)
            if original and turn.utt_id in copies:
                copies.remove(turn.utt_id)
                turns[turn.utt_id] = turn
            else:
                repeated += original
        if repeated:
            logging.warning("%d supervision ids occur more than once in the index", repeated)
        return cls(turns)

    @classmethod
    def from_manifests(
        cls, paths: Union[str, Path, Iterable[Union[str, Path]]]
    ) -> "ConversationIndex":
        """Index linked supervision or cut manifests (``.jsonl`` or ``.jsonl.gz``)."""
        paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
        manifests = [open_manifest(path, "supervisions", "cuts") for path in paths]
        return cls.from_supervisions(item for manifest in manifests for item in manifest)

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, utt_id: str) -> bool:
        return utt_id in self._turns

    def __iter__(self) -> Iterator[Turn]:
        return iter(self._turns.values())

    def __getitem__(self, utt_id: str) -> Turn:
        try:
            return self._turns[utt_id]
        except KeyError:
            raise InputError(
                f"turn {utt_id!r} is not in the index of {len(self)} turns; "
                "build the index from the full linked manifest"
            ) from None

    def history(self, utt_id: str, n: int, speakers: str = "all") -> List[Turn]:
        """Up to ``n`` turns before ``utt_id`` in its conversation, oldest first.

        :param speakers: ``"all"``, or only turns of the ``"same"`` speaker, or of ``"other"``
            speakers; turns whose speaker is not known are neither.

        Turns that the index does not hold are passed over.
        """
        if speakers not in SPEAKERS:
            raise InputError(f"speakers {speakers!r} is not one of {', '.join(SPEAKERS)}")
        turn = self[utt_id]
        if speakers != "all" and turn.speaker is None:
            raise InputError(f"{utt_id}: has no speaker; history of {speakers!r} is not defined")
        found: List[Turn] = []
        if n > 0:
            for earlier in self._backwards(turn):
                if _chosen(earlier, turn, speakers):
                    found.append(earlier)
                    if len(found) == n:
                        break
        return found[::-1]

    def _backwards(self, turn: Turn) -> Iterator[Turn]:
        """All turns before ``turn`` that the index holds, nearest first, each once."""
        below = turn.turn
        while turn is not None:
            oldest = None
            for utt_id in reversed(turn.prev):
                earlier = self._turns.get(utt_id)
                # a falling turn number ends the walk even where links are damaged
                if earlier is not None and earlier.turn < below:
                    below, oldest = earlier.turn, earlier
                    yield earlier
            turn = oldest


def _chosen(earlier: Turn, turn: Turn, speakers: str) -> bool:
    if speakers == "all":
        return True
    if earlier.speaker is None:
        return False
    return (earlier.speaker == turn.speaker) == (speakers == "same")


def _to_turn(
    supervision: SupervisionSegment, intern: Callable[[str, str], str], turns: Dict[str, Turn]
) -> Turn:
    if not is_linked(supervision):
        raise InputError(
            f"{supervision.id}: has no conversation links; run icefall-ctx link on the full "
            "supervision manifest first"
        )
    custom = supervision.custom
    speaker = supervision.speaker
    return Turn(
        utt_id=custom["utt_id"],
        conv_id=intern(custom["conv_id"], custom["conv_id"]),
        turn=custom["turn"],
        speaker=None if speaker is None else intern(speaker, speaker),
        text=supervision.text,
        start=conversation_start(supervision),
        # a turn is named by eight others: keep one string of it where a file brought nine
        prev=tuple([turns[p].utt_id if p in turns else p for p in custom["prev"]]),
    )


def _check_same_turn(known: Turn, turn: Turn) -> None:
    """Copies may differ in time (speed, trimming) but in nothing else."""
    if known._replace(start=0.0) != turn._replace(start=0.0):
        fields = [f for f in Turn._fields if getattr(known, f) != getattr(turn, f)]
        field = next(f for f in fields if f != "start")
        raise InputError(
            f"{turn.utt_id}: two turns have this id, and their {field} differs: "
            f"{getattr(known, field)!r} and {getattr(turn, field)!r}"
        )
