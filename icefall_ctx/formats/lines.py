"""Lines of a text file, whatever its line ends, and with a clear word about a wrong encoding."""

from __future__ import annotations

import codecs
import gzip
import zlib
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where

ENCODINGS_TO_TRY = "--encoding gb18030 (Mandarin from LDC), latin-1, utf-16"


def read_bytes(path: Pathlike) -> bytes:
    """The content of a file, unpacked where it is gzip.

    Raises:
      InputError: no such file, not readable, or a damaged gzip file.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip file ({error}); copy it again") from error


def read_lines(
    path: Pathlike, log: Optional[ProblemLog] = None, *, encoding: str = "utf-8"
) -> Iterator[Tuple[int, str]]:
    """``(line number from 1, text)`` of every line that is not blank, without its line end.

    A byte-order mark is dropped.  Only CR, LF and CRLF end a line: some words of other scripts
    hold characters that :meth:`str.splitlines` would break at.  A line that is not valid in
    ``encoding`` is logged and skipped; where many are not, the file is refused.
    """
    log = ProblemLog() if log is None else log
    codec = codec_of(encoding, path)
    data = read_bytes(path)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        codec, data = "utf-8", _recode(data, path)
    elif codec.startswith(("utf-16", "utf-32")):
        codec, data = "utf-8", _recode(data, path, codec)
    data = data.removeprefix(codecs.BOM_UTF8)
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    decoded, problems = [], []
    for number, raw in enumerate(lines, start=1):
        try:
            line = raw.decode(codec)
        except UnicodeDecodeError as error:
            problems.append((where(path, number), f"byte {raw[error.start]:#04x}"))
            continue
        if line.strip():
            decoded.append((number, line))
    if problems and (not decoded or _is_systematic(len(problems), len(decoded))):
        raise InputError(f"{path}: not {encoding} text; try {ENCODINGS_TO_TRY}")
    for place, detail in problems:
        log.add(f"not {encoding} text", place, detail)
    yield from decoded


def _is_systematic(bad: int, good: int) -> bool:
    """A quarter of the lines is no accident: the file is in another encoding."""
    return bad >= 3 and 3 * bad >= good


def codec_of(encoding: str, path: Pathlike) -> str:
    """Python's name of ``encoding``; an :class:`InputError` if there is none."""
    try:
        return codecs.lookup(encoding).name
    except LookupError as error:
        advice = f"unknown encoding {encoding!r}; try {ENCODINGS_TO_TRY}"
        raise InputError(f"{path}: {advice}") from error


def _recode(data: bytes, path: Pathlike, codec: str = "utf-16") -> bytes:
    try:
        return data.decode(codec).encode("utf-8")
    except UnicodeError as error:
        raise InputError(f"{path}: neither UTF-8 nor whole {codec} text ({error})") from error


def parse_seconds(text: str) -> Optional[float]:
    """A finite number of seconds, or ``None``."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < 1e9 else None  # also refuses inf and nan


def is_comment(line: str) -> bool:
    """``;;`` opens a comment line in all NIST formats."""
    return line.lstrip().startswith(";;")


def read_fields(
    path: Pathlike,
    log: ProblemLog,
    least: int,
    *,
    encoding: str = "utf-8",
    splits: int = -1,
    comments: bool = True,
) -> Iterator[Tuple[int, List[str]]]:
    """Lines split at white space; those of too few fields are logged, comments left out."""
    for number, line in read_lines(path, log, encoding=encoding):
        if comments and is_comment(line):
            continue
        fields = line.split(None, splits)
        if len(fields) < least:
            log.add(
                "too few fields", where(path, number), f"{len(fields)} of {least}: {line[:60]!r}"
            )
            continue
        yield number, fields
