"""Which utterances of a test set belong together: by side, speaker, position, or SNR."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from icefall_ctx.errors import InputError
from icefall_ctx.score.wer import TURN_BUCKETS, Utterance, group_name, turn_bucket

ALL = "all"
KINDS = ("side", "speaker", "turn", "snr")


@dataclass(frozen=True)
class Groups:
    """Attributes:
    kind: one of :data:`KINDS`.
    members: :data:`ALL` and its utterances first, then every group that has any.
    left_out: why utterances are in no group but the first; empty where none is.
    """

    kind: str
    members: Dict[str, List[Utterance]]
    left_out: str = ""


@dataclass(frozen=True)
class SnrBins:
    """Bins between neighbouring ``edges``, dB, each with its lower edge, the last with both."""

    edges: Tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(a < b for a, b in zip(self.edges, self.edges[1:]))
        if len(self.edges) < 2 or not rising or not all(map(math.isfinite, self.edges)):
            shown = ",".join(f"{edge:g}" for edge in self.edges)
            raise InputError(
                f"bins {shown or '(none)'}: give two or more rising numbers of dB, -10,-5,0"
            )

    @property
    def names(self) -> List[str]:
        return [f"{low:g} to {high:g} dB" for low, high in zip(self.edges, self.edges[1:])]

    @property
    def centres(self) -> Dict[str, float]:
        """dB, by name."""
        middles = [(low + high) / 2 for low, high in zip(self.edges, self.edges[1:])]
        return dict(zip(self.names, middles))

    def name(self, snr: Optional[float]) -> str:
        """Of the bin that ``snr`` is in; empty if it is in none or unknown."""
        if snr is None or not self.edges[0] <= snr <= self.edges[-1]:
            return ""
        return self.names[min(bisect_right(self.edges, snr), len(self.names)) - 1]


def group(
    utterances: Sequence[Utterance], kind: str, bins: Optional[SnrBins] = None
) -> Groups:
    """All utterances, and the groups of ``kind``.

    Args:
      bins: for ``snr``.

    Raises:
      InputError: no SNR is in any of the bins.  A test set without sides, speakers or turns has
        the group of all utterances only, and ``left_out`` says so.
    """
    if kind == "snr":
        if bins is None:
            raise InputError(f"grouping by SNR needs bins; here it is {snr_range(utterances)}")
        return _collect(utterances, kind, lambda u: bins.name(u.snr), bins.names)
    order = [turn_bucket(first) for first, _ in TURN_BUCKETS] if kind == "turn" else None
    return _collect(utterances, kind, lambda u: group_name(u, kind), order)


def _collect(
    utterances: Sequence[Utterance],
    kind: str,
    name_of: Callable[[Utterance], str],
    order: Optional[Sequence[str]],
) -> Groups:
    found: Dict[str, List[Utterance]] = {}
    for utterance in utterances:
        found.setdefault(name_of(utterance), []).append(utterance)
    outside = found.pop("", [])
    if not found and kind == "snr":
        raise InputError(f"no utterance is in any group of snr; it is {snr_range(utterances)}")
    if ALL in found:
        raise InputError(f"a {kind} is named '{ALL}', which stands for all utterances; rename it")
    names = sorted(found) if order is None else [name for name in order if name in found]
    members = {ALL: list(utterances), **{name: found[name] for name in names}}
    return Groups(kind, members, _left_out(outside, kind))


def _left_out(outside: Sequence[Utterance], kind: str) -> str:
    if not outside:
        return ""
    reason = f"SNR {snr_range(outside)}" if kind == "snr" else f"{kind} unknown"
    return f"{len(outside)} utterances, {reason}"


def snr_range(utterances: Sequence[Utterance]) -> str:
    """``-10.0 to 24.9 dB``, or ``unknown``."""
    known = [u.snr for u in utterances if u.snr is not None]
    return f"{min(known):.1f} to {max(known):.1f} dB" if known else "unknown"


def of_side(utterances: Sequence[Utterance], side: str) -> List[Utterance]:
    """Raises:
    InputError: nobody is on that side.
    """
    chosen = [utterance for utterance in utterances if utterance.side == side]
    if not chosen:
        known = ", ".join(sorted({u.side for u in utterances} - {""})) or "none"
        raise InputError(f"no utterance is of the side '{side}'; sides are: {known}")
    return chosen
