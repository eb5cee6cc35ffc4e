"""Writing files so that a reader, or a later run, never meets a half-written one."""

from __future__ import annotations

import io
import os
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Union


@contextmanager
def atomic_path(path: Union[str, Path]) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends without an error.

    The temporary name keeps the suffixes of ``path``, since writers choose their format
    (``.jsonl.gz``) by it.  After an error, or a kill, ``path`` is what it was before.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Union[str, Path], text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_torch(path: Union[str, Path], value: Any) -> None:
    """``torch.save``, atomically.

    It is made in memory first: torch's own writer aborts the whole process, without a word about
    the disk, where the disk is full.
    """
    import torch  # only those who save tensors wait for it

    packed = io.BytesIO()
    torch.save(value, packed)
    with atomic_path(path) as temporary:
        temporary.write_bytes(packed.getbuffer())
