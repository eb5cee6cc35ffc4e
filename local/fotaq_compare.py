#!/usr/bin/env python3
"""Say how many clips of fotaq agree with a listing in text, speaker and conversation."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.fotaq_compare import compare, read_expected
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.corpora.queen import QueenFile, add_source_options, locate_queen


def get_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add_source_options(parser)
    parser.add_argument("--expected", type=Path, required=True, metavar="JSONL",
                        help="listing with id, conversation, kind, speaker and text")  # fmt: skip
    parser.add_argument("--show", type=number(int, 0), default=20, help="differences to print")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_parser().parse_args(argv)
    expected = read_expected(args.expected)
    counts, details = compare(QueenFile(locate_queen(args)), expected)
    for line in details[: args.show]:
        print(line)
    print(f"{counts['agree']} of {len(expected)} clips agree")
    for reason, count in counts.most_common():
        print(f"{count:>8} {reason}")


if __name__ == "__main__":
    run_stage(main)
