"""Error rate over SNR: a line a system, the mean of its seeds, in a band from lowest to highest."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Mapping

from icefall_ctx.files import write_picture
from icefall_ctx.score.compare import Cell, Comparison
from icefall_ctx.score.units import RATE_NAMES


def plot_curve(result: Comparison, centres: Mapping[str, float], path: Path) -> None:
    """Write a picture; its format is that of the suffix.

    Args:
      centres: where each group lies, dB.

    Raises:
      InputError: a suffix that is of no picture.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), dpi=150)
    axes = figure.add_subplot()
    for name, row in result.rows.items():
        _line(axes, name, row, centres)
    axes.set(xlabel="SNR (dB)", ylabel=f"{RATE_NAMES[result.unit]} (%)", title=result.name)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    write_picture(path, figure)


def _line(axes, name: str, row: Mapping[str, Cell], centres: Mapping[str, float]) -> None:
    drawn = [(centres[g], cell) for g, cell in row.items() if g in centres]
    drawn = [(place, cell) for place, cell in drawn if all(map(math.isfinite, cell.rates))]
    places = [place for place, _ in drawn]
    (line,) = axes.plot(places, [100 * c.mean for _, c in drawn], marker="o", ms=4, label=name)
    lows = [100 * min(cell.rates) for _, cell in drawn]
    highs = [100 * max(cell.rates) for _, cell in drawn]
    axes.fill_between(places, lows, highs, color=line.get_color(), alpha=0.2, linewidth=0)
