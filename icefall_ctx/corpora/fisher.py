"""Fisher English transcripts (LDC2004T19, LDC2005T19) as text for language models.

``data/trans/000/fe_03_00001.txt``, two header lines and then ``3.76 5.54 B: and i generally``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Sequence

from tqdm import tqdm

from icefall_ctx.corpora.reading import (
    find_files,
    parse_ldc_turn,
    read_text,
    remove_spans,
    require_dir,
)
from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.files import write_text


class FisherTurn(NamedTuple):
    start: float  # seconds
    side: str  # "A" or "B"
    text: str


def clean_fisher_text(text: str) -> str:
    """Words without noises, and doubtful words, ``((...))``, without their brackets."""
    return remove_spans(remove_spans(text, r"\[[^\]]*\]"), r"[()]")


def read_fisher_call(path: Path, problems: ProblemLog) -> List[FisherTurn]:
    """The turns of one call that have words, in the order they were begun."""
    turns = []
    for number, line in read_text(path, problems):
        if line.startswith("#"):
            continue
        turn = parse_ldc_turn(line)
        if turn is None:
            problems.add("not 'start end A: text'", where(path, number), line[:60])
            continue
        start, _, side, text = turn
        text = clean_fisher_text(text)
        if text:
            turns.append(FisherTurn(start, side, text))
    return sorted(turns)


def fisher_calls(
    roots: Sequence[Pathlike], problems: ProblemLog
) -> Iterator[List[FisherTurn]]:
    """The calls of all ``roots``; only files below a folder ``trans`` are transcripts."""
    paths: List[Path] = []
    for root in roots:
        files = find_files(require_dir(root, "Fisher transcripts"), ".txt")
        paths.extend(path for path in files if "trans" in path.parts)
    for path in tqdm(paths, desc="Fisher", disable=None):
        turns = read_fisher_call(path, problems)
        if turns:
            yield turns


def write_fisher_text(
    roots: Sequence[Pathlike], output: Pathlike, problems: Optional[ProblemLog] = None
) -> int:
    """Write one turn a line and a blank line after each call; the number of turns.

    The blank lines let a language model carry its state over the turns of a call only.
    """
    problems = ProblemLog() if problems is None else problems
    calls = ["\n".join(turn.text for turn in call) + "\n" for call in fisher_calls(roots, problems)]
    if not calls:
        raise InputError(f"{', '.join(map(str, roots))}: no Fisher transcript below data/trans")
    write_text(output, "\n".join(calls))
    return sum(call.count("\n") for call in calls)
