"""NIST's global mapping files (GLM), applied as its filter csrfilt does.

A rule ``A => B / [left] __ [right]`` replaces the string ``A`` by ``B`` where the contexts stand
beside it.  Brackets keep blanks; ``[ ]`` as context is a word boundary, and without contexts a rule
also acts inside a word.  At each place the first rule of the file wins, contexts are looked up in
the unchanged text, and what was replaced is not read again.  Text is upper-cased.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.formats.lines import read_lines

_APPLIES = re.compile(r';;\s+INPUT_DEPENDENT_APPLICATION\s*=\s*"([^"]*)"')
_CONTEXT = re.compile(r"^(.*?)\s*/\s*(\[[^\]]*\]|[^\s\[\]]*)\s*__\s*(\[[^\]]*\]|[^\s\[\]]*)\s*$")
_NAME = re.compile(r'^\*\s*name\s*=?\s*"([^"]*)"')


class Rule(NamedTuple):
    source: str
    target: str
    left: str = ""
    right: str = ""


@dataclass(frozen=True)
class Glm:
    name: str
    rules: Sequence[Rule]  # for every text
    hyp_rules: Sequence[Rule]  # for hypotheses: the same and those marked for input type "ctm"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ref", _Rewriter(self.rules))
        object.__setattr__(self, "_hyp", _Rewriter(self.hyp_rules))

    def apply(self, text: str, *, hypothesis: bool = False, split_hyphens: bool = True) -> str:
        """``text`` under the rules, then with the hyphens inside words as blanks (csrfilt -dh)."""
        rewriter = self._hyp if hypothesis else self._ref
        words = rewriter(f" {_free_parentheses(text.upper())} ")
        words = split_inner_hyphens(words) if split_hyphens else words
        return _bind_parentheses(words)

    def apply_to_words(self, words: Sequence[str]) -> List[str]:
        """Each word of a recogniser's output on its own, as csrfilt treats a CTM."""
        return [part for word in words for part in self.apply(word, hypothesis=True).split()]


class _Rewriter:
    """All rules as one regular expression, branched by first character."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.targets = [rule.target for rule in rules]
        by_first: Dict[str, List[str]] = defaultdict(list)
        for index, rule in enumerate(rules):
            first, rest = rule.source[0], re.escape(rule.source[1:])
            before = f"(?<={re.escape(rule.left + first)})" if rule.left else ""
            after = f"(?={re.escape(rule.right)})" if rule.right else ""
            by_first[first].append(f"{before}{rest}{after}(?P<r{index}>)")
        branches = (f"{re.escape(c)}(?:{'|'.join(rules)})" for c, rules in by_first.items())
        self.pattern = re.compile("|".join(branches)) if by_first else None

    def __call__(self, text: str) -> str:
        if self.pattern is None:
            return text
        return self.pattern.sub(lambda match: self.targets[int(match.lastgroup[1:])], text)


def split_inner_hyphens(text: str) -> str:
    """``well-known th-`` -> ``well known th-``: marks of fragments stay."""
    return re.sub(r"(?<=[^\s(/{])-(?=[^\s)/}])", " ", text)


def _free_parentheses(text: str) -> str:
    """``(uh)`` -> `` ( uh ) ``, so that word-bounded rules see the word."""
    return re.sub(r"(?<!\S)\(([^()\s]+)\)", r" ( \1 ) ", text)


def _bind_parentheses(text: str) -> str:
    """Every word between `` ( `` and `` ) `` becomes optional on its own."""

    def bind(match: re.Match) -> str:
        words = match[1].split()
        return " ".join(w if w in ("{", "/", "}", "@") else f"({w})" for w in words)

    return " ".join(re.sub(r"(?<!\S)\( (.*?) \)(?!\S)", bind, text).split())


def read_glm(path: Pathlike, log: Optional[ProblemLog] = None) -> Glm:
    """Read a mapping file.

    Raises:
      InputError: no rule in it.
    """
    log = ProblemLog() if log is None else log
    name, applies = Path(path).stem, ""
    everywhere: List[Rule] = []
    for_hyps: List[Rule] = []
    for number, line in read_lines(path, log, encoding="latin-1"):
        marked = _APPLIES.match(line.strip())
        applies = marked[1] if marked else applies
        line = _without_comment(line)
        if line.startswith("*"):
            name = (_NAME.match(line) or [None, name])[1]
        elif line.strip():
            rule = _parse_rule(line, where(path, number), log)
            if rule is not None:
                for_hyps += [rule] if not applies or re.search(applies, "ctm") else []
                everywhere += [] if applies else [rule]
    if not for_hyps:
        raise InputError(f"{path}: no rule of the form 'A => B' in it; not a GLM file")
    return Glm(name, everywhere, for_hyps)


def _without_comment(line: str) -> str:
    return line.partition(";;")[0]


def _parse_rule(line: str, place: str, log: ProblemLog) -> Optional[Rule]:
    source, arrow, rest = line.partition("=>")
    if not arrow or not source.strip():
        log.add("not a mapping rule", place, line.strip()[:60])
        return None
    match = _CONTEXT.match(rest)
    target, left, right = match.groups() if match else (rest, "", "")
    for part in (source.strip(), target.strip()):
        if part.startswith("[") != part.endswith("]"):
            logging.warning("%s: bracket without its partner, repaired: %s", place, part[:60])
    parts = [_content(part).upper() for part in (source, target, left, right)]
    if not parts[0]:
        log.add("not a mapping rule", place, line.strip()[:60])
        return None
    return Rule(*parts)


def _content(part: str) -> str:
    """What stands between brackets or quotes, blanks and all, or the bare string."""
    part = part.strip()
    if len(part) > 1 and part[0] == part[-1] == '"':
        return part[1:-1]
    if part.startswith("[") and part.endswith("]"):
        return part[1:-1]
    return part[1:] if part.startswith("[") and len(part) > 1 else part
