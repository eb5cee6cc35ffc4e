"""espeak-ng through ctypes: text to samples, from the library in the wheel ``espeakng-loader``.

The library keeps its state in global variables, some of which outlive its own restart: the
same words come out a little different the second time.  :class:`Espeak` therefore loads the
library anew each time, so that a call sounds the same whatever was said before it.  Voice
variants with breath (``f2``, ``f3``, ``f5``, ...) read memory that nobody set and differ from
process to process even so; do not use them where bytes matter.
"""

from __future__ import annotations

import _ctypes
import ctypes
from typing import List, NamedTuple

import numpy as np

from icefall_ctx.errors import InputError

AUDIO_OUTPUT_SYNCHRONOUS = 2
PARAMETER_RATE, PARAMETER_PITCH, PARAMETER_RANGE = 1, 3, 4
CHARS_UTF8, PHONEMES = 0x1, 0x100
CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


class Voice(NamedTuple):
    """``name`` as in ``en-us+f3``; ``rate`` in words a minute, ``pitch`` and ``range`` 0-99."""

    name: str
    rate: int = 170
    pitch: int = 50
    range: int = 50


class Espeak:
    """A synthesiser; use it as a context manager, so that the next one starts afresh.

    Raises:
      InputError: the wheel ``espeakng-loader`` is not installed, or the library cannot start.
    """

    def __init__(self) -> None:
        try:
            import espeakng_loader
        except ImportError:
            raise InputError("espeakng-loader is not installed: pip install espeakng-loader")
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = str(espeakng_loader.get_data_path()).encode()
        self.sampling_rate = self._library.espeak_Initialize(
            AUDIO_OUTPUT_SYNCHRONOUS, 500, data, 0
        )
        if self.sampling_rate <= 0:
            raise InputError("espeak-ng cannot start: reinstall espeakng-loader")
        self._chunks: List[np.ndarray] = []
        self._callback = CALLBACK(self._receive)  # kept: ctypes holds no reference
        self._library.espeak_SetSynthCallback(self._callback)
        ctypes.CDLL(None).srand(1)  # espeak seeds it with the time of day

    def __enter__(self) -> "Espeak":
        return self

    def __exit__(self, *_: object) -> None:
        self._library.espeak_Terminate()
        handle = self._library._handle
        del self._library
        _ctypes.dlclose(handle)  # the next one gets fresh global variables

    def _receive(self, samples, count: int, _events) -> int:
        if samples and count > 0:
            self._chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

    def __call__(self, text: str, voice: Voice) -> np.ndarray:
        """Samples (T,) in float32, full scale 1, without the silence around the speech.

        ``text`` may hold phonemes in double brackets, such as ``hello [[kr'i:f]]``.
        """
        if self._library.espeak_SetVoiceByName(voice.name.encode()) != 0:
            raise InputError(f"espeak-ng has no voice {voice.name!r}")
        self._library.espeak_SetParameter(PARAMETER_RATE, voice.rate, 0)
        self._library.espeak_SetParameter(PARAMETER_PITCH, voice.pitch, 0)
        self._library.espeak_SetParameter(PARAMETER_RANGE, voice.range, 0)
        self._chunks = []
        data = text.encode("utf-8") + b"\0"
        self._library.espeak_Synth(data, len(data), 0, 1, 0, CHARS_UTF8 | PHONEMES, None, None)
        self._library.espeak_Synchronize()
        if not self._chunks:
            raise InputError(f"espeak-ng said nothing for {text!r} with voice {voice.name!r}")
        return trim_silence(np.concatenate(self._chunks).astype(np.float32) / 32768.0)


def trim_silence(samples: np.ndarray, threshold: float = 1e-3, margin: int = 400) -> np.ndarray:
    """(T,) without what lies below ``threshold`` at either end, but for ``margin`` samples."""
    loud = np.flatnonzero(np.abs(samples) > threshold)
    if len(loud) == 0:
        return samples
    return samples[max(int(loud[0]) - margin, 0) : int(loud[-1]) + margin]
