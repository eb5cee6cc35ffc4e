#!/usr/bin/env python3
"""words.txt and lexicon.txt for a tokenizer: the words of LM text, or of a list of words."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.errors import ProblemLog
from icefall_ctx.lattice.lexicon import build_lexicon
from icefall_ctx.text.lm_text import read_lm_text, word_list
from icefall_ctx.text.tokenizer import Tokenizer


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("text", nargs="+", type=Path, metavar="FILE",
                        help="text whose words are wanted, or a list with one word a line")
    parser.add_argument("--lang-dir", type=Path, required=True, metavar="DIR",
                        help="folder of the tokenizer; the files are written there")
    parser.add_argument("--min-count", type=number(int, 1), default=1,
                        help="leave out words that occur less often (default: 1)")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    tokenizer = Tokenizer.load(args.lang_dir)
    conversations = [conv for path in args.text for conv in read_lm_text(path)]
    problems = ProblemLog()
    words = word_list(conversations, tokenizer, args.min_count)
    lexicon = build_lexicon(words, tokenizer, problems)
    lexicon.save(args.lang_dir, tokenizer)
    logging.info(
        "%s: %d words, %d groups of homophones; %s",
        args.lang_dir, len(lexicon.words), len(lexicon.homophones()),
        problems.summary() or "no problems",
    )


if __name__ == "__main__":
    run_stage(main)
