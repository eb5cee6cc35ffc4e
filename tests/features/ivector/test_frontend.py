"""Cepstra, deltas, CMVN and VAD against Kaldi's code and plain loops."""

import kaldi_native_fbank as knf
import numpy as np
import pytest
import torch

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector.frontend import (
    Frontend,
    FrontendConfig,
    add_deltas,
    cmvn,
    dct_matrix,
    speech_mask,
    splice_frames,
)


def kaldi_frames(online, samples: np.ndarray) -> np.ndarray:
    online.accept_waveform(8000, samples.tolist())
    online.input_finished()
    return np.stack([online.get_frame(k) for k in range(online.num_frames_ready)])


def test_cepstra_are_kaldis():
    samples = np.random.default_rng(0).normal(0, 1000, 8000).astype(np.float32)
    options = knf.MfccOptions()
    options.frame_opts.samp_freq, options.frame_opts.dither = 8000, 0
    options.mel_opts.num_bins, options.num_ceps, options.use_energy = 24, 13, False
    options.mel_opts.htk_mode = False
    wanted = kaldi_frames(knf.OnlineMfcc(options), samples)
    fbank = knf.FbankOptions()
    fbank.frame_opts.samp_freq, fbank.frame_opts.dither = 8000, 0
    fbank.mel_opts.num_bins = 24
    log_mel = torch.from_numpy(kaldi_frames(knf.OnlineFbank(fbank), samples))
    found = log_mel @ dct_matrix(13, 24, 22.0)
    np.testing.assert_allclose(found.numpy(), wanted, atol=2e-3)


@pytest.mark.parametrize("num_frames", [1, 4, 50])
def test_deltas_are_kaldis(num_frames):
    x = np.random.default_rng(0).normal(size=(num_frames, 5)).astype(np.float32)
    options = knf.DeltaOptions()
    options.order, options.window = 2, 3
    wanted = np.asarray(knf.compute_deltas(options, x))
    np.testing.assert_allclose(add_deltas(torch.from_numpy(x), 2, 3), wanted, atol=1e-5)


def test_splice_repeats_the_edges():
    x = torch.arange(3.0)[:, None]
    assert splice_frames(x, 1).tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 2]]


@pytest.mark.parametrize("num_frames", [1, 7, 40])
@pytest.mark.parametrize("variance", [False, True])
def test_sliding_cmvn_is_the_loop(num_frames, variance):
    x = torch.randn(num_frames, 3, generator=torch.Generator().manual_seed(0)) * 3 + 50
    found = cmvn(x, 10, variance)
    for t in range(num_frames):
        width = min(10, num_frames)
        start = min(max(t - width // 2, 0), num_frames - width)
        part = x[start : start + width].double()
        wanted = x[t].double() - part.mean(0)
        if variance:
            wanted = wanted / part.var(0, unbiased=False).clamp_min(1e-10).sqrt()
        torch.testing.assert_close(found[t].double(), wanted, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("rate, bins", [(8000, 24), (16000, 80)])
def test_levels_are_decibels_below_full_scale(rate, bins):
    """Noise 40 dB below the floor's neighbour is silence, noise just above it is speech."""
    config = FrontendConfig(source="audio", sampling_rate=rate, num_mel_bins=bins)
    frontend = Frontend(config)
    noise = torch.randn(rate, generator=torch.Generator().manual_seed(0))
    for level, speech in ((-85, False), (-65, True)):
        log_mel = frontend.log_mel(noise * 10 ** (level / 20), rate, "x")
        assert bool(speech_mask(log_mel, config).any()) == speech


def test_vad_finds_the_loud_half():
    config = FrontendConfig(source="audio", num_mel_bins=24)
    noise = torch.randn(16000, generator=torch.Generator().manual_seed(0))
    noise[:8000] *= 1e-3
    noise[8000:] *= 0.3
    mask = speech_mask(Frontend(config).log_mel(noise, 8000, "x"), config)
    assert not mask[:96].any() and mask[104:].all()


def test_bad_frames_are_left_out_and_counted():
    features = torch.randn(50, 83, generator=torch.Generator().manual_seed(0))
    features[7, 3], features[9, 0] = float("nan"), float("inf")
    result = Frontend(FrontendConfig())(features)
    assert result.num_bad == 2 and result.num_total == 50
    assert result.frames.isfinite().all() and result.frames.shape == (48, 60)
    nothing = Frontend(FrontendConfig())(torch.full((4, 83), float("nan")))
    assert nothing.frames.shape == (0, 60) and nothing.num_bad == 4


@pytest.mark.parametrize(
    "options",
    [{"kind": "plp"}, {"splice": 2}, {"num_ceps": 90}, {"cmvn": "global"}, {"source": "video"}],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(InputError):
        FrontendConfig(**options)


@pytest.mark.parametrize(
    "options, dim",
    [
        ({}, 60),
        ({"kind": "fbank", "delta_order": 0}, 80),
        ({"delta_order": 0, "splice": 4, "cmvn": "none", "vad": False}, 180),
        ({"cmvn": "utterance", "cmvn_variance": True}, 60),
    ],
)
def test_dimension(options, dim):
    config = FrontendConfig(**options)
    assert config.dim == dim
    assert Frontend(config)(torch.zeros(9, 83)).frames.shape == (9, dim)


def test_another_sampling_rate_is_refused():
    with pytest.raises(InputError, match="16000 Hz.*8000 Hz"):
        Frontend(FrontendConfig(source="audio")).log_mel(torch.zeros(800), 16000, "cut-1")
