"""Where the words are in a sequence of token ids."""

from __future__ import annotations

import re
from typing import List, Sequence, Tuple

from icefall_ctx.text.normalize import HAN
from icefall_ctx.text.tokenizer import WORD_BOUNDARY

Span = Tuple[int, int]  # first token, last token plus one
_HAN_PIECE = re.compile(f"[{HAN}]")


class WordSplitter:
    """Finds the words in token ids: a piece that begins with the boundary begins a word, and so
    does every Han character.  A boundary that is a piece of its own belongs to no word."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.starts = [p.startswith(WORD_BOUNDARY) or bool(_HAN_PIECE.fullmatch(p)) for p in pieces]
        joined = any(p.startswith(WORD_BOUNDARY) and len(p) > 1 for p in pieces)
        separate = WORD_BOUNDARY in pieces and not joined
        self.separator = pieces.index(WORD_BOUNDARY) if separate else -1

    def __call__(self, tokens: Sequence[int]) -> List[Span]:
        spans: List[Span] = []
        start = 0
        for i, token in enumerate(tokens):
            if self.starts[token] and i > start:
                spans.append((start, i))
                start = i
            if token == self.separator:
                start = i + 1
        return spans + [(start, len(tokens))] * (start < len(tokens))
