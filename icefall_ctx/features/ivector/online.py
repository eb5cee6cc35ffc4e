"""Speaker evidence carried from turn to turn.

The rule, the same in a live session and in ``extract --mode online``: the vector of a turn comes
from this turn and the earlier turns of the same speaker in the same conversation.  After each turn
the carried evidence is scaled down to at most ``max_frames`` frames, so that new speech always
counts and old speech fades.
"""

from __future__ import annotations

from typing import Dict

from torch import Tensor

from icefall_ctx.features.ivector.extractor import Evidence, IvectorExtractor

MAX_FRAMES = 1000.0  # ten seconds of speech


class OnlineIvector:
    """The speakers of one conversation; memory is constant per speaker."""

    def __init__(self, extractor: IvectorExtractor, max_frames: float = MAX_FRAMES) -> None:
        self.extractor, self.max_frames = extractor, max_frames
        self._carried: Dict[str, Evidence] = {}

    def accept(self, speaker: str, frames: Tensor) -> Tensor:
        """The vector ``(dim,)`` of a turn with speech ``frames`` (T, D), T may be 0."""
        return self.accept_evidence(speaker, self.extractor.evidence([frames]))

    def accept_evidence(self, speaker: str, evidence: Evidence) -> Tensor:
        """As :meth:`accept`, for a turn whose evidence (one row) is known."""
        carried = self._carried.get(speaker)
        total = evidence if carried is None else carried + evidence
        self._carried[speaker] = total.limited(self.max_frames)
        return self.extractor.vectors(total)[0]

    def current(self, speaker: str) -> Tensor:
        """The vector ``(dim,)`` from the turns so far; zeros before the first."""
        return self.extractor.vectors(self._carried.get(speaker, self.extractor.empty()))[0]

    def reset(self) -> None:
        """Forget everybody: a new conversation."""
        self._carried.clear()
