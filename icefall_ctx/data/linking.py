"""Linking: the order of every conversation's turns, written into the supervisions once.

See :mod:`icefall_ctx.data.conversation` for what the links are and how they are looked up.
"""

from __future__ import annotations

import logging
import re
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from lhotse import SupervisionSegment, SupervisionSet
from lhotse.utils import fastcopy

from icefall_ctx.data.custom import check_supervision
from icefall_ctx.errors import InputError

NUM_PREV = 8
LINK_FIELDS = ("utt_id", "conv_id", "turn", "prev")

# What Lhotse's perturbations append to the ids of supervisions and recordings.
_AUGMENTED = re.compile(r"(?:_(?:sp|tp|vp)\d+(?:\.\d+)?|_rvb|_nb_\w+)+$")
_REPEATED = re.compile(r"_repeat\d+$")  # what SupervisionSet.repeat() appends to ids alone
_DIGITS = re.compile(r"(\d+)")


def link_conversations(
    supervisions: Iterable[SupervisionSegment],
    *,
    conversation: str = "auto",
    max_gap: Optional[float] = None,
    num_prev: int = NUM_PREV,
    relink: bool = False,
    in_place: bool = False,
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
    :param in_place: set the links on the supervisions given, which saves the memory of a copy.
    :raises InputError: for duplicate ids, linked or augmented supervisions, custom fields that
        cannot be saved, and supervisions without the field or pattern asked for.

    Turns are ordered by ``custom["conv_start"]`` (seconds on the conversation's clock) where it
    is set, else by ``start``; then by channel, then by id with numbers in it compared as numbers.
    """
    if num_prev < 1:
        raise InputError(f"num_prev is {num_prev}; it must be at least 1")
    if max_gap is not None and max_gap < 0:
        raise InputError(f"max_gap is {max_gap} s; it must not be negative")
    segments = list(supervisions) if in_place else _copies(supervisions)
    _prepare(segments, relink)
    groups = _group(segments, conversation_key(conversation))
    _warn_about_clocks(segments, groups)
    for segment, link in _links(segments, groups, max_gap, num_prev):
        segment.custom = {**segment.custom, **link} if segment.custom else link
    return SupervisionSet.from_segments(segments)


def _copies(supervisions: Iterable[SupervisionSegment]) -> List[SupervisionSegment]:
    return [fastcopy(s) if isinstance(s, SupervisionSegment) else s for s in supervisions]


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


def _prepare(segments: List[SupervisionSegment], relink: bool) -> None:
    seen = set()
    names: Dict[str, str] = {}
    repeats: Dict[str, Tuple[str, float]] = {}
    for segment in segments:
        if not isinstance(segment, SupervisionSegment):
            raise InputError(
                f"{getattr(segment, 'id', segment)!r} is a {type(segment).__name__}; links are "
                "made on supervisions, before cuts are"
            )
        if segment.id in seen:
            raise InputError(f"{segment.id}: this id occurs twice; ids must be unique")
        seen.add(segment.id)
        _check_not_repeated(segment, repeats)
        _share_names(segment, names)
        if is_linked(segment):
            _check_relink(segment, relink)
        _check_not_augmented(segment)
        if segment.custom:
            check_supervision(segment)
            _check_conv_start(segment)


def _share_names(segment: SupervisionSegment, names: Dict[str, str]) -> None:
    """Every line of a file brought strings of its own; keep one a recording and speaker."""
    segment.recording_id = names.setdefault(segment.recording_id, segment.recording_id)
    if segment.speaker is not None:
        segment.speaker = names.setdefault(segment.speaker, segment.speaker)


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


def _check_not_repeated(
    segment: SupervisionSegment, repeats: Dict[str, Tuple[str, float]]
) -> None:
    match = _REPEATED.search(segment.id)
    if match:
        span = (segment.recording_id, segment.start)
        base = segment.id[: match.start()]
        if base in repeats and repeats[base] == span:
            raise InputError(f"{segment.id}: this turn occurs twice. Link first, then repeat")
        repeats[base] = span


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
    return [(int(part), part) if i % 2 else (-1, part) for i, part in enumerate(parts)]


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
) -> Iterator[Tuple[SupervisionSegment, Dict[str, Any]]]:
    """Every segment with its four link fields, conversation by conversation."""
    taken = set(groups)
    for group_id, positions in groups.items():
        for number, part in enumerate(_split_at_gaps(segments, positions, max_gap), start=1):
            conv_id = group_id if number == 1 else _free_id(group_id, number, taken)
            ids = [segments[position].id for position in part]
            for turn, position in enumerate(part):
                yield segments[position], {
                    "utt_id": ids[turn],
                    "conv_id": conv_id,
                    "turn": turn,
                    "prev": ids[max(0, turn - num_prev) : turn],
                }


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
