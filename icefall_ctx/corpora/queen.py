"""The container ``queen.1c`` of the game Flight of the Amazon Queen, and where to get it.

Layout (big-endian): ``QTBL``, a version of 6 bytes, 2 bytes, 1 compression byte (1 = MP3),
u16 number of entries; entries of 21 bytes: name (12), bundle (u8), offset and size (u32).
"""

from __future__ import annotations

import argparse
import io
import lzma
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Tuple

from icefall_ctx.errors import InputError
from icefall_ctx.files import atomic_path

PACKAGE = "flight-of-the-amazon-queen"
HEADER, ENTRY = struct.Struct(">4s6s2sBH"), struct.Struct(">12sBII")
MP3 = 1
UNREADABLE = (OSError, EOFError, tarfile.TarError, lzma.LZMAError, StopIteration, ValueError)


class Entry(NamedTuple):
    offset: int
    size: int


class QueenFile:
    """Read-only view of ``queen.1c``: ``names()``, ``name in queen``, ``queen[name]`` -> bytes.

    Raises:
      InputError: not such a file, not the release with MP3 speech, or a file cut short.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{path}: no such file; it should be queen.1c")
        with open(self.path, "rb") as stream:
            head = stream.read(HEADER.size)
            if len(head) < HEADER.size or head[:4] != b"QTBL":
                raise InputError(f"{path}: not a queen.1c (it does not start with QTBL)")
            _, _, _, compression, count = HEADER.unpack(head)
            if compression != MP3:
                raise InputError(f"{path}: speech is not MP3 (compression {compression})")
            table = stream.read(count * ENTRY.size)
        self._entries = dict(self._parse(table, count))

    def _parse(self, table: bytes, count: int) -> Iterator[Tuple[str, Entry]]:
        size_of_file = self.path.stat().st_size
        if len(table) < count * ENTRY.size:
            raise InputError(f"{self.path}: cut short, its table wants {count} entries")
        for name, _, offset, size in ENTRY.iter_unpack(table):
            text = name.rstrip(b"\0 ").decode("latin-1")
            if offset + size > size_of_file:
                raise InputError(f"{self.path}: cut short, entry {text} lies behind its end")
            yield text, Entry(offset, size)

    def names(self, suffix: str = "") -> List[str]:
        return sorted(name for name in self._entries if name.endswith(suffix))

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> bytes:
        if name not in self._entries:
            raise InputError(f"{self.path}: no entry {name}")
        offset, size = self._entries[name]
        with open(self.path, "rb") as stream:
            stream.seek(offset)
            return stream.read(size)


def unpack_package(package: Path, folder: Path) -> Path:
    """Take ``queen.1c`` and the licence out of the Debian package; returns the former's path."""
    wanted = {"queen.1c": folder / "queen.1c", "copyright": folder / "copyright"}
    try:
        data = _archive_members(package)
        member = next(name for name in data if name.startswith("data.tar"))
        with tarfile.open(fileobj=io.BytesIO(data[member])) as archive:
            for info in archive:
                target = wanted.get(Path(info.name).name) if info.isfile() else None
                if target is not None:
                    with atomic_path(target) as temporary, open(temporary, "wb") as out:
                        shutil.copyfileobj(archive.extractfile(info), out)
    except UNREADABLE as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"{package}: cannot unpack it as a Debian package ({reason})")
    if not wanted["queen.1c"].is_file():
        raise InputError(f"{package}: no queen.1c in it; it should be {PACKAGE}_*.deb")
    return wanted["queen.1c"]


def _archive_members(path: Path) -> Dict[str, bytes]:
    """The members of an ``ar`` archive: headers of 60 bytes, data padded to even length."""
    data = path.read_bytes()
    if not data.startswith(b"!<arch>\n"):
        raise ValueError("it does not start with !<arch>")
    members, position = {}, 8
    while position + 60 <= len(data):
        name = data[position : position + 16].decode("latin-1").strip().rstrip("/")
        size = int(data[position + 48 : position + 58])
        members[name] = data[position + 60 : position + 60 + size]
        position += 60 + size + size % 2
    return members


def download_package(folder: Path) -> Path:
    """``apt-get download`` into ``folder``, unless a package is there already."""
    advice = f"get {PACKAGE}_*.deb from any Debian mirror and give it by --package"
    found = sorted(folder.glob(f"{PACKAGE}_*.deb"))
    if found:
        return found[-1]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run = subprocess.run(
            ["apt-get", "download", PACKAGE], cwd=folder, capture_output=True, text=True
        )
    except FileNotFoundError:
        raise InputError(f"apt-get is not on this machine: {advice}")
    found = sorted(folder.glob(f"{PACKAGE}_*.deb"))
    if run.returncode != 0 or not found:
        last = (run.stderr.strip().splitlines() or ["no package came"])[-1]
        raise InputError(f"apt-get download {PACKAGE}: {last} (run apt-get update, or {advice})")
    return found[-1]


def add_source_options(parser: argparse.ArgumentParser) -> None:
    """``--queen``, ``--package`` and ``--download-dir``: where ``queen.1c`` comes from."""
    parser.add_argument("--queen", type=Path, metavar="FILE", help="an unpacked queen.1c")
    parser.add_argument("--package", type=Path, metavar="FILE.deb",
                        help=f"the Debian package {PACKAGE}")  # fmt: skip
    parser.add_argument("--download-dir", type=Path, default=Path("download/fotaq"),
                        help="where the package is downloaded and unpacked")  # fmt: skip


def locate_queen(args: argparse.Namespace) -> Path:
    """The file named by the options of :func:`add_source_options`, downloaded where none is."""
    if args.queen is not None:
        return args.queen
    if args.package is None and (args.download_dir / "queen.1c").is_file():
        return args.download_dir / "queen.1c"
    package = args.package or download_package(args.download_dir)
    return unpack_package(package, args.download_dir)
