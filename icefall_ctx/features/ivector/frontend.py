"""Log-mel energies to the frames that the speaker models see: cepstra, deltas, CMVN, VAD.

Everything is derived from the log-mel energies of an utterance, whether they were stored by the
recipe or are computed from audio here, so one extractor works on both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from icefall_ctx.errors import InputError

# A stationary signal of RMS r (full scale 1) has a log-mel sum of about 2 ln r + 9.9: windows of
# 25 ms at 8 or 16 kHz, pre-emphasised.  So levels come out in dB below full scale, within 6 dB.
_FULL_SCALE = 9.9
_DB = 10.0 / math.log(10.0)


@dataclass(frozen=True)
class FrontendConfig:
    """How frames are made.  It is stored inside the extractor and never given twice."""

    source: str = "features"  # "features": stored log-mel energies, "audio": computed here
    feature_type: str = ""  # Lhotse's name of the stored features; set when training
    feature_dim: int = 0  # all columns of the stored features; set when training
    num_mel_bins: int = 80  # the first columns; what follows them (pitch) is not used
    sample_scale: float = 1.0  # full scale of the samples behind the features: 1 or 32768
    sampling_rate: int = 8000  # Hz, of the audio
    kind: str = "mfcc"  # "mfcc" or "fbank"
    num_ceps: int = 20
    cepstral_lifter: float = 22.0  # 0: none
    delta_order: int = 2
    delta_window: int = 3
    splice: int = 0  # frames of context on each side, instead of deltas
    cmvn: str = "sliding"  # "sliding", "utterance" or "none"
    cmvn_window: int = 300  # frames
    cmvn_variance: bool = False
    vad: bool = True
    vad_range_db: float = 30.0  # frames this far below the utterance's loudest are not speech
    vad_floor_db: float = -75.0  # nor is anything below this level (0 is full scale)
    vad_context: int = 2  # frames on each side that vote
    vad_proportion: float = 0.5  # of the votes

    def __post_init__(self) -> None:
        _check_choice("source", self.source, ("features", "audio"))
        _check_choice("kind", self.kind, ("mfcc", "fbank"))
        _check_choice("cmvn", self.cmvn, ("sliding", "utterance", "none"))
        if self.delta_order and self.splice:
            raise InputError("deltas and splicing exclude each other: set delta_order=0 to splice")
        if self.kind == "mfcc" and not 1 <= self.num_ceps <= self.num_mel_bins:
            raise InputError(
                f"num_ceps={self.num_ceps}: choose 1 to {self.num_mel_bins}, the number of mel bins"
            )

    @property
    def dim(self) -> int:
        """D, the dimension of a frame."""
        static = self.num_ceps if self.kind == "mfcc" else self.num_mel_bins
        return static * (1 + self.delta_order) * (1 + 2 * self.splice)


class Frames(NamedTuple):
    """The speech frames of one utterance ``(T, D)`` float32, and what was left out."""

    frames: Tensor
    num_total: int  # frames before VAD
    num_bad: int  # frames with a value that is not finite


def _check_choice(name: str, value: str, choices: tuple) -> None:
    if value not in choices:
        raise InputError(f"{name}={value!r}: choose one of {', '.join(choices)}")


def dct_matrix(num_ceps: int, num_bins: int, lifter: float, dtype=torch.float32) -> Tensor:
    """Orthonormal DCT-II ``(num_bins, num_ceps)`` with the usual sine lifter."""
    bins = torch.arange(num_bins, dtype=torch.float64) + 0.5
    ceps = torch.arange(num_ceps, dtype=torch.float64)
    matrix = torch.cos(math.pi / num_bins * bins[:, None] * ceps) * math.sqrt(2.0 / num_bins)
    matrix[:, 0] = math.sqrt(1.0 / num_bins)
    if lifter:
        matrix *= 1 + 0.5 * lifter * torch.sin(math.pi * ceps / lifter)
    return matrix.to(dtype)


def _filtered(x: Tensor, kernel: Tensor) -> Tensor:
    """Correlate every column of ``x`` (T, D) with ``kernel``; edge frames are repeated."""
    reach = len(kernel) // 2
    columns = x.T[:, None]  # (D, 1, T)
    padded = F.pad(columns, (reach, reach), mode="replicate")
    return F.conv1d(padded, kernel[None, None].to(x.dtype))[:, 0].T


def add_deltas(x: Tensor, order: int, window: int) -> Tensor:
    """``(T, D)`` to ``(T, D (order + 1))``: regression slopes over ``2 window + 1`` frames."""
    offsets = torch.arange(-window, window + 1, dtype=torch.float64)
    slope = offsets / (offsets**2).sum()
    blocks, kernel = [x], torch.ones(1, dtype=torch.float64)
    for _ in range(order):
        # The kernels, not the outputs, are convolved: so that the edges repeat the input.
        kernel = F.conv1d(
            kernel[None, None], slope.flip(0)[None, None], padding=len(slope) - 1
        )[0, 0]
        blocks.append(_filtered(x, kernel))
    return torch.cat(blocks, dim=1)


def splice_frames(x: Tensor, context: int) -> Tensor:
    """``(T, D)`` to ``(T, D (2 context + 1))``, oldest frame first; edge frames are repeated."""
    num = len(x)
    index = torch.arange(num)[:, None] + torch.arange(-context, context + 1)
    return x[index.clamp(0, num - 1)].reshape(num, -1)


def cmvn(x: Tensor, window: int, variance: bool) -> Tensor:
    """Subtract the mean (and divide by the deviation) of ``window`` frames around each frame.

    At the edges the window is moved inwards, so that it always has ``min(window, T)`` frames.
    """
    num = len(x)
    window = min(window, num)
    start = (torch.arange(num) - window // 2).clamp(0, num - window)

    def mean(values: Tensor) -> Tensor:
        sums = F.pad(values.double().cumsum(0), (0, 0, 1, 0))
        return (sums[start + window] - sums[start]) / window

    average = mean(x)
    centred = x - average.to(x.dtype)
    if not variance:
        return centred
    spread = (mean(x.double() ** 2) - average**2).clamp_min(1e-10).sqrt()
    return centred / spread.to(x.dtype)


def speech_mask(log_mel: Tensor, config: FrontendConfig) -> Tensor:
    """Which frames ``(T,)`` of ``log_mel`` (T, bins) are loud enough to be speech."""
    level = _DB * (log_mel.logsumexp(1) - _FULL_SCALE - 2 * math.log(config.sample_scale))
    threshold = max(float(level.max()) - config.vad_range_db, config.vad_floor_db)
    loud = (level > threshold).to(log_mel.dtype)
    width = 2 * config.vad_context + 1
    votes = F.conv1d(loud[None, None], torch.ones(1, 1, width), padding=config.vad_context)
    voters = F.conv1d(
        torch.ones_like(loud)[None, None], torch.ones(1, 1, width), padding=config.vad_context
    )
    return (votes >= config.vad_proportion * voters)[0, 0] & (level > config.vad_floor_db)


class Frontend:
    """Log-mel energies to frames, see :class:`FrontendConfig`."""

    def __init__(self, config: FrontendConfig) -> None:
        self.config = config
        self._dct = dct_matrix(config.num_ceps, config.num_mel_bins, config.cepstral_lifter)
        self._fbank = None

    def __call__(self, features: Tensor) -> Frames:
        """``features`` (T, at least num_mel_bins) to the speech frames ``(T', dim)``."""
        config = self.config
        log_mel = features[:, : config.num_mel_bins].float()
        finite = log_mel.isfinite().all(1)
        num_bad = len(log_mel) - int(finite.sum())
        log_mel = log_mel[finite]
        if not len(log_mel):
            return Frames(torch.zeros(0, config.dim), len(features), num_bad)
        frames = self._frames(log_mel)
        if config.vad:
            frames = frames[speech_mask(log_mel, config)]
        return Frames(frames, len(features), num_bad)

    def _frames(self, log_mel: Tensor) -> Tensor:
        config = self.config
        x = log_mel @ self._dct if config.kind == "mfcc" else log_mel
        if config.delta_order:
            x = add_deltas(x, config.delta_order, config.delta_window)
        elif config.splice:
            x = splice_frames(x, config.splice)
        if config.cmvn == "none":
            return x
        window = config.cmvn_window if config.cmvn == "sliding" else len(x)
        return cmvn(x, window, config.cmvn_variance)

    def log_mel(self, samples: Tensor, sampling_rate: int, place: str) -> Tensor:
        """Log-mel energies ``(T, num_mel_bins)`` of ``samples`` (n,) in [-1, 1]."""
        if sampling_rate != self.config.sampling_rate:
            raise InputError(
                f"{place}: audio at {sampling_rate} Hz, but this extractor was made for "
                f"{self.config.sampling_rate} Hz"
            )
        if self._fbank is None:
            self._fbank = _make_fbank(self.config)
        return torch.as_tensor(self._fbank.extract(samples.numpy(), sampling_rate))


def _make_fbank(config: FrontendConfig):
    from lhotse import Fbank, FbankConfig

    return Fbank(
        FbankConfig(sampling_rate=config.sampling_rate, num_filters=config.num_mel_bins)
    )
