"""JSON transcripts: one file a call, a list of segments."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict, Optional, Tuple, Union

from icefall_ctx.errors import InputError, Pathlike


def load_json(path: Pathlike, kind: Union[type, Tuple[type, ...]]) -> Any:
    """The content of a JSON file whose top level is a ``list`` or a ``dict``."""
    try:
        return parse_json(Path(path).read_bytes(), path, kind)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def parse_json(data: bytes, path: Pathlike, kind: Union[type, Tuple[type, ...]]) -> Any:
    """What :func:`load_json` reads, from bytes that are in ``path``."""
    try:
        content = json.loads(data)
        # an escape such as \ud800 is half a character, which no manifest can be written with
        json.dumps(content, ensure_ascii=False).encode("utf-8")
    except (RecursionError, ValueError) as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    if not isinstance(content, kind):
        raise InputError(f"{path}: a {type(content).__name__} is not what belongs at its top level")
    return content


def number(segment: Dict[str, Any], key: str) -> Optional[float]:
    """A finite number in a segment, or None."""
    value = segment.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e15 and math.isfinite(value) else None


def milliseconds(segment: Dict[str, Any], key: str) -> Optional[float]:
    """A time that the file gives in milliseconds, in seconds."""
    value = number(segment, key)
    return None if value is None else round(value / 1000, ndigits=6)
