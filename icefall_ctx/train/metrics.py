"""Running averages, each over what it is an average of: frames, tokens or utterances."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

import torch
from torch import Tensor


@dataclass
class Metrics:
    """Sums from which averages are made, so that batches of any size can be added.

    Attributes:
      sums: by name, the sum and the weight to divide it by.
      totals: by name, a plain count, such as ``utterances``, ``frames`` or ``seconds``.
      skipped: (reason, utterance id) of what was left out of the loss, and of the sums.
    """

    sums: Dict[str, List[float]] = field(default_factory=dict)
    totals: Dict[str, float] = field(default_factory=dict)
    skipped: List[Tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, total: float, weight: float) -> None:
        """``total`` is a sum over ``weight`` frames (tokens, utterances)."""
        entry = self.sums.setdefault(name, [0.0, 0.0])
        entry[0] += float(total)
        entry[1] += float(weight)

    def count(self, name: str, number: float) -> None:
        self.totals[name] = self.totals.get(name, 0.0) + float(number)

    def __iadd__(self, other: "Metrics") -> "Metrics":
        for name, (total, weight) in other.sums.items():
            self.add(name, total, weight)
        for name, number in other.totals.items():
            self.count(name, number)
        self.skipped += other.skipped
        return self

    def averages(self) -> Dict[str, float]:
        """Sum over weight of each name; names of weight 0 are left out."""
        return {name: total / weight for name, (total, weight) in self.sums.items() if weight}

    def state_dict(self) -> Dict[str, Any]:
        """Sums and totals as plain numbers."""
        return {"sums": self.sums, "totals": self.totals}

    @classmethod
    def from_state_dict(cls, state: Dict[str, Any]) -> "Metrics":
        return cls(
            {name: list(entry) for name, entry in state["sums"].items()}, dict(state["totals"])
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {value:.4g}" for name, value in self.averages().items())


def gather(metrics: Metrics, world_size: int) -> Metrics:
    """The metrics of all processes together (without the list of what was skipped)."""
    if world_size == 1:
        return metrics
    everything: List[Any] = [None] * world_size
    torch.distributed.all_gather_object(everything, metrics.state_dict())
    result = Metrics()
    for state in everything:
        result += Metrics.from_state_dict(state)
    return result


def correct_tokens(log_probs: Tensor, targets: Tensor, mask: Tensor) -> int:
    """How often the best of (N, U, V) is the target (N, U), where ``mask`` is True."""
    return int(((log_probs.argmax(dim=-1) == targets) & mask).sum())
