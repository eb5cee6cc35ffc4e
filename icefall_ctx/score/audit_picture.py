"""An audit as a picture: bars with intervals, by side and by position in the conversation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Dict, List

from icefall_ctx.files import write_picture
from icefall_ctx.score.audit import Audit, Cell

COLOURS = {
    "baseline": "#9e9e9e",
    "none": "#4c78a8",
    "hyp": "#f58518",
    "ref": "#54a24b",
    "shuffled": "#b279a2",
}


def plot_audit(result: Audit, path: Path, rate: str = "WER") -> None:
    """Write a PNG file: one group of bars a slice, one bar a history, lines for the intervals."""
    from matplotlib.figure import Figure

    panels = [("all", "side"), ("turn",)]
    figure = Figure(figsize=(12, 4.5))
    for number, kinds in enumerate(panels, start=1):
        chosen = {key: row for key, row in result.cells.items() if key[0] in kinds}
        if chosen:
            axes = figure.add_subplot(1, len(panels), number)
            _bars(axes, [name for _, name in chosen], list(chosen.values()))
            axes.set_title("position in the conversation" if "turn" in kinds else result.name)
            axes.set_ylabel(f"{rate} (%)")
            axes.legend(fontsize=8)
    figure.tight_layout()
    write_picture(path, figure)


def _bars(axes, names: List[str], rows: List[Dict[str, Cell]]) -> None:
    histories = list(rows[0])
    width = 0.8 / len(histories)
    for number, history in enumerate(histories):
        cells = [row[history] for row in rows]
        places = [i - 0.4 + width * (number + 0.5) for i in range(len(rows))]
        rates = [_drawable(cell.counts.rate) for cell in cells]
        reach = [
            [max(0.0, r - _drawable(c.interval.low)) for r, c in zip(rates, cells)],
            [max(0.0, _drawable(c.interval.high) - r) for r, c in zip(rates, cells)],
        ]
        axes.bar(places, rates, width, yerr=reach, capsize=2, label=history, color=COLOURS[history])
    axes.set_xticks(range(len(names)))
    axes.set_xticklabels(names)
    axes.grid(axis="y", alpha=0.3)


def _drawable(rate: float) -> float:
    """In percent; 0 where there is no rate."""
    return 100 * rate if math.isfinite(rate) else 0.0
