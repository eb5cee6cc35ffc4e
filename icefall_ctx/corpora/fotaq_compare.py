"""Compare what the reader of fotaq finds with a listing of what a correct reader finds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple

from icefall_ctx.corpora.fotaq import reference_order
from icefall_ctx.corpora.queen import QueenFile
from icefall_ctx.corpora.queen_text import read_game_text
from icefall_ctx.errors import InputError

FIELDS = ("conversation", "kind", "speaker", "text")


def read_expected(path: Path) -> List[Dict[str, str]]:
    """One JSON object a line with ``id`` and ``FIELDS``."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the listing by --expected")
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            rows.append({key: row[key] for key in ("id",) + FIELDS})
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number}: expected an object with id and text ({error})")
    return rows


def compare(queen: QueenFile, expected: List[Dict[str, str]]) -> Tuple[Counter, List[str]]:
    """Counts of ``agree``, ``missing``, ``extra`` and of each set of fields that differ, and a
    line for each clip that does not agree.
    """
    found = {
        line.clip: dict(zip(FIELDS, (conversation, kind, line.speaker, line.text)))
        for conversation, kind, line in reference_order(read_game_text(queen))
        if line.clip + ".SB" in queen
    }
    counts: Counter = Counter()
    details = []
    for row in expected:
        ours = found.pop(row["id"], None)
        different = [] if ours is None else [key for key in FIELDS if ours[key] != row[key]]
        if ours is not None and not different:
            counts["agree"] += 1
            continue
        reason = "missing" if ours is None else "different " + ", ".join(different)
        counts[reason] += 1
        details.append(f"{row['id']}: {reason}: {ours} instead of {row}")
    counts["extra"] += len(found)
    details += [f"{clip}: extra: {fields}" for clip, fields in found.items()]
    return counts, details
