"""NIST SPHERE audio without external tools.

libsndfile reads SPHERE files with PCM, mu-law and A-law samples, but Lhotse sends every ``.sph``
to the ``sph2pipe`` program.  :func:`use_sphere_backend` gives such files to libsndfile and leaves
only shorten-compressed ones, which nothing but ``sph2pipe`` decodes, to the program.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict, NamedTuple, Union

import lhotse
from lhotse.audio import backend as lhotse_backend

from icefall_ctx.errors import InputError, Pathlike

_MAGIC = b"NIST_1A"
_CODINGS = ("pcm", "ulaw", "alaw", "mu-law")


class SphereHeader(NamedTuple):
    header_bytes: int
    fields: Dict[str, Union[int, float, str]]

    @property
    def channels(self) -> int:
        return int(self.fields["channel_count"])

    @property
    def sampling_rate(self) -> int:
        return int(self.fields["sample_rate"])

    @property
    def num_samples(self) -> int:
        """Samples in each channel."""
        return int(self.fields["sample_count"])

    @property
    def coding(self) -> str:
        """``pcm``, ``ulaw``, ``alaw``, or one of them with ``,embedded-shorten-v2.00`` after it."""
        return str(self.fields.get("sample_coding", "pcm"))

    @property
    def is_shorten(self) -> bool:
        return "shorten" in self.coding

    @property
    def data_bytes(self) -> int:
        """Bytes of sample data that an uncompressed file must have."""
        return self.num_samples * self.channels * int(self.fields["sample_n_bytes"])


def _parse_field(path: Pathlike, line: str) -> tuple:
    """``name -i 8000``, ``name -r 0.5`` or ``name -s4 ulaw``."""
    parts = line.split(None, 2)
    if len(parts) != 3 or not parts[1].startswith("-"):
        raise InputError(f"{path}: SPHERE header line {line!r} is not 'name -type value'")
    name, kind, value = parts
    try:
        return name, {"-i": int, "-r": float}.get(kind, str)(value.strip())
    except ValueError:
        raise InputError(f"{path}: SPHERE field {name} has the value {value!r}") from None


def _header_lines(path: Pathlike) -> tuple:
    """The size of the header in bytes and its lines between the first two and ``end_head``."""
    with open(path, "rb") as file:
        start = file.read(16)
        size = start[len(_MAGIC) :].strip()
        if not start.startswith(_MAGIC) or not size.isdigit():
            raise InputError(f"{path}: no SPHERE file (it does not start with NIST_1A)")
        rest = file.read(int(size) - 16)
    lines = [line.strip() for line in rest.decode("latin-1").splitlines()]
    if "end_head" not in lines:
        raise InputError(f"{path}: the SPHERE header is cut short (no end_head)")
    return int(size), lines[: lines.index("end_head")]


def read_sphere_header(path: Pathlike) -> SphereHeader:
    """Parse the header of a SPHERE file; an :class:`InputError` says what is wrong with it."""
    size, lines = _header_lines(path)
    fields = dict(_parse_field(path, line) for line in lines if line and line[0] != ";")
    for name in ("channel_count", "sample_rate", "sample_count", "sample_n_bytes"):
        if not isinstance(fields.get(name), int) or fields[name] <= 0:
            raise InputError(
                f"{path}: SPHERE field {name} is {fields.get(name)!r}; a positive number is needed"
            )
    return SphereHeader(size, fields)


def has_sph2pipe() -> bool:
    return shutil.which("sph2pipe") is not None


def check_sphere(path: Pathlike) -> SphereHeader:
    """Read the header and refuse what cannot be decoded here, or is not all there."""
    header = read_sphere_header(path)
    if header.is_shorten:
        if not has_sph2pipe():
            raise InputError(
                f"{path}: compressed with shorten; install sph2pipe ('lhotse install-sph2pipe') "
                "and put it on PATH, or decompress the corpus with it beforehand"
            )
    elif header.coding.split(",")[0] not in _CODINGS:
        raise InputError(f"{path}: SPHERE coding {header.coding!r}; known: {', '.join(_CODINGS)}")
    elif os.path.getsize(path) - header.header_bytes < header.data_bytes:
        missing = header.data_bytes - (os.path.getsize(path) - header.header_bytes)
        raise InputError(f"{path}: truncated, {missing} bytes of samples are missing")
    return header


class SphereBackend(lhotse_backend.Sph2pipeSubprocessBackend):
    """Reads ``.sph`` through libsndfile, and through ``sph2pipe`` where shorten was used."""

    def read_audio(self, path_or_fd, offset=0.0, duration=None, force_opus_sampling_rate=None):
        if read_sphere_header(path_or_fd).is_shorten:
            return super().read_audio(path_or_fd, offset, duration, force_opus_sampling_rate)
        return lhotse_backend.soundfile_load(path_or_fd, offset=offset, duration=duration)

    def info(self, path_or_fd, force_opus_sampling_rate=None):
        header = check_sphere(path_or_fd)
        return lhotse_backend.LibsndfileCompatibleAudioInfo(
            channels=header.channels,
            frames=header.num_samples,
            samplerate=header.sampling_rate,
            duration=header.num_samples / header.sampling_rate,
        )


def use_sphere_backend() -> None:
    """Let Lhotse read SPHERE files in this process; idempotent.

    A backend that the user chose, by ``LHOTSE_AUDIO_BACKEND`` or in Python, stays as it is.
    """
    current = lhotse_backend.get_current_audio_backend()
    if not isinstance(current, lhotse_backend.CompositeAudioBackend):
        return
    plain = lhotse_backend.Sph2pipeSubprocessBackend
    current.backends = [
        SphereBackend() if type(backend) is plain else backend for backend in current.backends
    ]


def sphere_recording(path: Pathlike, recording_id: str) -> lhotse.Recording:
    """A Lhotse recording from the header alone, so that a corpus is listed in seconds."""
    header = check_sphere(path)
    source = lhotse.audio.AudioSource(
        type="file", channels=list(range(header.channels)), source=str(Path(path))
    )
    return lhotse.Recording(
        id=recording_id,
        sources=[source],
        sampling_rate=header.sampling_rate,
        num_samples=header.num_samples,
        duration=header.num_samples / header.sampling_rate,
    )
