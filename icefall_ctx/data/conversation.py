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
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple, Union

from lhotse import SupervisionSegment, SupervisionSet
from lhotse.utils import fastcopy

from icefall_ctx.data.custom import check_supervision
from icefall_ctx.data.manifests import iter_supervisions, open_manifest
from icefall_ctx.errors import InputError

NUM_PREV = 8
SPEAKERS = ("all", "same", "other")
LINK_FIELDS = ("utt_id", "conv_id", "turn", "prev")

# What Lhotse's perturbations append to the ids of supervisions and recordings.
_AUGMENTED = re.compile(r"(?:_(?:sp|tp|vp)\d+(?:\.\d+)?|_rvb|_nb_\w+)+$")
_DIGITS = re.compile(r"(\d+)")


class Turn(NamedTuple):
    """One turn of a conversation, as the index hands it out."""

    utt_id: str
    conv_id: str
    turn: int  # position in the conversation, from 0
    speaker: Optional[str]
    text: Optional[str]
    start: float  # seconds, as the manifest gives it; order turns by ``turn``, not by this
    prev: Tuple[str, ...]  # utt_ids before this one, the nearest last


# ---------------------------------------------------------------------------- linking


def link_conversations(
    supervisions: Iterable[SupervisionSegment],
    *,
    conversation: str = "auto",
    max_gap: Optional[float] = None,
    num_prev: int = NUM_PREV,
    relink: bool = False,
) -> SupervisionSet:
    """Copies of ``supervisions``, in the order given, with links in ``custom``.

    Link the full manifest, before filtering, splitting, trimming or speed perturbation.

    :param conversation: what makes turns one conversation: ``"recording"`` (the recording id),
        ``"field:NAME"`` (an attribute or a custom field), ``"pattern:REGEX"`` (the first group
        of REGEX searched in the recording id), ``"id-pattern:REGEX"`` (the same in the
        supervision id), or ``"auto"``: ``custom["conv_id"]`` where it is set, else the
        recording id.
    :param max_gap: seconds of silence, over all channels, after which a new conversation starts;
        the second has the id of the first and ``-2``, the third ``-3``.
    :param num_prev: how many preceding turns to store.
    :param relink: replace existing links instead of refusing them.
    :raises InputError: for duplicate ids, linked or augmented supervisions, custom fields that
        cannot be saved, and supervisions without the field or pattern asked for.

    Turns are ordered by ``custom["conv_start"]`` (seconds on the conversation's clock) where it
    is set, else by ``start``; then by channel, then by id with numbers in it compared as numbers.
    """
    if num_prev < 1:
        raise InputError(f"num_prev is {num_prev}; it must be at least 1")
    if max_gap is not None and max_gap < 0:
        raise InputError(f"max_gap is {max_gap} s; it must not be negative")
    segments = list(supervisions)
    _check_linkable(segments, relink)
    groups = _group(segments, conversation_key(conversation))
    _warn_about_clocks(segments, groups)
    links = _links(segments, groups, max_gap, num_prev)
    return SupervisionSet.from_segments(
        fastcopy(segment, custom={**(segment.custom or {}), **link})
        for segment, link in zip(segments, links)
    )


def is_linked(supervision: SupervisionSegment) -> bool:
    return supervision.custom is not None and all(f in supervision.custom for f in LINK_FIELDS)


def conversation_start(supervision: SupervisionSegment) -> float:
    """Seconds on the conversation's clock: ``conv_start`` where it is set, else ``start``."""
    start = (supervision.custom or {}).get("conv_start")
    return supervision.start if start is None else start


def conversation_key(rule: str) -> Callable[[SupervisionSegment], str]:
    """The function from a supervision to its conversation that ``rule`` describes.

    See ``conversation`` of :func:`link_conversations`.
    """
    kind, colon, value = rule.partition(":")
    if rule == "auto":
        return _auto_key
    if rule == "recording":
        return lambda supervision: supervision.recording_id
    if kind == "field" and value:
        return lambda supervision: _field_key(supervision, value)
    if kind in ("pattern", "id-pattern") and value:
        attribute = "recording_id" if kind == "pattern" else "id"
        pattern = _compile(value)
        return lambda supervision: _pattern_key(supervision, attribute, pattern)
    raise InputError(
        f"conversation {rule!r} is not known; use auto, recording, field:NAME, "
        "pattern:REGEX (recording id) or id-pattern:REGEX (supervision id)"
    )


