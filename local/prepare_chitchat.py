#!/usr/bin/env python3
"""Write the Chit-Chat Dataset as language model text: a turn a line, a blank line after each
conversation, in train.txt, dev.txt and test.txt.

The dataset is a package on PyPI: pip download --no-deps chitchat-dataset
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.chitchat import read_chitchat, split_by_id
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.errors import ProblemLog
from icefall_ctx.text.lm_text import write_lm_text
from icefall_ctx.text.normalize import NORMALIZERS, get_normalizer


def main(argv: Optional[Sequence[str]] = None) -> None:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", type=Path, help="chitchat_dataset-*.whl or its dataset.json")
    parser.add_argument("--output-dir", type=Path, default=Path("data/lm/chitchat"),
                        help="folder of the three files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--normalizer", choices=list(NORMALIZERS), default="english",
                        help="rules applied to every turn (default: %(default)s)")  # fmt: skip
    parser.add_argument("--held-out", type=number(int, 0), default=200, metavar="N",
                        help="conversations in dev and in test (default: %(default)s)")  # fmt: skip
    args = parser.parse_args(argv)
    problems = ProblemLog()
    conversations = read_chitchat(args.dataset, get_normalizer(args.normalizer), problems)
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for part, texts in split_by_id(conversations, args.held_out).items():
        path = args.output_dir / f"{part}.txt"
        write_lm_text(path, texts)
        words = sum(len(turn.split()) for text in texts for turn in text)
        print(f"{path}: {len(texts)} conversations, {sum(map(len, texts))} turns, {words} words")
    if problems:
        print(problems.summary())


if __name__ == "__main__":
    run_stage(main)
