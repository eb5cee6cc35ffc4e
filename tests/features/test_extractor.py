"""Backends against each other and against Kaldi's formula written out."""

import pickle

import numpy as np
import pytest
import soundfile
import torch
from lhotse import FeatureExtractor
from lhotse.utils import compute_num_frames_from_samples

from icefall_ctx.errors import InputError
from icefall_ctx.features import extractor as module
from icefall_ctx.features.extractor import FbankPitch, FbankPitchConfig, fit_frames, kaldi_pitch

KALDIFEAT = pytest.param(
    "kaldifeat",
    marks=pytest.mark.skipif(
        not module.has_kaldifeat(),
        reason="kaldifeat is not installed; local/install_kaldifeat.sh builds it",
    ),
)


def speech_like(seconds: float, rate: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * rate)) / rate
    voice = sum(np.sin(2 * np.pi * k * (150 * t + 4 * np.sin(2 * t))) / k for k in range(1, 12))
    return (0.1 * voice + 0.01 * rng.standard_normal(len(t))).astype(np.float32)


def make(rate: int, backend: str = "lhotse", **kwargs) -> FbankPitch:
    return FbankPitch(FbankPitchConfig(sampling_rate=rate, backend=backend, **kwargs))


def direct_fbank(samples: np.ndarray, rate: int, num_bins: int) -> np.ndarray:
    """Kaldi's log-mel filterbank in float64, frame by frame, as its documentation defines it."""
    shift, length = rate // 100, rate // 40
    size = 1 << (length - 1).bit_length()
    n = np.arange(length)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * n / (length - 1))) ** 0.85

    def to_mel(hertz):
        return 1127 * np.log(1 + hertz / 700)

    edges = np.linspace(to_mel(20), to_mel(rate / 2 - 400), num_bins + 2)
    mel = to_mel(np.arange(size // 2) * rate / size)
    rise = (mel - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - mel) / (edges[2:] - edges[1:-1])[:, None]
    weights = np.maximum(0, np.minimum(rise, fall))

    rows = []
    for t in range((len(samples) + shift // 2) // shift):
        index = t * shift + shift // 2 - length // 2 + n
        index = np.where(index < 0, -index - 1, index)  # reflected at both ends
        index = np.where(index >= len(samples), 2 * len(samples) - 1 - index, index)
        frame = samples[index].astype(np.float64)
        frame -= frame.mean()
        frame -= 0.97 * np.concatenate([frame[:1], frame[:-1]])
        power = np.abs(np.fft.rfft(frame * window, size)[: size // 2]) ** 2
        rows.append(np.log(np.maximum(weights @ power, np.finfo(np.float32).eps)))
    return np.stack(rows)


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("backend", ["native", "lhotse", KALDIFEAT])
def test_filterbank_follows_the_formula(backend, rate):
    samples = speech_like(1.0, rate)
    ours = make(rate, backend, pitch=False).extract(samples, rate)
    np.testing.assert_allclose(ours, direct_fbank(samples, rate, 80), atol=1e-3, rtol=0)


@pytest.mark.parametrize("backend", ["native", KALDIFEAT])
def test_backends_agree_on_recorded_speech(backend, shared_data):
    for path in sorted((shared_data / "fsdd" / "recordings").glob("*.wav"))[::40]:
        samples, rate = soundfile.read(path, dtype="float32")
        reference = make(rate).extract(samples, rate)
        np.testing.assert_allclose(
            make(rate, backend).extract(samples, rate), reference, atol=1e-3, rtol=0
        )


@pytest.mark.parametrize("rate", [8000, 16000])
def test_auto_is_one_of_the_backends(rate):
    samples = speech_like(0.5, rate)
    np.testing.assert_allclose(
        make(rate, "auto").extract(samples, rate), make(rate).extract(samples, rate), atol=1e-3
    )


@pytest.mark.parametrize("backend", ["native", "lhotse", KALDIFEAT])
@pytest.mark.parametrize("rate", [8000, 16000])
def test_any_length_has_lhotse_s_number_of_frames(backend, rate):
    extract = make(rate, backend).extract
    for num_samples in [0, 1, 39, 40, 79, 80, 100, 121, 199, 200, 399, 401, 1000, 1599, 1601]:
        features = extract(speech_like(1.0, rate)[:num_samples], rate)
        frames = compute_num_frames_from_samples(num_samples, 0.01, rate) if num_samples else 0
        assert features.shape == (frames, 83), num_samples
        assert features.dtype == np.float32 and np.isfinite(features).all()


def test_pitch_follows_the_voice():
    rate = 16000
    t = np.arange(2 * rate) / rate
    pitch = np.where(t < 1, 120.0, 240.0)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    samples = sum(np.sin(k * phase) / k for k in range(1, 8)).astype(np.float32) * 0.1
    features = kaldi_pitch(samples, rate)
    assert features.shape == (200, 3)
    # The second column: twice the log pitch less its mean over 75 frames on either side.
    log_pitch = np.log(pitch[rate // 200 :: rate // 100])
    local = [log_pitch[max(0, i - 75) : i + 76].mean() for i in range(200)]
    steady = np.r_[10:90, 110:190]
    np.testing.assert_allclose(features[steady, 1], 2 * (log_pitch - local)[steady], atol=0.08)
    noise = 0.1 * np.random.default_rng(0).standard_normal(2 * rate).astype(np.float32)
    # The first falls as the voicing rises (Kaldi: 2 * ((1.0001 - nccf)^0.15 - 1)).
    assert features[20:180, 0].mean() < kaldi_pitch(noise, rate)[20:180, 0].mean() - 0.3


def test_pitch_follows_the_filterbank_s_columns():
    samples = speech_like(0.7, 8000)
    both = make(8000, num_mel_bins=40).extract(samples, 8000)
    assert both.shape == (70, 43)
    np.testing.assert_array_equal(both[:, 40:], kaldi_pitch(samples, 8000))
    alone = make(8000, num_mel_bins=40, pitch=False).extract(samples, 8000)
    np.testing.assert_array_equal(both[:, :40], alone)
    assert make(8000, pitch=False).feature_dim(8000) == 80 and make(8000).feature_dim(8000) == 83


def test_fit_frames_crops_or_repeats_the_last():
    rows = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(fit_frames(rows, 2), rows[:2])
    np.testing.assert_array_equal(fit_frames(rows, 5), rows[[0, 1, 2, 2, 2]])


def test_array_kind_and_leading_channel():
    samples = speech_like(0.3, 8000)
    extract = make(8000).extract
    flat = extract(samples, 8000)
    np.testing.assert_array_equal(flat, extract(samples[None], 8000))
    as_tensor = extract(torch.from_numpy(samples), 8000)
    assert isinstance(as_tensor, torch.Tensor)
    np.testing.assert_array_equal(flat, as_tensor.numpy())
    batch = make(8000).extract_batch([samples, samples[:1000]], 8000)
    np.testing.assert_array_equal(batch[0], flat)


def test_silence_is_finite():
    assert np.isfinite(make(8000).extract(np.zeros(8000, np.float32), 8000)).all()


@pytest.mark.parametrize(
    "samples, rate, message",
    [
        (np.zeros(8000, np.float32), 16000, "8000 Hz.*16000 Hz.*resample"),
        (np.zeros((2, 8000), np.float32), 8000, r"\(2, 8000\).*to_mono"),
        (np.zeros((0, 8000), np.float32), 8000, r"\(0, 8000\)"),
        (np.full(8000, np.nan, np.float32), 8000, "not finite"),
    ],
)
def test_unusable_audio_is_refused(samples, rate, message):
    with pytest.raises(InputError, match=message):
        make(8000).extract(samples, rate)


def test_registered_with_lhotse_and_picklable():
    ours = make(8000, num_mel_bins=23, pitch=False)
    samples = speech_like(0.2, 8000)
    expected = ours.extract(samples, 8000)
    for copy in [FeatureExtractor.from_dict(ours.to_dict()), pickle.loads(pickle.dumps(ours))]:
        assert type(copy) is FbankPitch and copy.config == ours.config
        np.testing.assert_array_equal(copy.extract(samples, 8000), expected)


def test_unknown_and_missing_backends(monkeypatch):
    with pytest.raises(InputError, match="'fast'.*auto, kaldifeat, native, lhotse"):
        module.resolve_backend("fast")
    monkeypatch.setattr(module, "has_kaldifeat", lambda: False)
    assert module.resolve_backend("auto") == "lhotse"
    with pytest.raises(InputError, match="install_kaldifeat"):
        module.resolve_backend("kaldifeat")


@pytest.mark.parametrize(
    "rate, bins, message",
    [
        (0, 80, "sampling rate 0"),
        (11025, 80, "11025 Hz.*multiple of 100"),
        (16000, 0, "0 mel bins"),
        (8000, 200, "200 mel bins: at 8000 Hz at most"),
    ],
)
def test_impossible_settings_are_refused(rate, bins, message):
    with pytest.raises(InputError, match=message):
        FbankPitchConfig(sampling_rate=rate, num_mel_bins=bins)


@pytest.mark.parametrize("rate", [8000, 16000])
def test_the_most_bins_allowed_all_vary(rate):
    with pytest.raises(InputError) as info:
        FbankPitchConfig(sampling_rate=rate, num_mel_bins=500)
    most = int(str(info.value).split("at most ")[1].split()[0])
    noise = np.random.default_rng(0).standard_normal(rate).astype(np.float32)
    features = make(rate, num_mel_bins=most, pitch=False).extract(noise, rate)
    assert most >= 80 and features.std(axis=0).min() > 0.1
    direct = direct_fbank(noise, rate, most + 1)  # one more: a bin of nothing
    assert direct.std(axis=0).min() < 1e-9