def _auto_key(supervision: SupervisionSegment) -> str:
    conv_id = (supervision.custom or {}).get("conv_id")
    return supervision.recording_id if conv_id is None else str(conv_id)


def _field_key(supervision: SupervisionSegment, name: str) -> str:
    value = (supervision.custom or {}).get(name, supervision.__dict__.get(name))
    if type(value) not in (str, int):
        found = "is not set" if value is None else f"is {value!r}, no string or whole number"
        raise InputError(f"{supervision.id}: field {name!r} {found}; it names the conversation")
    return str(value)


def _compile(pattern: str) -> "re.Pattern[str]":
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.groups < 1:
        raise InputError(f"pattern {pattern!r} needs a group, in brackets, for the conversation")
    return compiled


def _pattern_key(
    supervision: SupervisionSegment, attribute: str, pattern: "re.Pattern[str]"
) -> str:
    text = getattr(supervision, attribute)
    match = pattern.search(text)
    if match is None or match.group(1) is None:
        name = attribute.replace("_", " ")
        raise InputError(f"{supervision.id}: {name} {text!r} does not match {pattern.pattern!r}")
    return match.group(1)


def _check_linkable(segments: List[SupervisionSegment], relink: bool) -> None:
    seen = set()
    for segment in segments:
        if not isinstance(segment, SupervisionSegment):
            raise InputError(
                f"{getattr(segment, 'id', segment)!r} is a {type(segment).__name__}; links are "
                "made on supervisions, before cuts are"
            )
        if segment.id in seen:
            raise InputError(f"{segment.id}: this id occurs twice; ids must be unique")
        seen.add(segment.id)
        if is_linked(segment):
            _check_relink(segment, relink)
        _check_not_augmented(segment)
        if segment.custom:
            check_supervision(segment)
            _check_conv_start(segment)


def _check_relink(segment: SupervisionSegment, relink: bool) -> None:
    suffix = augmentation_suffix(segment)
    if suffix:
        raise InputError(f"{segment.id}: is an augmented copy ({suffix}) and keeps its links")
    if not relink:
        raise InputError(
            f"{segment.id}: is linked already; linking again after filtering or splitting "
            "loses neighbours. Ask for relinking if this is the full manifest"
        )


def _check_not_augmented(segment: SupervisionSegment) -> None:
    match = _AUGMENTED.search(segment.id)
    if match and segment.recording_id.endswith(match.group()):
        raise InputError(
            f"{segment.id}: ends in {match.group()!r}, and so does its recording: an augmented "
            "copy. Link first, then augment"
        )


def _check_conv_start(segment: SupervisionSegment) -> None:
    start = segment.custom.get("conv_start")
    if start is not None and type(start) not in (int, float):
        raise InputError(f"{segment.id}: conv_start is {start!r}; it must be seconds")


def _group(
    segments: List[SupervisionSegment], key: Callable[[SupervisionSegment], str]
) -> Dict[str, List[int]]:
    """Conversation -> positions of its turns in ``segments``, ordered by time."""
    groups: Dict[str, List[int]] = {}
    for position, segment in enumerate(segments):
        groups.setdefault(key(segment), []).append(position)
    for positions in groups.values():
        positions.sort(key=lambda position: _order(segments[position]))
    return groups


def _order(segment: SupervisionSegment) -> Tuple[Any, ...]:
    channel = segment.channel if isinstance(segment.channel, int) else min(segment.channel)
    return conversation_start(segment), channel, natural_key(segment.id)


def natural_key(text: str) -> List[Tuple[int, str]]:
    """A sort key under which ``utt-9`` comes before ``utt-10``."""
    parts = _DIGITS.split(text)  # text, digits, text, digits, ...
    key = [(int(part), part) if i % 2 else (-1, part) for i, part in enumerate(parts)]
    return key


