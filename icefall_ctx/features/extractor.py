"""Log-mel filterbank and Kaldi pitch as one Lhotse feature extractor, with three backends."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Callable, Dict, Tuple, Union

import numpy as np
import torch
from lhotse.features.base import FeatureExtractor, register_extractor

from icefall_ctx.errors import InputError

FRAME_SHIFT = 0.01  # seconds
FRAME_LENGTH = 0.025  # seconds
LOW_FREQ, HIGH_FREQ = 20.0, -400.0  # Hz; negative: below the Nyquist frequency
PITCH_DIM = 3  # probability of voicing, normalised log pitch, delta of log pitch
MIN_RATE, MIN_MEL_BINS = 2000, 3
MIN_SECONDS = 0.2  # shorter signals get silence appended; those frames are cut off again
INT16_SCALE = 32768.0  # Kaldi's pitch tracker expects samples in the range of 16-bit integers

Samples = Union[np.ndarray, torch.Tensor]
FbankFunction = Callable[[np.ndarray], np.ndarray]  # (num_samples,) -> (T, num_mel_bins)

BACKENDS: Dict[str, Callable[[int, int], FbankFunction]] = {}


def _backend(name: str):
    """Register a builder ``(sampling_rate, num_mel_bins) -> FbankFunction`` under ``name``."""

    def register(build):
        BACKENDS[name] = build
        return build

    return register


def _set_kaldi_options(options: Any, sampling_rate: int, num_mel_bins: int) -> Any:
    """kaldifeat and kaldi-native-fbank share Kaldi's option names."""
    options.frame_opts.samp_freq = sampling_rate
    options.frame_opts.frame_shift_ms = FRAME_SHIFT * 1000
    options.frame_opts.frame_length_ms = FRAME_LENGTH * 1000
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = num_mel_bins
    options.mel_opts.low_freq = LOW_FREQ
    options.mel_opts.high_freq = HIGH_FREQ
    return options


@_backend("kaldifeat")
def _build_kaldifeat(sampling_rate: int, num_mel_bins: int) -> FbankFunction:
    import kaldifeat

    options = _set_kaldi_options(kaldifeat.FbankOptions(), sampling_rate, num_mel_bins)
    fbank = kaldifeat.Fbank(options)
    return lambda samples: fbank(torch.from_numpy(samples)).numpy()


@_backend("native")
def _build_native(sampling_rate: int, num_mel_bins: int) -> FbankFunction:
    import kaldi_native_fbank

    options = _set_kaldi_options(
        kaldi_native_fbank.FbankOptions(), sampling_rate, num_mel_bins
    )

    def fbank(samples: np.ndarray) -> np.ndarray:
        online = kaldi_native_fbank.OnlineFbank(options)
        online.accept_waveform(sampling_rate, samples)
        online.input_finished()
        return np.stack([online.get_frame(t) for t in range(online.num_frames_ready)])

    return fbank


@_backend("lhotse")
def _build_lhotse(sampling_rate: int, num_mel_bins: int) -> FbankFunction:
    from lhotse import Fbank, FbankConfig

    config = FbankConfig(
        sampling_rate=sampling_rate,
        num_filters=num_mel_bins,
        frame_shift=FRAME_SHIFT,
        frame_length=FRAME_LENGTH,
        low_freq=LOW_FREQ,
        high_freq=HIGH_FREQ,
        dither=0.0,
        snip_edges=False,
    )
    fbank = Fbank(config)
    return lambda samples: fbank.extract(samples, sampling_rate)


@lru_cache(maxsize=None)
def has_kaldifeat() -> bool:
    """Whether kaldifeat imports; one built for another torch is there and does not."""
    try:
        import kaldifeat  # noqa: F401
    except (ImportError, OSError):
        return False
    return True


def resolve_backend(name: str) -> str:
    """The backend that ``name`` stands for; ``auto`` is kaldifeat where it is installed, or lhotse.

    These two are equally fast on a CPU, kaldi-native-fbank takes two to four times as long
    (``local/bench/features.py``).  Raises :class:`InputError` for an unknown name and for a
    backend that is not installed.
    """
    if name == "auto":
        return "kaldifeat" if has_kaldifeat() else "lhotse"
    if name not in BACKENDS:
        names = ", ".join(["auto", *BACKENDS])
        raise InputError(f"unknown feature backend '{name}'; one of: {names}")
    if name == "kaldifeat" and not has_kaldifeat():
        raise InputError(
            "the feature backend 'kaldifeat' is not installed; run local/install_kaldifeat.sh "
            "or use the backend 'auto' (same numbers)"
        )
    return name


@lru_cache(maxsize=None)
def _fbank_function(backend: str, sampling_rate: int, num_mel_bins: int) -> FbankFunction:
    # Cached here and not in the extractor, which has to be picklable for worker processes.
    return BACKENDS[backend](sampling_rate, num_mel_bins)


@lru_cache(maxsize=None)
def _pitch_options(sampling_rate: int) -> Tuple[Any, Any]:
    import kaldi_native_fbank

    options = kaldi_native_fbank.PitchExtractionOptions()
    options.samp_freq = sampling_rate
    options.frame_shift_ms = FRAME_SHIFT * 1000
    options.frame_length_ms = FRAME_LENGTH * 1000
    options.snip_edges = False  # as many frames as the filterbank
    return options, kaldi_native_fbank.ProcessPitchOptions()


