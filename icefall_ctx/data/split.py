"""Random splits that never cut a conversation."""

from __future__ import annotations

import random
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from lhotse import Recording, SupervisionSegment

from icefall_ctx.data.linking import is_linked
from icefall_ctx.data.manifests import iter_supervisions
from icefall_ctx.errors import InputError


def parse_parts(text: str) -> Dict[str, float]:
    """``"train:0.8,dev:0.2"``, or a number of equal parts, as shares that sum to 1.

    Equal parts are named ``1``, ``2``, ... with leading zeros where there are ten or more.
    """
    if text.isdigit():
        count = int(text)
        if count < 1:
            raise InputError("parts: 0 parts; give at least 1")
        return {f"{i:0{len(text)}d}": 1.0 / count for i in range(1, count + 1)}
    shares: Dict[str, float] = {}
    for item in text.split(","):
        name, colon, share = item.strip().partition(":")
        if not colon or not name or name in shares or "/" in name:
            raise InputError(f"parts: {item!r}; write them as train:0.8,dev:0.1,test:0.1")
        try:
            shares[name] = float(share)
        except ValueError:
            raise InputError(f"parts: {share!r} in {item!r} is no number") from None
    if not all(share > 0 for share in shares.values()):
        raise InputError(f"parts: every share in {text!r} must be above 0")
    total = sum(shares.values())
    if abs(total - 1) > 1e-6:
        raise InputError(f"parts: the shares of {text!r} sum to {total:g}, not to 1")
    return shares


def split_conversations(
    supervisions: Iterable[SupervisionSegment],
    shares: Mapping[str, float],
    *,
    seed: int = 0,
    disjoint_speakers: bool = False,
) -> Dict[str, str]:
    """Part of every conversation: ``{conv_id: part}``.

    Conversations of one recording stay together, since a part gets whole recordings.  With
    ``disjoint_speakers``, so do all conversations that share a speaker, even through others.
    Shares are of the speech, in seconds, and are met as well as whole conversations allow;
    every part gets at least one.

    :raises InputError: for supervisions without links, and if there are fewer groups of
        conversations than parts.
    """
    groups, seconds = _groups(supervisions, disjoint_speakers)
    if len(groups) < len(shares):
        what = "conversations in separate recordings"
        if disjoint_speakers:
            what = "groups of conversations that share no speaker"
        raise InputError(f"{len(groups)} {what} cannot fill {len(shares)} parts")
    random.Random(seed).shuffle(groups)
    parts = _deal(groups, seconds, shares)
    return {conv_id: part for part, group in parts for conv_id in group}


def _groups(
    supervisions: Iterable[SupervisionSegment], disjoint_speakers: bool
) -> Tuple[List[List[str]], Dict[str, float]]:
    """Conversations that must stay together, in a defined order, and the seconds of each."""
    seconds: Dict[str, float] = {}
    together = _Groups()
    for supervision in supervisions:
        if not is_linked(supervision):
            raise InputError(f"{supervision.id}: has no conversation links; link before splitting")
        conv_id = supervision.custom["conv_id"]
        seconds[conv_id] = seconds.get(conv_id, 0.0) + supervision.duration
        together.join(("conversation", conv_id), ("recording", supervision.recording_id))
        if disjoint_speakers:
            if supervision.speaker is None:
                raise InputError(f"{supervision.id}: has no speaker; cannot keep speakers apart")
            together.join(("conversation", conv_id), ("speaker", supervision.speaker))
    members: Dict[Any, List[str]] = {}
    for conv_id in sorted(seconds):
        members.setdefault(together.root(("conversation", conv_id)), []).append(conv_id)
    return list(members.values()), seconds


class _Groups:
    """Union-find over hashable names."""

    def __init__(self) -> None:
        self._parent: Dict[Any, Any] = {}

    def root(self, name: Any) -> Any:
        parent = self._parent.setdefault(name, name)
        while parent != name:
            self._parent[name] = self._parent[parent]  # halve the path for the next search
            name, parent = parent, self._parent[parent]
        return name

    def join(self, first: Any, second: Any) -> None:
        self._parent[self.root(second)] = self.root(first)


def _deal(
    groups: List[List[str]], seconds: Dict[str, float], shares: Mapping[str, float]
) -> Iterator[Tuple[str, List[str]]]:
    """``(part, group)`` for each group: to the part that lacks most, relative to its share.

    The first groups fill every part once, so that none stays empty.
    """
    filled = {part: 0.0 for part in shares}
    empty = sorted(shares, key=lambda part: -shares[part])
    for group in groups:
        part = empty.pop(0) if empty else min(filled, key=lambda p: filled[p] / shares[p])
        # a conversation without duration counts a little, so that it is dealt round as well
        filled[part] += sum(seconds[conv_id] for conv_id in group) + 1e-6
        yield part, group


def distribute(
    items: Iterable[Any], part_of: Mapping[str, str], parts: Sequence[str]
) -> Dict[str, List[Any]]:
    """Supervisions or cuts of each part, in their order.

    :raises InputError: for a cut with supervisions of two parts or of none.
    """
    found: Dict[str, List[Any]] = {part: [] for part in parts}
    for item in items:
        where = {_part(supervision, part_of) for supervision in iter_supervisions([item])}
        if len(where) != 1:
            raise InputError(f"{item.id}: has supervisions in {len(where)} parts; needs just one")
        found[where.pop()].append(item)
    return found


def _part(supervision: SupervisionSegment, part_of: Mapping[str, str]) -> str:
    conv_id = (supervision.custom or {}).get("conv_id")
    if conv_id not in part_of:
        raise InputError(f"{supervision.id}: conversation {conv_id!r} is in no part")
    return part_of[conv_id]


def recordings_of(
    recordings: Iterable[Recording], parts: Mapping[str, Iterable[SupervisionSegment]]
) -> Dict[str, List[Recording]]:
    """Recordings of each part; those without supervisions are in none."""
    part_of: Dict[str, str] = {}
    for part, supervisions in parts.items():
        part_of.update((supervision.recording_id, part) for supervision in supervisions)
    found: Dict[str, List[Recording]] = {part: [] for part in parts}
    for recording in recordings:
        if recording.id in part_of:
            found[part_of[recording.id]].append(recording)
    return found
