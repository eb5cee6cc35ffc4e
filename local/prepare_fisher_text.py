#!/usr/bin/env python3
"""Write the Fisher transcripts as language model text: a turn a line, a blank line after a call."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.command_line import OneLineParser
from icefall_ctx.corpora.fisher import write_fisher_text
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.errors import ProblemLog


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", help="LDC2004T19 and LDC2005T19")
    parser.add_argument("--output", type=Path, default=Path("data/lm/fisher.txt"),
                        help="the text file (default: %(default)s)")  # fmt: skip
    parser.add_argument("--strict", action="store_true", help="stop at the first problem")
    args = parser.parse_args(argv)
    problems = ProblemLog(strict=args.strict)
    turns = write_fisher_text(args.folders, args.output, problems)
    print(f"{args.output}: {turns} turns")
    if problems:
        print(problems.summary())


if __name__ == "__main__":
    run_stage(main)
