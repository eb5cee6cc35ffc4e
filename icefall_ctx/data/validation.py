"""Checks of linked manifests that Lhotse's own validation does not know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from lhotse import Recording, SupervisionSegment

from icefall_ctx.data.linking import augmentation_suffix, conversation_start, is_linked
from icefall_ctx.data.manifests import iter_supervisions
from icefall_ctx.errors import InputError

# Times with two decimals and sample counts disagree by less than this (seconds).
TIME_TOLERANCE = 1e-3
MAX_SHOWN = 5


@dataclass
class Findings:
    """What is wrong, by kind: how often, and the first few places."""

    counts: Dict[str, int] = field(default_factory=dict)
    first: Dict[str, List[str]] = field(default_factory=dict)

    def add(self, kind: str, place: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        shown = self.first.setdefault(kind, [])
        if len(shown) < MAX_SHOWN:
            shown.append(place)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def lines(self) -> List[str]:
        """One line a kind, the most frequent first: count, kind, first places."""
        kinds = sorted(self.counts, key=lambda kind: -self.counts[kind])
        return [f"{self.counts[k]:8d}  {k}: {', '.join(self.first[k])}" for k in kinds]


class _Link(NamedTuple):
    conv_id: str
    suffix: str  # of augmentation: copies of different speed are different conversations
    turn: int
    start: float  # seconds on the conversation's clock
    prev: Tuple[str, ...]  # utt_ids, without suffix


def validate_links(
    items: Iterable[Any],
    *,
    recordings: Optional[Iterable[Recording]] = None,
    index: Optional[Iterable[Any]] = None,
) -> Findings:
    """Check a manifest of linked supervisions, or of cuts with such.

    :param items: supervisions or cuts.
    :param recordings: to check times and channels against; cuts bring theirs.
    :param index: the full linked manifest that ``items`` are a part of: neighbours that were
        filtered away, or are in another part, are looked for there.

    Kinds: duplicate id, not linked, id without its utt_id, duplicate turn, duplicate link,
    dangling link, cyclic link, link into another conversation, out-of-order link, start out of
    order, unknown recording, outside the recording, outside its cut, no such channel, one
    speaker on two channels.
    """
    findings = Findings()
    items = list(items)
    supervisions = list(iter_supervisions(items))
    _check_ids(supervisions, findings)
    _check_speakers(supervisions, findings)
    _check_times(items, recordings, findings)
    # Trimming sets every start to 0: only supervision manifests still know the clock.
    clock = not any(hasattr(item, "supervisions") for item in items)
    links = _collect(supervisions, findings)
    whole = _collect(iter_supervisions(index or ()), Findings())
    _check_turns(links, findings)
    for name, link in links.items():
        _check_neighbours(name, link, links, whole, clock, findings)
    _check_cycles(links, findings)
    return findings


def _check_ids(supervisions: List[SupervisionSegment], findings: Findings) -> None:
    seen = set()
    for supervision in supervisions:
        if supervision.id in seen:
            findings.add("duplicate id", supervision.id)
        seen.add(supervision.id)


def _check_speakers(supervisions: List[SupervisionSegment], findings: Findings) -> None:
    for recording_id, speaker in speakers_on_two_channels(supervisions):
        findings.add("one speaker on two channels", f"{speaker} in {recording_id}")


def speakers_on_two_channels(
    supervisions: Iterable[SupervisionSegment],
) -> List[Tuple[str, str]]:
    """``(recording_id, speaker)`` wherever one label is on more than one channel.

    A turn that is itself on several channels (a microphone array) is no such case.
    """
    channels: Dict[Tuple[str, str], set] = {}
    for supervision in supervisions:
        if supervision.speaker is not None and isinstance(supervision.channel, int):
            place = (supervision.recording_id, supervision.speaker)
            channels.setdefault(place, set()).add(supervision.channel)
    return [place for place, found in channels.items() if len(found) > 1]


def _check_times(
    items: List[Any], recordings: Optional[Iterable[Recording]], findings: Findings
) -> None:
    table = None if recordings is None else {recording.id: recording for recording in recordings}
    for item in items:
        if isinstance(item, SupervisionSegment):
            if table is not None:
                _check_in_recording(item, table.get(item.recording_id), findings)
            continue
        for supervision in item.supervisions:
            # inside a cut, times count from the start of the cut
            if supervision.end < -TIME_TOLERANCE or supervision.start > item.duration:
                findings.add("outside its cut", supervision.id)


def _check_in_recording(
    supervision: SupervisionSegment, recording: Optional[Recording], findings: Findings
) -> None:
    if recording is None:
        findings.add("unknown recording", f"{supervision.id} in {supervision.recording_id}")
        return
    late = supervision.end - recording.duration
    if supervision.start < 0 or late > TIME_TOLERANCE or supervision.duration <= 0:
        span = f"{supervision.start:g}..{supervision.end:g} s of {recording.duration:g} s"
        findings.add("outside the recording", f"{supervision.id} ({span})")
    channels = supervision.channel
    channels = {channels} if isinstance(channels, int) else set(channels)
    if not channels <= set(recording.channel_ids):
        findings.add("no such channel", f"{supervision.id} (channel {supervision.channel})")


def _collect(
    supervisions: Iterable[SupervisionSegment], findings: Findings
) -> Dict[str, _Link]:
    """Links by full supervision id."""
    links = {}
    for supervision in supervisions:
        if not is_linked(supervision):
            findings.add("not linked", supervision.id)
            continue
        try:
            links[supervision.id] = _to_link(supervision)
        except InputError:
            findings.add("id without its utt_id", supervision.id)
    return links


def _to_link(supervision: SupervisionSegment) -> _Link:
    custom = supervision.custom
    return _Link(
        conv_id=custom["conv_id"],
        suffix=augmentation_suffix(supervision),
        turn=custom["turn"],
        start=conversation_start(supervision),
        prev=tuple(custom["prev"]),
    )


def _check_turns(links: Dict[str, _Link], findings: Findings) -> None:
    seen: Dict[Tuple[str, str, int], str] = {}
    for name, link in links.items():
        other = seen.setdefault((link.conv_id, link.suffix, link.turn), name)
        if other != name:
            findings.add("duplicate turn", f"{other} and {name}, turn {link.turn}")


def _check_neighbours(
    name: str,
    link: _Link,
    links: Dict[str, _Link],
    whole: Dict[str, _Link],
    clock: bool,
    findings: Findings,
) -> None:
    if len(set(link.prev)) < len(link.prev):
        findings.add("duplicate link", name)
    found = []
    for prev in link.prev:
        neighbour = links.get(prev + link.suffix) or whole.get(prev + link.suffix)
        neighbour = neighbour or whole.get(prev)
        if neighbour is None:
            findings.add("dangling link", f"{name} -> {prev}")
        else:
            found.append((prev, neighbour))
    for problem, prev in _compare(link, found, clock):
        findings.add(problem, f"{name} -> {prev}")


def _compare(
    link: _Link, found: List[Tuple[str, _Link]], clock: bool
) -> Iterator[Tuple[str, str]]:
    """Problems of the neighbours that are there; each must come before the next, then the turn."""
    previous = None
    for name, neighbour in found:
        if neighbour.conv_id != link.conv_id:
            yield "link into another conversation", name
        elif neighbour.turn >= link.turn or (previous and previous.turn >= neighbour.turn):
            yield "out-of-order link", name
        elif clock and neighbour.suffix == link.suffix and _later(neighbour, link):
            yield "start out of order", name
        previous = neighbour


def _later(neighbour: _Link, link: _Link) -> bool:
    return neighbour.start > link.start + TIME_TOLERANCE


def _check_cycles(links: Dict[str, _Link], findings: Findings) -> None:
    """Follow links backwards, without recursion: conversations may be long."""
    done: set = set()
    for root in links:
        path: Dict[str, Iterator[str]] = {} if root in done else {root: _steps(links[root])}
        while path:
            name = next(reversed(path))
            prev = next(path[name], None)
            if prev is None:
                done.add(name)
                del path[name]
            elif prev in path:
                findings.add("cyclic link", f"{name} -> {prev}")
            elif prev in links and prev not in done:
                path[prev] = _steps(links[prev])


def _steps(link: _Link) -> Iterator[str]:
    return (prev + link.suffix for prev in link.prev)
