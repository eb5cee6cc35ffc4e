#!/usr/bin/env python3
"""Read the corpora of the new-words mix that are given, and choose the test set of new words."""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.corpora.newwords import NUM_NEW_WORDS, prepare_newwords
from icefall_ctx.corpora.newwords_sources import SOURCES
from icefall_ctx.corpora.stage import add_reading_options, read_corpus


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = OneLineParser(description=__doc__)
    for name in SOURCES:
        parser.add_argument("--" + name.replace("_", "-"), type=Path, help=f"folder of {name}")
    parser.add_argument("--num-words", type=number(int, 0), default=NUM_NEW_WORDS,
                        help="utterances of the test set (default: %(default)s)")  # fmt: skip
    add_reading_options(parser)
    args = parser.parse_args(argv)
    folders = {name: getattr(args, name) for name in SOURCES if getattr(args, name)}
    read_corpus(args, prepare_newwords, folders, num_words=args.num_words)


if __name__ == "__main__":
    run_stage(main)
