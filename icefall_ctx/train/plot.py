"""The training curves as a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

from icefall_ctx.files import write_picture

PANELS = (
    ("loss", "loss a frame"),
    ("ctc", "CTC loss a frame"),
    ("att", "cross entropy a token"),
    ("acc", "accuracy of the next token"),
)


def read_metrics(path: Path) -> List[Dict[str, Any]]:
    """The records of ``metrics.jsonl``; a last line cut off by a kill is left out."""
    if not Path(path).exists():
        return []
    records = []
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def plot_curves(records: List[Dict[str, Any]], path: Path) -> None:
    """Training and validation, epoch by epoch, to a PNG file.

    Args:
      records: ``{"epoch": 1, "train": {"loss": ...}, "valid": {...}}``, one an epoch.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6))
    for number, (name, title) in enumerate(PANELS, start=1):
        axes = figure.add_subplot(2, 2, number)
        for part, style in (("train", "o-"), ("valid", "s--")):
            points = [(r["epoch"], r[part][name]) for r in records if name in r.get(part, {})]
            axes.plot(*zip(*points), style, markersize=3, label=part) if points else None
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("epoch", fontsize=8)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8) if axes.lines else None
    figure.tight_layout()
    write_picture(path, figure)