def _warn_about_clocks(
    segments: List[SupervisionSegment], groups: Dict[str, List[int]]
) -> None:
    """Starts in different recordings are one clock only if somebody says so."""
    doubtful = [conv_id for conv_id, turns in groups.items() if _clocks(segments, turns) > 1]
    if doubtful:
        logging.warning(
            "%d conversations span several recordings without conv_start (such as %s): "
            "start times are taken as one clock",
            len(doubtful),
            doubtful[0],
        )


def _clocks(segments: List[SupervisionSegment], positions: List[int]) -> int:
    turns = (segments[position] for position in positions)
    return len({s.recording_id for s in turns if (s.custom or {}).get("conv_start") is None})


def _links(
    segments: List[SupervisionSegment],
    groups: Dict[str, List[int]],
    max_gap: Optional[float],
    num_prev: int,
) -> List[Dict[str, Any]]:
    """The four link fields of every segment, in the order of ``segments``."""
    links: List[Any] = [None] * len(segments)
    taken = set(groups)
    for group_id, positions in groups.items():
        for number, part in enumerate(_split_at_gaps(segments, positions, max_gap), start=1):
            conv_id = group_id if number == 1 else _free_id(group_id, number, taken)
            ids = [segments[position].id for position in part]
            for turn, position in enumerate(part):
                links[position] = {
                    "utt_id": ids[turn],
                    "conv_id": conv_id,
                    "turn": turn,
                    "prev": ids[max(0, turn - num_prev) : turn],
                }
    return links


def _split_at_gaps(
    segments: List[SupervisionSegment], positions: List[int], max_gap: Optional[float]
) -> Iterator[List[int]]:
    if max_gap is None:
        yield positions
        return
    part: List[int] = []
    end = 0.0
    for position in positions:
        start = conversation_start(segments[position])
        # 1e-6 s: times with few decimals must not differ by the rounding of a sum
        if part and start - end > max_gap + 1e-6:
            yield part
            part = []
        stop = start + segments[position].duration
        end = max(end, stop) if part else stop
        part.append(position)
    yield part


def _free_id(group_id: str, number: int, taken: set) -> str:
    """``group_id-number``, or longer if a conversation of the corpus has that name."""
    conv_id = f"{group_id}-{number}"
    while conv_id in taken:
        conv_id += "-gap"
    taken.add(conv_id)
    return conv_id


# ---------------------------------------------------------------------------- looking up


def augmentation_suffix(supervision: SupervisionSegment) -> str:
    """What augmentation appended to the id, such as ``"_sp0.9"``; empty if nothing.

    :raises InputError: if the id does not begin with the ``utt_id`` of its links.
    """
    utt_id = (supervision.custom or {}).get("utt_id")
    if utt_id is None or supervision.id == utt_id:
        return ""
    if not supervision.id.startswith(utt_id):
        raise InputError(
            f"{supervision.id}: does not begin with its utt_id {utt_id!r}; "
            "link after renaming supervisions"
        )
    return supervision.id[len(utt_id) :]


def previous_ids(supervision: SupervisionSegment) -> List[str]:
    """Ids of the preceding turns in the copy that ``supervision`` belongs to, nearest last.

    The neighbours of ``u3_sp0.9`` are ``u1_sp0.9`` and ``u2_sp0.9``.
    """
    suffix = augmentation_suffix(supervision)
    return [utt_id + suffix for utt_id in (supervision.custom or {}).get("prev", ())]


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
        names: Dict[str, str] = {}  # one object per name: a turn is named by eight others
        repeated = 0
        for supervision in iter_supervisions(supervisions):
            turn = _to_turn(supervision, names.setdefault)
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


def _to_turn(supervision: SupervisionSegment, intern: Callable[[str, str], str]) -> Turn:
    if not is_linked(supervision):
        raise InputError(
            f"{supervision.id}: has no conversation links; run icefall-ctx link on the full "
            "supervision manifest first"
        )
    custom = supervision.custom
    speaker = supervision.speaker
    return Turn(
        utt_id=intern(custom["utt_id"], custom["utt_id"]),
        conv_id=intern(custom["conv_id"], custom["conv_id"]),
        turn=custom["turn"],
        speaker=None if speaker is None else intern(speaker, speaker),
        text=supervision.text,
        start=conversation_start(supervision),
        prev=tuple([intern(utt_id, utt_id) for utt_id in custom["prev"]]),
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
