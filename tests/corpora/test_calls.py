import numpy as np
import pytest
import soundfile as sf

from icefall_ctx.corpora import calls

RATE = 8000


def make_call(seed=0, snrs=(20.0, -6.0)):
    rng = np.random.default_rng(seed)
    tones = [np.sin(np.arange(4000 + 500 * k) * 0.05 * (k + 1)).astype("f4") for k in range(6)]
    turns = [calls.CallTurn(k % 2, f"T{k}", tone * 0.1 * (k + 1)) for k, tone in enumerate(tones)]
    sides = [calls.Side("a", "anna", snrs[0]), calls.Side("b", "bert", snrs[1], gain=3.0)]
    return calls.compose(rng, turns, sides, RATE, tones), turns, sides


def test_snr_and_level_of_every_turn():
    call, turns, sides = make_call()
    for turn, start in zip(turns, call.starts):
        where = slice(start, start + len(turn.samples))
        speech, noise = call.speech[turn.channel], call.noise[turn.channel]
        measured = 20 * np.log10(calls.rms(speech[where]) / calls.rms(noise))
        assert measured == pytest.approx(sides[turn.channel].snr, abs=0.01)
    assert 20 * np.log10(calls.rms(call.speech[0][call.starts[0] :][:4000])) == pytest.approx(
        calls.SPEECH_LEVEL_DB, abs=0.01
    )


def test_audio_is_speech_plus_noise_and_never_clips():
    for snrs in ((20.0, -6.0), (-30.0, -30.0)):
        call, _, _ = make_call(snrs=snrs)
        assert np.abs(call.audio / 32767 - call.speech - call.noise).max() <= 0.51 / 32767
        assert np.abs(call.audio).max() <= calls.PEAK * 32767 + 1


def test_same_seed_same_call():
    assert np.array_equal(make_call(3)[0].audio, make_call(3)[0].audio)
    assert not np.array_equal(make_call(3)[0].audio, make_call(4)[0].audio)


def test_layout_keeps_order_and_one_voice_a_channel():
    rng = np.random.default_rng(0)
    timing = calls.Timing(gap_mean=-0.1, gap_std=1.0)
    lengths = rng.integers(1, 20000, 400).tolist()
    channels = rng.integers(0, 2, 400).tolist()
    starts, total = calls.lay_out(rng, lengths, channels, RATE, timing)
    assert all(a < b for a, b in zip(starts, starts[1:]))
    ends = [start + length for start, length in zip(starts, lengths)]
    for channel in (0, 1):
        own = [(s, e) for s, e, c in zip(starts, ends, channels) if c == channel]
        assert all(end < start for (_, end), (start, _) in zip(own, own[1:]))
    assert any(start < end for end, start in zip(ends, starts[1:])), "no overlap at all"
    assert max(ends) < total


def test_pink_noise_falls_three_decibels_an_octave():
    spectrum = np.abs(np.fft.rfft(calls.pink_noise(np.random.default_rng(0), 1 << 16))) ** 2
    octaves = [10 * np.log10(spectrum[1 << k : 2 << k].mean()) for k in range(8, 14)]
    assert np.diff(octaves) == pytest.approx([-3.0] * 5, abs=0.7)


def test_babble_covers_the_call_and_has_no_word_in_order():
    ramp = np.linspace(0.1, 1, 1000).astype("f4")
    babble = calls.babble_noise(np.random.default_rng(0), 5000, [ramp], voices=1)
    assert len(babble) == 5000 and np.all(babble > 0)
    assert np.mean(np.diff(babble) < 0) > 0.99  # the ramp runs backwards


def test_written_audio_is_what_was_composed(tmp_path):
    call, turns, sides = make_call()
    path = tmp_path / "call.flac"
    calls.write_audio(path, call.audio, RATE)
    audio, rate = sf.read(str(path), dtype="int16")
    assert rate == RATE and np.array_equal(audio.T, call.audio)
    recording, supervisions = calls.call_manifests("c", path, call, turns, sides, RATE)
    assert recording.num_samples == audio.shape[0] and recording.num_channels == 2
    assert [round(s.start * RATE) for s in supervisions] == call.starts
    assert [round(s.duration * RATE) for s in supervisions] == [len(t.samples) for t in turns]
    assert [path.name for path in tmp_path.iterdir()] == ["call.flac"]
