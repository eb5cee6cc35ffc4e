"""NIST TRN: one utterance a line, ``words (utterance_id)``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, List, Optional, Set

from icefall_ctx.errors import Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import is_comment, read_lines

_LINE = re.compile(r"^(.*?)\(([^()\s]+)\)\s*$")


@dataclass(frozen=True)
class TrnLine:
    utt_id: str
    text: str
    line: int = 0

    @property
    def speaker(self) -> str:
        """What stands before the last ``-`` or ``_`` of the id: NIST's usual naming."""
        match = re.match(r"(.+)[-_][^-_]*$", self.utt_id)
        return match[1] if match else self.utt_id


def read_trn(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> List[TrnLine]:
    """Utterances in the order of the file; a second line of one id is logged and skipped."""
    log = ProblemLog() if log is None else log
    lines: List[TrnLine] = []
    seen: Set[str] = set()
    for number, line in read_lines(path, log, encoding=encoding):
        if is_comment(line):
            continue
        match = _LINE.match(line)
        if not match:
            log.add("no (utterance id) at the end", where(path, number), repr(line[-40:]))
        elif match[2] in seen:
            log.add("repeated utterance", where(path, number), match[2])
        else:
            seen.add(match[2])
            lines.append(TrnLine(match[2], match[1].strip(), number))
    return lines


def write_trn(path: Pathlike, lines: Iterable[TrnLine]) -> None:
    write_text(path, "".join(f"{line.text} ({line.utt_id})\n".lstrip() for line in lines))
