"""Transcripts out of Lhotse manifests, supervisions or cuts, line by line and without Lhotse.

Lhotse's own readers stop at the first bad line with a stack trace; here each bad line is named.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.formats.lines import read_lines


@dataclass(frozen=True)
class Supervision:
    utt_id: str
    recording: str
    channel: str
    start: float  # seconds, on the recording's clock
    end: float
    text: str
    speaker: str = ""
    conv_id: str = ""
    side: str = ""
    turn: int = -1
    line: int = 0
    snr: Optional[float] = None  # dB


def read_supervisions(path: Pathlike, log: Optional[ProblemLog] = None) -> List[Supervision]:
    """Supervisions of a supervision or cut manifest (JSONL, also gzip, or one JSON list)."""
    log = ProblemLog() if log is None else log
    found: List[Supervision] = []
    for number, item in _items(path, log):
        try:
            found.extend(_supervisions(item, number))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"[:80]
            log.add("not a supervision or cut", where(path, number), reason)
    return found


def _items(path: Pathlike, log: ProblemLog) -> Iterator[Tuple[int, Any]]:
    lines = list(read_lines(path, log))
    if lines and lines[0][1].lstrip().startswith("["):
        try:
            items = json.loads("\n".join(line for _, line in lines))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not whole JSON ({error}); write it again") from error
        yield from ((lines[0][0], item) for item in items)
        return
    for number, line in lines:
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            log.add("not JSON", where(path, number), str(error)[:80])
            continue
        yield number, item


def _supervisions(item: Dict[str, Any], number: int) -> Iterator[Supervision]:
    """Of one manifest line: a supervision, a cut, or a cut mixed out of others."""
    if "tracks" in item:
        for track in item["tracks"]:
            yield from _supervisions(track["cut"], number)
    elif "supervisions" in item:
        for supervision in item["supervisions"]:
            yield _supervision(supervision, number, float(item.get("start", 0)))
    elif item.get("type") != "PaddingCut":
        yield _supervision(item, number, 0.0)


def _supervision(item: Dict[str, Any], number: int, offset: float) -> Supervision:
    custom = item.get("custom") or {}
    channel = item.get("channel", 0)
    start = offset + float(item["start"])
    return Supervision(
        utt_id=str(item["id"]),
        recording=str(item["recording_id"]),
        channel=str(channel[0] if isinstance(channel, list) and channel else channel),
        start=start,
        end=start + float(item["duration"]),
        text=str(item.get("text") or ""),
        speaker=str(item.get("speaker") or ""),
        conv_id=str(custom.get("conv_id") or item["recording_id"]),
        side=str(custom.get("side") or ""),
        turn=int(custom.get("turn", -1)),
        line=number,
        snr=None if custom.get("snr") is None else float(custom["snr"]),
    )
