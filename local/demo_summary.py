#!/usr/bin/env python3
"""The table at the end of the demo: error rates side by side, times, a turn where context helped.

Reads what the recipe's decode.py wrote:

    demo_summary.py baseline=exp/demo/beam context=exp/demo_context/beam --times FILE
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

from icefall_ctx.command_line import OneLineParser
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.errors import InputError
from icefall_ctx.score.examples import helped_turn
from icefall_ctx.score.results import read_transcripts


def newest(folder: Path, pattern: str) -> Path:
    """The result file of the last decoding."""
    found = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise InputError(f"no {pattern} in {folder}; run decode.py first")
    return found[-1]


def row(text: str) -> Tuple[str, Path]:
    """``TITLE=FOLDER`` -> both."""
    title, equals, folder = text.partition("=")
    if not (title and equals and folder):
        raise argparse.ArgumentTypeError(f"'{text}' is not TITLE=FOLDER")
    return title, Path(folder)


def rates(report: Dict) -> List[str]:
    """Total, then each side, in percent with the interval of the total."""
    raw = report["raw"]
    total = f"{100 * raw['total']['rate']:6.2f}"
    low, high = (100 * bound for bound in raw["interval"]["bounds"])
    sides = raw["groups"].get("side", {})
    if not {"caller", "reply"} <= set(sides):
        raise InputError("not of mini_dialog: there are no sides caller and reply to compare")
    caller, reply = (f"{100 * sides[name]['rate']:6.2f}" for name in ("caller", "reply"))
    return [total, f"[{low:.2f}, {high:.2f}]", caller, reply]


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=row, nargs="+", metavar="TITLE=FOLDER",
                        help="folders of results; the example compares the first two")  # fmt: skip
    parser.add_argument("--times", type=Path, required=True, help="lines of title, tab, seconds")
    parser.add_argument("--linked", type=Path, help="linked supervisions of the test set")
    parser.add_argument("--curves", type=Path, nargs="*", default=[], help="pictures to point at")
    args = parser.parse_args(argv)

    print("\nWord error rate on calls of unheard voices, names never seen in training (%)")
    width = max(len(title) for title, _ in args.rows)
    print(f"{'model':<{width}} {'all':>6}  {'95 % interval':<16} {'caller':>6} {'reply':>6}")
    for title, folder in args.rows:
        report = json.loads(newest(folder, "report-test-*.json").read_text())
        total, interval, caller, reply = rates(report)
        print(f"{title:<{width}} {total}  {interval:<16} {caller} {reply}")
    print("\nTime")
    for line in args.times.read_text().splitlines():
        title, seconds = line.split("\t")
        print(f"{title:<34} {int(seconds) // 60:3d} min {int(seconds) % 60:02d} s")
    if args.linked and len(args.rows) > 1:
        before, after = (
            read_transcripts(newest(folder, "recogs-test-*.txt")) for _, folder in args.rows[:2]
        )
        print("\n" + helped_turn(before, after, args.linked))
    if args.curves:
        print("\nTraining curves: " + ", ".join(str(path.resolve()) for path in args.curves))


if __name__ == "__main__":
    run_stage(main)
