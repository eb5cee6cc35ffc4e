#!/usr/bin/env python3
"""Train a tokenizer on transcripts: supervision manifests or text files, one utterance a line."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Iterator, Optional, Sequence

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.data.manifests import iter_items, iter_supervisions, open_manifest
from icefall_ctx.errors import InputError
from icefall_ctx.text.normalize import NORMALIZERS
from icefall_ctx.text.tokenizer import Tokenizer, train_bpe, train_char


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__)
    parser.add_argument(
        "inputs", nargs="+", type=Path, metavar="FILE",
        help="supervisions (.jsonl, .jsonl.gz) or text, one utterance a line (any other name)",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR",
                        help="folder to write, such as data/lang_bpe_500 or data/lang_char")
    parser.add_argument("--type", choices=["bpe", "char"], default="bpe", help="default: bpe")
    parser.add_argument("--vocab-size", type=number(int, 4), default=500,
                        help="BPE pieces with the 3 special ones (default: 500)")
    parser.add_argument("--min-count", type=number(int, 1), default=1,
                        help="rarer characters become <unk>, for --type char (default: 1)")
    parser.add_argument("--normalizer", choices=list(NORMALIZERS), default="none",
                        help="rules that the tokenizer applies to every text (default: none)")
    return parser.parse_args(argv)


def read_texts(path: Path) -> Iterator[str]:
    """Transcripts of a manifest, or the lines of a text file."""
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        manifest = open_manifest(path, "supervisions", "cuts")
        for supervision in iter_supervisions(iter_items(manifest, path)):
            yield supervision.text or ""
        return
    try:
        yield from path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a text file in UTF-8 ({error})") from error


def train(args: argparse.Namespace) -> Tokenizer:
    texts = [text for path in args.inputs for text in read_texts(path)]
    if args.type == "bpe":
        tokenizer = train_bpe(texts, args.vocab_size, args.normalizer)
    else:
        tokenizer = train_char(texts, args.normalizer, args.min_count)
    tokens = sum(len(tokenizer.encode(text)) for text in texts)
    words = sum(len(tokenizer.canonical(text).split()) for text in texts)
    logging.info(
        "%s: %d %s pieces from %d utterances, %.2f tokens a word, fingerprint %s",
        args.output, tokenizer.vocab_size, tokenizer.kind, len(texts), tokens / max(words, 1),
        tokenizer.fingerprint,
    )
    return tokenizer


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    train(args).save(args.output)


if __name__ == "__main__":
    run_stage(main)