def kaldi_pitch(samples: np.ndarray, sampling_rate: int) -> np.ndarray:
    """Kaldi's processed pitch: ``(num_samples,)`` in [-1, 1] -> ``(T, 3)`` float32.

    Columns: a voicing feature, log pitch normalised over 1.5 s, and its delta (Kaldi's
    ``compute-and-process-kaldi-pitch-feats`` with ``--snip-edges=false``).
    """
    import kaldi_native_fbank

    # A list crosses into C++ twice as fast as an array, whose elements become objects one by one.
    wave = (samples * INT16_SCALE).tolist()
    return kaldi_native_fbank.compute_and_process_kaldi_pitch(
        *_pitch_options(sampling_rate), wave
    )


def fit_frames(features: np.ndarray, num_frames: int) -> np.ndarray:
    """Crop ``(T, C)`` to ``num_frames`` rows, or repeat its last row up to there."""
    missing = num_frames - len(features)
    if missing <= 0:
        return features[:num_frames]
    return np.pad(features, ((0, missing), (0, 0)), mode="edge")


@lru_cache(maxsize=None)
def _has_empty_bin(sampling_rate: int, num_mel_bins: int) -> bool:
    """Whether a mel bin, from edge to edge, lies between two points of the Fourier transform."""
    size = 1 << (round(sampling_rate * FRAME_LENGTH) - 1).bit_length()
    limits = np.array([LOW_FREQ, sampling_rate / 2 + HIGH_FREQ])
    low, high = 1127 * np.log1p(limits / 700)
    edges = 700 * np.expm1(np.linspace(low, high, num_mel_bins + 2) / 1127)
    points = np.arange(size // 2) * sampling_rate / size
    before_end = np.searchsorted(points, edges[2:], "left")
    up_to_start = np.searchsorted(points, edges[:-2], "right")
    return bool((before_end <= up_to_start).any())


@dataclass
class FbankPitchConfig:
    """Settings of :class:`FbankPitch`; frames of 25 ms every 10 ms, no dither.

    Args:
      sampling_rate: of the audio, in Hz, a multiple of 100 so that 10 ms are whole samples; audio
        of another rate is refused.
      num_mel_bins: log-mel bins between 20 Hz and 400 Hz below the Nyquist frequency; so many that
        a bin would fall between two points of the spectrum raise :class:`InputError`.
      pitch: append Kaldi's three pitch dimensions.
      backend: ``auto``, ``kaldifeat``, ``native`` (kaldi-native-fbank) or ``lhotse``; they
        differ in speed, and by less than 1e-3 in value.
    """

    sampling_rate: int = 16000
    num_mel_bins: int = 80
    pitch: bool = True
    backend: str = "auto"

    def __post_init__(self) -> None:
        rate, bins = self.sampling_rate, self.num_mel_bins
        if rate < MIN_RATE or rate % 100:
            raise InputError(
                f"sampling rate {rate} Hz: features need a multiple of 100, at least {MIN_RATE}"
            )
        if bins < MIN_MEL_BINS:
            raise InputError(f"{bins} mel bins: at least {MIN_MEL_BINS} are needed")
        if _has_empty_bin(rate, bins):
            most = next(n for n in range(bins, 0, -1) if not _has_empty_bin(rate, n))
            raise InputError(f"{bins} mel bins: at {rate} Hz at most {most} hold anything")

    def to_dict(self) -> Dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: Dict[str, Any]) -> "FbankPitchConfig":
        return FbankPitchConfig(**data)


@register_extractor
class FbankPitch(FeatureExtractor):
    """Log-mel filterbank (and pitch) of one channel.

    Samples are floats in [-1, 1], as Lhotse loads them.  With ``N`` samples at rate ``r`` the
    result has ``floor(N / (r * 0.01) + 0.5)`` frames, Lhotse's own count.
    """

    name = "icefall-ctx-fbank-pitch"
    config_type = FbankPitchConfig

    @property
    def frame_shift(self) -> float:
        return FRAME_SHIFT

    def feature_dim(self, sampling_rate: int) -> int:
        return self.config.num_mel_bins + (PITCH_DIM if self.config.pitch else 0)

    def extract(self, samples: Samples, sampling_rate: int) -> Samples:
        """``(num_samples,)`` or ``(1, num_samples)`` -> ``(T, feature_dim)`` float32.

        Returns the kind of array it was given.  Raises :class:`InputError` for another sampling
        rate, several channels, or samples that are not finite.
        """
        if isinstance(samples, torch.Tensor):
            return torch.from_numpy(self.extract(samples.cpu().numpy(), sampling_rate))
        samples = self._checked(samples, sampling_rate)
        num_frames = int(len(samples) / (sampling_rate * FRAME_SHIFT) + 0.5)
        # The C++ code reads beyond signals that are shorter than its windows.
        padding = max(0, round(MIN_SECONDS * sampling_rate) - len(samples))
        padded = np.pad(samples, (0, padding))
        backend = resolve_backend(self.config.backend)
        features = _fbank_function(backend, sampling_rate, self.config.num_mel_bins)(padded)
        features = fit_frames(features, num_frames)
        if self.config.pitch:
            pitch = fit_frames(kaldi_pitch(padded, sampling_rate), num_frames)
            features = np.concatenate([features, pitch], axis=1)
        return features

    def _checked(self, samples: np.ndarray, sampling_rate: int) -> np.ndarray:
        if sampling_rate != self.config.sampling_rate:
            raise InputError(
                f"the features are for {self.config.sampling_rate} Hz, the audio has "
                f"{sampling_rate} Hz; resample it"
            )
        if samples.ndim > 2 or (samples.ndim == 2 and len(samples) != 1):
            raise InputError(
                f"features are made from one channel, the audio has shape {samples.shape}; "
                "trim to supervisions, or to_mono(), first"
            )
        samples = np.ascontiguousarray(samples.reshape(-1), dtype=np.float32)
        if not np.isfinite(samples).all():
            raise InputError("the audio has samples that are not finite")
        return samples


