"""Does an audio file hold what its manifest says?  Lhotse reads on where it does not."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Optional

import soundfile
from lhotse import MonoCut

from icefall_ctx.errors import InputError

END_TOLERANCE = 0.025  # seconds; Lhotse itself fills up to this much


class _Header(NamedTuple):
    sampling_rate: int
    channels: int
    num_samples: int


@lru_cache(maxsize=4096)
def _read_header(path: str) -> Optional[_Header]:
    """None for what libsndfile does not know: only Lhotse's reader can tell."""
    try:
        info = soundfile.info(path)
    except (RuntimeError, OSError):
        return None
    return _Header(info.samplerate, info.channels, info.frames)


def check_sources(cut: MonoCut) -> None:
    """Compare the headers of the cut's audio files with the manifest.

    Raises :class:`InputError` if a file is missing, has another sampling rate or number of
    channels, or ends before the cut does.  Recordings that are transformed on reading, and files
    that are decoded at a rate of choice (Opus), are left to Lhotse.
    """
    recording = cut.recording
    if recording.transforms:
        return
    for source in recording.sources:
        if source.type != "file" or str(source.source).endswith(".opus"):
            continue
        if not Path(source.source).is_file():  # found out here, as every reader would be tried
            raise InputError("no such file")
        header = _read_header(str(source.source))
        if header is not None:
            _compare(header, cut, len(source.channels))


def _compare(header: _Header, cut: MonoCut, num_channels: int) -> None:
    recording = cut.recording
    if header.sampling_rate != recording.sampling_rate:
        raise InputError(
            f"the file has {header.sampling_rate} Hz, "
            f"its manifest says {recording.sampling_rate} Hz"
        )
    if header.channels != num_channels:
        raise InputError(f"the file has {header.channels} channels, its manifest {num_channels}")
    seconds = header.num_samples / header.sampling_rate
    if seconds < min(cut.end, recording.duration) - END_TOLERANCE:
        raise InputError(f"the file ends at {seconds:.3f} s, the turn at {cut.end:.3f} s")
