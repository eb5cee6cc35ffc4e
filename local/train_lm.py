#!/usr/bin/env python3
"""Train an LSTM language model on LM text, with its state carried across turns or per sentence.

Prints the dev perplexity both ways.  A stopped run goes on from exp-dir/last.pt.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import List, Optional, Sequence

import torch

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.files import only_one
from icefall_ctx.models.lm import LstmLm, LstmLmConfig, load_lm
from icefall_ctx.text.lm_text import Conversation, read_lm_text
from icefall_ctx.text.tokenizer import Tokenizer
from icefall_ctx.train.lm import LmTrainer, LmTrainOptions, count_words, evaluate, make_streams

SIZES = {"paper": (4, 1024), "small": (2, 512), "tiny": (1, 256)}
# A chunk of a conversation holds some four sentences: as many updates an epoch either way.
BATCH_SIZE = {True: 8, False: 32}


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    defaults = LmTrainOptions()
    parser = OneLineParser(description=__doc__)
    parser.add_argument("text", nargs="+", type=Path, metavar="FILE", help="LM text to train on")
    parser.add_argument("--dev", type=Path, required=True, metavar="FILE", help="text to choose by")
    parser.add_argument("--lang-dir", type=Path, required=True, metavar="DIR", help="tokenizer")
    parser.add_argument("--exp-dir", type=Path, required=True, metavar="DIR",
                        help="writes best.pt and last.pt here")
    parser.add_argument("--size", choices=list(SIZES), default="paper",
                        help="layers x dimension: paper 4x1024, small 2x512, tiny 1x256")
    parser.add_argument("--dropout", type=number(float, 0, 0.99), default=0.2, help="default: 0.2")
    parser.add_argument("--tie-weights", action="store_true",
                        help="one matrix for input and output (default: two)")
    parser.add_argument("--carry-state", action=argparse.BooleanOptionalAction, default=True,
                        help="carry the state from turn to turn of a conversation")
    parser.add_argument("--epochs", type=number(int, 1), default=defaults.epochs,
                        help="default: 10")
    parser.add_argument("--batch-size", type=number(int, 1),
                        help="conversations side by side (default: 8), or sentences (default: 32)")
    parser.add_argument("--chunk", type=number(int, 1), default=defaults.chunk,
                        help="tokens through which gradients flow (default: 60)")
    parser.add_argument("--lr", type=number(float, 0), default=defaults.lr,
                        help="of Adam (default: 0.001)")
    parser.add_argument("--seed", type=number(int, 0), default=0, help="default: 0")
    return parser.parse_args(argv)


def report(path: Path, dev: List[Conversation], tokenizer: Tokenizer) -> None:
    """Perplexity of the best model with the state carried and without."""
    lm = load_lm(path, tokenizer.fingerprint)
    for carried in (True, False):
        streams = make_streams(dev, tokenizer, carried)
        result = evaluate(lm, streams, count_words(dev))
        logging.info(
            "%s, state %s: dev perplexity %.2f per token, %.1f per word", path,
            "carried" if carried else "per sentence", result.per_token, result.per_word,
        )


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    tokenizer = Tokenizer.load(args.lang_dir)
    layers, dim = SIZES[args.size]
    config = LstmLmConfig(tokenizer.vocab_size, dim, layers, args.dropout, args.tie_weights)
    options = LmTrainOptions(
        carry_state=args.carry_state, chunk=args.chunk,
        batch_size=args.batch_size or BATCH_SIZE[args.carry_state],
        epochs=args.epochs, lr=args.lr, seed=args.seed,
    )
    text = [conversation for path in args.text for conversation in read_lm_text(path)]
    dev = read_lm_text(args.dev)
    torch.manual_seed(args.seed)
    lm = LstmLm(config).to("cuda" if torch.cuda.is_available() else "cpu")
    trainer = LmTrainer(lm, options, args.exp_dir, tokenizer.fingerprint)
    with only_one(args.exp_dir):
        trainer.fit(
            make_streams(text, tokenizer, args.carry_state),
            make_streams(dev, tokenizer, args.carry_state),
            count_words(dev),
        )
    report(trainer.best, dev, tokenizer)


if __name__ == "__main__":
    run_stage(main)
