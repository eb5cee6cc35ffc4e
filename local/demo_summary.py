#!/usr/bin/env python3
"""The table at the end of the demo: error rates side by side, times, a turn where context helped.

Reads what the recipe's decode.py wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from icefall_ctx.command_line import OneLineParser
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.errors import InputError
from icefall_ctx.score.examples import helped_turn
from icefall_ctx.score.results import read_transcripts


def newest(exp_dir: Path, pattern: str) -> Path:
    """The result file of the last decoding."""
    found = sorted(exp_dir.glob(f"beam/{pattern}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise InputError(f"no {pattern} in {exp_dir}/beam; run decode.py first")
    return found[-1]


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
    parser = OneLineParser(description=__doc__)
    parser.add_argument("exp_dirs", type=Path, nargs="+", help="baseline first")
    parser.add_argument("--times", type=Path, required=True, help="lines of title, tab, seconds")
    parser.add_argument("--linked", type=Path, help="linked supervisions of the test set")
    args = parser.parse_args(argv)

    print("\nWord error rate on calls of unheard voices, names never seen in training (%)")
    print(f"{'model':<16} {'all':>6}  {'95 % interval':<16} {'caller':>6} {'reply':>6}")
    for exp_dir in args.exp_dirs:
        report = json.loads(newest(exp_dir, "report-test-*.json").read_text())
        total, interval, caller, reply = rates(report)
        print(f"{exp_dir.name:<16} {total}  {interval:<16} {caller} {reply}")
    print("\nTime")
    for line in args.times.read_text().splitlines():
        title, seconds = line.split("\t")
        print(f"{title:<34} {int(seconds) // 60:3d} min {int(seconds) % 60:02d} s")
    if args.linked and len(args.exp_dirs) == 2:
        before, after = (read_transcripts(newest(e, "recogs-test-*.txt")) for e in args.exp_dirs)
        print("\n" + helped_turn(before, after, args.linked))
    print("\nTraining curves: " + ", ".join(str(e.resolve() / "curves.png") for e in args.exp_dirs))


if __name__ == "__main__":
    run_stage(main)
