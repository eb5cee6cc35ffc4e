#!/usr/bin/env python3
"""Take the dialogue of Flight of the Amazon Queen out of its Debian package."""

from __future__ import annotations

import argparse
from typing import Optional, Sequence

from icefall_ctx.command_line import number
from icefall_ctx.corpora.fotaq import prepare_fotaq
from icefall_ctx.corpora.manifests import describe, run_stage, stage_parser
from icefall_ctx.corpora.queen import add_source_options, locate_queen
from icefall_ctx.errors import ProblemLog


def get_parser() -> argparse.ArgumentParser:
    parser = stage_parser(__doc__, "fotaq")
    add_source_options(parser)
    parser.add_argument("--new-words", type=number(int, 0), default=100,
                        help="names taken out of train_nonew and tested in newwords")  # fmt: skip
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_parser().parse_args(argv)
    problems = ProblemLog()
    parts = prepare_fotaq(
        locate_queen(args),
        args.manifest_dir,
        audio_dir=args.audio_dir,
        seed=args.seed,
        new_words=args.new_words,
        jobs=args.jobs,
        problems=problems,
    )
    print(describe(parts))
    if problems:
        print(problems.summary())


if __name__ == "__main__":
    run_stage(main)
