#!/usr/bin/env python3
"""Language model text from transcripts, conversation by conversation, and from extra text files.

One sentence a line, a blank line after each conversation.  Sentences of the test sets inside the
text are counted, and left out with --drop-test-sentences.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import List, Optional, Sequence

from tqdm import tqdm

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.data.manifests import iter_items, iter_supervisions, open_manifest
from icefall_ctx.errors import InputError
from icefall_ctx.text.lm_text import (
    Conversation,
    conversations_from_supervisions,
    drop_sentences,
    find_contamination,
    read_lm_text,
    write_lm_text,
)
from icefall_ctx.text.normalize import NORMALIZERS, get_normalizer


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("inputs", nargs="+", type=Path, metavar="FILE",
                        help="linked supervisions or cuts (.jsonl, .jsonl.gz), or text (others)")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE",
                        help="text to write, such as data/lm/train.txt")
    parser.add_argument("--normalizer", choices=list(NORMALIZERS), default="none",
                        help="rules applied to every sentence (default: none)")
    parser.add_argument("--test", nargs="*", type=Path, default=[], metavar="FILE",
                        help="dev and test sets whose sentences must not be in the text")
    parser.add_argument("--min-words", type=number(int, 1), default=4,
                        help="shorter test sentences are in any text: not counted (default: 4)")
    parser.add_argument("--drop-test-sentences", action="store_true",
                        help="leave the sentences found out (default: warn only)")
    return parser.parse_args(argv)


def read(path: Path, normalizer: str) -> List[Conversation]:
    """Conversations of a manifest or of a text file, normalised."""
    normalize = get_normalizer(normalizer)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        items = iter_items(open_manifest(path, "supervisions", "cuts"), path)
        supervisions = tqdm(
            iter_supervisions(items), desc=path.name, unit=" turns", disable=None
        )
        return conversations_from_supervisions(supervisions, normalize)
    texts = [[normalize(s).strip() for s in conv] for conv in read_lm_text(path)]
    return [[s for s in conversation if s] for conversation in texts]


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    text = [conv for path in args.inputs for conv in read(path, args.normalizer)]
    for path in args.test:
        sentences = [s for conversation in read(path, args.normalizer) for s in conversation]
        found = find_contamination(text, sentences, min_words=args.min_words, name=path.name)
        if args.drop_test_sentences:
            text = drop_sentences(text, found.found)
    text = [conversation for conversation in text if conversation]
    if not text:
        raise InputError(f"{args.inputs[0]}: no sentence for {args.output}; name transcripts")
    write_lm_text(args.output, text)
    sentences = sum(map(len, text))
    words = sum(len(s.split()) for conversation in text for s in conversation)
    logging.info(
        "%s: %d conversations, %d sentences, %d words", args.output, len(text), sentences, words
    )


if __name__ == "__main__":
    run_stage(main)
