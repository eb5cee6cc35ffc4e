"""Transcripts with alternatives as word networks: ``i { wasn't / was not } sure (uh)``.

Notation of NIST's references: ``{ a / b c / @ }`` allows any of its alternatives, ``@`` is no word,
``(a)`` may be left out, ``a;x`` is the word ``a`` with an attribute, ``\\;`` a plain semicolon.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import List, NamedTuple, Sequence, Tuple

from icefall_ctx.errors import InputError

NULL = ""  # the word of an arc that passes without a word
NO_WORD = "@"
_ATTRIBUTES = re.compile(r"(?<!\\);.*")


class Arc(NamedTuple):
    source: int
    word: str  # NULL: no word


@dataclass
class Network:
    """An acyclic word graph; node 0 is the start, the last node the end.

    Nodes are numbered so that every arc leads to a larger number.
    """

    arcs_into: List[List[Arc]] = field(default_factory=lambda: [[]])

    def add_node(self) -> int:
        self.arcs_into.append([])
        return len(self.arcs_into) - 1

    @property
    def is_linear(self) -> bool:
        """One path only, without null arcs."""
        return all(
            len(arcs) == 1 and arcs[0].source == node and arcs[0].word != NULL
            for node, arcs in enumerate(self.arcs_into[1:])
        )

    def first_path(self) -> List[str]:
        """The words when every alternation takes its first alternative."""
        words: List[str] = []
        node = len(self.arcs_into) - 1
        while node:
            arc = self.arcs_into[node][0]
            if arc.word != NULL:
                words.append(arc.word)
            node = arc.source
        return words[::-1]


def linear(words: Sequence[str]) -> Network:
    return Network([[], *([Arc(i, word)] for i, word in enumerate(words))])


def has_notation(text: str) -> bool:
    """Whether reading ``text`` as a network differs from splitting it at blanks."""
    return any(mark in text for mark in "{}();@")


def parse_network(text: str) -> Network:
    """A network from NIST's notation.

    Raises:
      InputError: a ``{`` without its ``}``.
    """
    parser = _Parser(text)
    parser.sequence(0, inside=False)
    return parser.network


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.position = 0
        self.network = Network()

    def sequence(self, start: int, inside: bool) -> int:
        """Read words and alternations up to the end of this alternative; returns its last node."""
        node = start
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            if inside and token in ("/", "}"):
                return node
            self.position += 1
            if token == "{":
                node = self.alternation(node)
            else:
                word = strip_attributes(token)
                following = self.network.add_node()
                self.network.arcs_into[following].append(
                    Arc(node, NULL if word == NO_WORD else word)
                )
                node = following
        if inside:
            raise InputError(f"a {{ without its }} in {self.text[:60]!r}")
        return node

    def alternation(self, start: int) -> int:
        """Read up to ``}``; all alternatives end in the node that is returned."""
        ends: List[int] = []
        while True:
            end = self.sequence(start, inside=True)
            if end != start:
                ends.append(end)
            self.position += 1
            if self.tokens[self.position - 1] == "}":
                break
        return self._join(start, ends)

    def _join(self, start: int, ends: Sequence[int]) -> int:
        """One node in place of ``ends``; empty alternatives count for nothing beside others."""
        joined = self.network.add_node()
        arcs = self.network.arcs_into
        for end in ends:
            arcs[joined] += arcs[end]
            arcs[end] = []
        if not ends:
            arcs[joined].append(Arc(start, NULL))
        return joined


def _tokens(text: str) -> List[str]:
    """Words and marks; inside braces a slash separates wherever it stands."""
    tokens: List[str] = []
    depth = 0
    for part in re.split(r"([{}]|\s+)", text):
        if part == "{":
            depth += 1
            tokens.append(part)
        elif part == "}":
            depth = max(0, depth - 1)
            tokens.append(part)
        elif part.strip():
            pieces = re.split("(/)", part) if depth else [part]
            tokens += [piece for piece in pieces if piece]
    return tokens


def strip_attributes(token: str) -> str:
    """``i've;tag`` -> ``i've``, ``a\\;s;tag`` -> ``a;s``; a token of attributes only stays."""
    word = _ATTRIBUTES.sub("", token).replace("\\;", ";")
    return word or token


def split_optional(word: str) -> Tuple[str, bool]:
    """``(uh)`` -> ("uh", True)."""
    if len(word) > 2 and word[0] == "(" and word[-1] == ")":
        return word[1:-1], True
    return word, False


def map_words(text: str, change) -> str:
    """``change(run of words) -> words`` applied between the marks; the notation stays.

    An alternative that loses all its words becomes ``@``; an optional word that does vanishes.
    """
    out: List[str] = []
    run: List[str] = []

    def flush() -> None:
        words = change(" ".join(run)) if run else []
        if run and not words and depth:
            words = [NO_WORD]
        out.extend(words)
        run.clear()

    depth = 0
    for token in _tokens(text):
        inner, is_optional = split_optional(token)
        if token in ("{", "}") or (depth and token == "/") or token == NO_WORD:
            flush()
            depth += {"{": 1, "}": -1}.get(token, 0)
            out.append(token)
        elif is_optional:
            flush()
            out.extend(f"({word})" for word in change(inner))
        else:
            run.append(strip_attributes(token))
    flush()
    return " ".join(out)
