"""Linked manifests in figures."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple

from lhotse import SupervisionSegment

from icefall_ctx.data.linking import conversation_start, is_linked
from icefall_ctx.data.manifests import iter_supervisions


def describe_links(items: Iterable[Any]) -> List[Tuple[str, str]]:
    """``(name, value)`` rows about linked supervisions, or cuts with such.

    Gaps and overlaps are from the latest end of the turns before to the start of the next, on
    the conversation's clock; they are left out for cuts, whose supervisions have lost it.
    """
    items = list(items)
    clock = not any(hasattr(item, "supervisions") for item in items)
    turns = list(iter_supervisions(items))
    linked = [turn for turn in turns if is_linked(turn)]
    conversations: Dict[str, List[SupervisionSegment]] = {}
    for turn in linked:
        conversations.setdefault(turn.custom["conv_id"], []).append(turn)
    sizes = [len(members) for members in conversations.values()]
    rows = [
        ("turns", f"{len(turns):,}"),
        ("without links", f"{len(turns) - len(linked):,}"),
        ("conversations", f"{len(conversations):,}"),
        ("recordings", f"{len({turn.recording_id for turn in turns}):,}"),
        ("speakers", f"{len({turn.speaker for turn in turns} - {None}):,}"),
        ("speech", f"{sum(turn.duration for turn in turns) / 3600:.2f} h"),
        ("turns per conversation", _spread(sizes, "")),
        ("turns with history", _share(linked)),
    ]
    return rows + (_pauses(conversations) if clock else [])


def _share(linked: List[SupervisionSegment]) -> str:
    if not linked:
        return "n/a"
    count = sum(bool(turn.custom["prev"]) for turn in linked)
    return f"{100 * count / len(linked):.1f} %"


def _pauses(conversations: Dict[str, List[SupervisionSegment]]) -> List[Tuple[str, str]]:
    gaps, overlaps = [], []
    for members in conversations.values():
        members = sorted(members, key=lambda turn: turn.custom["turn"])
        end = None
        for turn in members:
            start = conversation_start(turn)
            if end is not None:
                (gaps if start >= end else overlaps).append(abs(start - end))
            end = max(end or 0.0, start + turn.duration)
    return [("gaps", _spread(gaps, " s")), ("overlaps", _spread(overlaps, " s"))]


def _spread(values: List[float], unit: str) -> str:
    """Median and range, with the count of values that have a unit."""
    if not values:
        return "none"
    values = sorted(values)
    shown = [f"{value:.4g}{unit}" for value in (values[len(values) // 2], values[0], values[-1])]
    count = f"{len(values):,} x, " if unit else ""
    return f"{count}median {shown[0]}, {shown[1]} to {shown[2]}"
