#!/usr/bin/env python3
"""Compile L, G and HLG for a tokenizer and a lexicon, and check them with perfect input.

Writes L.pt, L_disambig.pt, G_3_gram.fst.txt, HLG.pt and G_4_gram.pt into the lang folder.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.command_line import OneLineParser
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.lattice.compile import compile_graphs
from icefall_ctx.lattice.lexicon import load_lexicon
from icefall_ctx.text.tokenizer import Tokenizer


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--lang-dir", type=Path, required=True, metavar="DIR",
                        help="folder with the tokenizer, words.txt and lexicon.txt")
    parser.add_argument("--arpa", type=Path, required=True, metavar="FILE",
                        help="n-gram model inside HLG, usually 3-gram")
    parser.add_argument("--rescoring-arpa", type=Path, metavar="FILE",
                        help="larger n-gram model for rescoring, usually 4-gram")
    parser.add_argument("--topology", choices=["auto", "full", "modified"], default="auto",
                        help="CTC topology: full demands a blank between equal tokens, modified "
                        "is far smaller; auto is full up to 100 tokens (default: auto)")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    lexicon = load_lexicon(args.lang_dir, Tokenizer.load(args.lang_dir))
    compile_graphs(args.lang_dir, lexicon, args.arpa, args.rescoring_arpa, args.topology)
    logging.info("%s: HLG decodes perfect input to the expected words", args.lang_dir)


if __name__ == "__main__":
    run_stage(main)
