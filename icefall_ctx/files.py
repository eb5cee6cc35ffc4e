"""Writing files so that a reader, or a later run, never meets a half-written one."""

from __future__ import annotations

import fcntl
import io
import os
import uuid
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Union

from icefall_ctx.errors import InputError


@contextmanager
def atomic_path(path: Union[str, Path]) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block ends without an error.

    The temporary name keeps the suffixes of ``path``, since writers choose their format
    (``.jsonl.gz``) by it.  After an error, or a kill, ``path`` is what it was before; an error
    of the system names ``path``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        if os.path.exists(temporary):
            temporary.unlink(missing_ok=True)


def check_output(path: Union[str, Path]) -> None:
    """Before long work: make the folder of ``path``, and write there once.

    Raises:
      InputError: a folder that cannot be made or written, or ``path`` is a folder.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder; name a file")
    temporary = path.with_name(f".tmp-{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from error


@contextmanager
def only_one(folder: Union[str, Path]) -> Iterator[None]:
    """One process at a time writes in ``folder``; a kill frees it.

    Raises:
      InputError: another process is at work there.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(Path(folder) / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{folder}: another process is writing there; wait for it, or choose another folder"
            ) from error
        yield


def write_text(path: Union[str, Path], text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_picture(path: Union[str, Path], figure: Any) -> None:
    """Draw a matplotlib ``figure``, atomically and without a display.

    Raises:
      InputError: a suffix that is of no picture.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    known = FigureCanvasAgg(figure).get_supported_filetypes()
    if Path(path).suffix[1:].lower() not in known:
        raise InputError(f"{path}: a picture is named *.png, *.pdf or *.svg")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi="figure")


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


def read_torch(
    path: Union[str, Path], device: str = "cpu", what: str = "a checkpoint"
) -> Any:
    """What :func:`write_torch` wrote, as data: nothing in the file is run.

    Raises:
      InputError: cut off, something else, or holding more than plain data.  torch's own message
        is left out: it advises to run what is in the file.
    """
    import pickle

    import torch

    refusal = f"{path}: not {what} of plain data, or cut off"
    if not zipfile.is_zipfile(path):  # else any bytes are taken for the instructions of a pickle
        raise InputError(refusal)
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError, LookupError) as error:
        raise InputError(f"{refusal} ({type(error).__name__})") from error
