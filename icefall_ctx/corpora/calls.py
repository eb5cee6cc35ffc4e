"""Composing two-channel calls out of single utterances: timing, noise, levels, manifests.

Shared by the corpora that are put together rather than recorded as calls.  Everything takes
a ``numpy.random.Generator``, so that the same seed gives the same bytes.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Callable, List, NamedTuple, Sequence, Tuple

import numpy as np
import soundfile as sf
import torch
from lhotse import AudioSource, Recording, SupervisionSegment
from torchaudio.transforms import Resample

from icefall_ctx.files import atomic_path

SPEECH_LEVEL_DB = -26.0  # root mean square of speech against full scale, as in ITU-T P.56 practice
PEAK = 0.98


class Side(NamedTuple):
    """One channel of a call.  ``snr`` and ``gain`` are in decibels."""

    name: str
    speaker: str
    snr: float
    gain: float = 0.0


class CallTurn(NamedTuple):
    """What is said in one turn: channel number, text, and clean samples (T,) in float32."""

    channel: int
    text: str
    samples: np.ndarray


class Timing(NamedTuple):
    """Turn taking in seconds; a negative gap is an overlap with the other side."""

    gap_mean: float = 0.25
    gap_std: float = 0.25
    gap_max: float = 1.2
    overlap_max: float = 0.25
    lead: float = 0.3


class Call(NamedTuple):
    """A composed call.

    audio: (2, T) int16; starts: first sample of each turn; speech, noise: (2, T) float32, the
    two parts whose sum, rounded, is ``audio``.
    """

    audio: np.ndarray
    starts: List[int]
    speech: np.ndarray
    noise: np.ndarray


@functools.lru_cache(maxsize=4)  # its filter takes longer to make than a turn to resample
def _resampler(rate: int, target: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return Resample(rate, target)


def resample(samples: np.ndarray, rate: int, target: int) -> np.ndarray:
    """Samples (T,) in float32 at ``rate`` Hz to the same at ``target`` Hz."""
    return _resampler(rate, target)(torch.from_numpy(samples)).numpy()


def rms(samples: np.ndarray) -> float:
    """Root mean square; never below 1e-8, so that it can be divided by."""
    return max(float(np.sqrt(np.mean(np.square(samples, dtype=np.float64)))), 1e-8)


def decibel(gain_db: float) -> float:
    """Amplitude factor of a gain in decibels."""
    return float(10.0 ** (gain_db / 20.0))


def lay_out(
    rng: np.random.Generator,
    lengths: Sequence[int],
    channels: Sequence[int],
    rate: int,
    timing: Timing = Timing(),
) -> Tuple[List[int], int]:
    """Start of each turn, strictly rising, and the length of the call, in samples.

    A channel never overlaps itself, and at most 30 % of a turn is talked over.
    """
    lead = int(rate * timing.lead)
    starts: List[int] = []
    channel_end = {channel: 0 for channel in channels}
    previous_start, previous_end = -1, lead
    for length, channel in zip(lengths, channels):
        gap = rng.normal(timing.gap_mean, timing.gap_std)
        gap = int(rate * float(np.clip(gap, -timing.overlap_max, timing.gap_max)))
        gap = max(gap, -int(0.3 * (previous_end - previous_start)))
        start = max(previous_end + gap, channel_end[channel] + rate // 20, previous_start + 1)
        starts.append(start)
        previous_start, previous_end = start, max(start + length, previous_end)
        channel_end[channel] = start + length
    return starts, previous_end + lead


def pink_noise(rng: np.random.Generator, n: int, period: int = 1 << 17) -> np.ndarray:
    """``n`` samples whose power falls by 3 dB an octave, (n,) float32.

    Repeats itself after ``period`` samples: no one hears that, and long transforms are slow.
    """
    size = min(1 << max(int(n - 1).bit_length(), 4), period)
    spectrum = np.fft.rfft(rng.standard_normal(size, dtype=np.float32))
    spectrum[1:] /= np.sqrt(np.arange(1, len(spectrum), dtype=np.float32))
    spectrum[0] = 0
    return np.resize(np.fft.irfft(spectrum, size).astype(np.float32), n)


def babble_noise(
    rng: np.random.Generator, n: int, bank: Sequence[np.ndarray], voices: int = 8
) -> np.ndarray:
    """``n`` samples of many voices at once, (n,) float32: reversed speech, so no word is heard."""
    pieces = [piece[::-1] / rms(piece) for piece in bank]
    mean_length = sum(map(len, pieces)) / len(pieces)
    count = int(n / mean_length) + 2
    out = np.zeros(n, dtype=np.float32)
    for _ in range(voices):
        voice = np.concatenate([pieces[i] for i in rng.integers(0, len(pieces), count)])
        shift = int(rng.integers(0, len(voice)))
        repeats = -(-n // len(voice)) + 1
        out += np.tile(voice, repeats)[shift : shift + n]
    return out


def mixed_noise(rng: np.random.Generator, n: int, bank: Sequence[np.ndarray]) -> np.ndarray:
    """White, pink and babble noise in random proportion, (n,) float32 with root mean square 1."""
    shares = np.sqrt(rng.dirichlet([1.0, 1.0, 1.0]))
    kinds = (rng.standard_normal(n, dtype=np.float32), pink_noise(rng, n))
    kinds += (babble_noise(rng, n, bank),)
    noise = sum(share * kind / rms(kind) for share, kind in zip(shares, kinds))
    return (noise / rms(noise)).astype(np.float32)


def compose(
    rng: np.random.Generator,
    turns: Sequence[CallTurn],
    sides: Sequence[Side],
    rate: int,
    bank: Sequence[np.ndarray],
    timing: Timing = Timing(),
) -> Call:
    """Put ``turns`` on the two channels of a call and add each side's noise.

    Every turn is brought to the level of its side, and the noise of that channel, which runs
    through the whole call, lies ``side.snr`` dB below it.
    """
    lengths = [len(turn.samples) for turn in turns]
    starts, total = lay_out(rng, lengths, [turn.channel for turn in turns], rate, timing)
    speech = np.zeros((len(sides), total), dtype=np.float32)
    noise = np.empty_like(speech)
    levels = [decibel(SPEECH_LEVEL_DB + side.gain) for side in sides]
    for turn, start in zip(turns, starts):
        scaled = turn.samples * (levels[turn.channel] / rms(turn.samples))
        speech[turn.channel, start : start + len(scaled)] += scaled
    for channel, side in enumerate(sides):
        noise[channel] = mixed_noise(rng, total, bank) * (levels[channel] * decibel(-side.snr))
        # Turning a channel down keeps its ratio of speech to noise; clipping would not.
        factor = min(1.0, PEAK / float(np.abs(speech[channel] + noise[channel]).max()))
        speech[channel] *= factor
        noise[channel] *= factor
    audio = np.round((speech + noise) * 32767.0).astype(np.int16)
    return Call(audio, starts, speech, noise)


def write_audio(path: Path, audio: np.ndarray, rate: int) -> None:
    """Write (channels, T) int16 samples as 16-bit FLAC, atomically."""
    with atomic_path(path) as temporary:
        sf.write(str(temporary), audio.T, rate, subtype="PCM_16", format="FLAC")


def call_manifests(
    call_id: str,
    path: Path,
    call: Call,
    turns: Sequence[CallTurn],
    sides: Sequence[Side],
    rate: int,
) -> Tuple[Recording, List[SupervisionSegment]]:
    """The recording, and a supervision a turn with custom fields ``side``, ``snr``, ``conv_id``."""
    channels, total = call.audio.shape
    source = AudioSource(type="file", channels=list(range(channels)), source=str(path))
    recording = Recording(call_id, [source], rate, total, total / rate)
    supervisions = []
    for index, (turn, start) in enumerate(zip(turns, call.starts)):
        side = sides[turn.channel]
        supervisions.append(
            SupervisionSegment(
                id=f"{call_id}-{index:03d}-{side.name}",
                recording_id=call_id,
                start=start / rate,
                duration=len(turn.samples) / rate,
                channel=turn.channel,
                text=turn.text,
                language="English",
                speaker=side.speaker,
                custom={"conv_id": call_id, "side": side.name, "snr": round(side.snr, 2)},
            )
        )
    return recording, supervisions
