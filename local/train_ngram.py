#!/usr/bin/env python3
"""A Kneser-Ney n-gram model from LM text, as an ARPA file, and its perplexity."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from tqdm import tqdm

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.lattice.lexicon import BACKOFF, EPSILON, SENTENCE_END, SENTENCE_START, load_lexicon
from icefall_ctx.text.lm_text import read_lm_text
from icefall_ctx.text.ngram import estimate, write_arpa
from icefall_ctx.text.tokenizer import Tokenizer


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("text", nargs="+", type=Path, metavar="FILE", help="LM text")
    parser.add_argument("--lang-dir", type=Path, required=True, metavar="DIR",
                        help="folder with the tokenizer and its lexicon.txt")
    parser.add_argument("--order", type=number(int, 1, 9), default=3,
                        help="n-gram order (default: 3)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE",
                        help="ARPA file to write, such as data/lm/G_3_gram.arpa")
    parser.add_argument("--dev", type=Path, metavar="FILE", help="text for the perplexity")
    return parser.parse_args(argv)


def sentences(paths: Sequence[Path], tokenizer: Tokenizer) -> Iterator[List[str]]:
    """The words of every sentence as the tokenizer sees them."""
    texts = [s for path in paths for conversation in read_lm_text(path) for s in conversation]
    for text in tqdm(texts, desc="sentences", unit="", disable=None):
        yield tokenizer.canonical(text).split()


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    tokenizer = Tokenizer.load(args.lang_dir)
    lexicon = load_lexicon(args.lang_dir, tokenizer)
    vocabulary = set(lexicon.words) - {EPSILON, BACKOFF, SENTENCE_START, SENTENCE_END}
    model = estimate(sentences(args.text, tokenizer), args.order, vocabulary)
    write_arpa(model, args.output)
    sizes = ", ".join(f"{len(table)} {n}-grams" for n, table in enumerate(model.log_probs, 1))
    logging.info("%s: %s", args.output, sizes)
    if args.dev is not None:
        perplexity = model.perplexity(sentences([args.dev], tokenizer))
        logging.info("%s: perplexity %.1f per word", args.dev, perplexity)


if __name__ == "__main__":
    run_stage(main)
