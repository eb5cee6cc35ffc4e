"""Errors a user can act on, and the list of problems that a reader went on over."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, NamedTuple, Optional, Union

Pathlike = Union[str, Path]


class InputError(ValueError):
    """Bad input: one line that names the file, the line, the value and what to do.

    Command lines print it without a stack trace and exit with status 2.
    """


def where(path: Pathlike, line: Optional[int] = None) -> str:
    """``path:line`` as compilers write it, or just ``path``."""
    return str(path) if line is None else f"{path}:{line}"


class Problem(NamedTuple):
    kind: str  # short and countable, such as "no audio"
    place: str  # file:line or an utterance id
    detail: str


@dataclass
class ProblemLog:
    """What was skipped or repaired while reading, so that nothing is lost silently.

    With ``strict`` the first problem raises :class:`InputError`.  Otherwise every problem is
    kept, the first ``max_shown`` of each kind are logged, and :meth:`summary` counts them.
    """

    strict: bool = False
    max_shown: int = 5
    problems: List[Problem] = field(default_factory=list, init=False)
    _counts: Counter = field(default_factory=Counter, init=False, repr=False)

    def add(self, kind: str, place: str, detail: str = "") -> None:
        problem = Problem(kind, place, detail)
        text = f"{place}: {kind}" + (f": {detail}" if detail else "")
        if self.strict:
            raise InputError(text)
        self.problems.append(problem)
        self._counts[kind] += 1
        if self._counts[kind] <= self.max_shown:
            logging.warning(text)

    def counts(self) -> Counter:
        return Counter(self._counts)

    def __len__(self) -> int:
        return len(self.problems)

    def summary(self) -> str:
        """One line such as ``3 problems: 2 no audio, 1 empty text``; empty when there are none."""
        if not self.problems:
            return ""
        parts = ", ".join(f"{n} {kind}" for kind, n in self.counts().most_common())
        return f"{len(self.problems)} problems: {parts}"
