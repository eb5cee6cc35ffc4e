import shutil

import numpy as np
import pytest
from lhotse import Recording
from tree import sphere_bytes, voices, write_sphere

from icefall_ctx.corpora.sphere import (
    check_sphere,
    read_sphere_header,
    sphere_recording,
    use_sphere_backend,
)
from icefall_ctx.errors import InputError


def test_header_of_a_real_file(shared_data):
    header = read_sphere_header(shared_data / "formats" / "stereo.sph")
    assert (header.channels, header.sampling_rate, header.num_samples) == (2, 8000, 8000)
    assert header.coding == "pcm" and header.header_bytes == 1024


def test_real_file_is_read_without_sph2pipe(shared_data):
    path = shared_data / "formats" / "stereo.sph"
    use_sphere_backend()
    samples = np.frombuffer(path.read_bytes()[1024:], dtype="<i2").reshape(-1, 2).T / 32768
    np.testing.assert_allclose(sphere_recording(path, "x").load_audio(), samples, atol=1e-6)
    assert Recording.from_file(path).duration == 1.0


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("coding, tolerance", [("pcm", 0), ("ulaw", 0.03)])
def test_samples_and_channels_come_back(tmp_path, channels, coding, tolerance):
    samples = voices(channels, 0.5, 8000)
    write_sphere(tmp_path / "a.sph", samples, 8000, coding)
    use_sphere_backend()
    recording = sphere_recording(tmp_path / "a.sph", "a")
    np.testing.assert_allclose(recording.load_audio(), samples / 32768, atol=tolerance)
    part = recording.load_audio(channels=channels - 1, offset=0.25, duration=0.125)
    np.testing.assert_allclose(part[0], samples[-1, 2000:3000] / 32768, atol=tolerance)


def test_backend_is_replaced_once_and_the_users_choice_stays(monkeypatch):
    from lhotse.audio import backend

    use_sphere_backend()
    before = list(backend.get_current_audio_backend().backends)
    use_sphere_backend()
    assert list(backend.get_current_audio_backend().backends) == before
    chosen = backend.LibsndfileBackend()
    monkeypatch.setattr(backend, "CURRENT_AUDIO_BACKEND", chosen)
    use_sphere_backend()
    assert backend.get_current_audio_backend() is chosen


def test_shorten_names_the_program_to_install(tmp_path, monkeypatch):
    path = tmp_path / "a.sph"
    write_sphere(path, voices(1, 0.1, 8000), 8000, "ulaw,embedded-shorten-v2.00")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(InputError, match="a.sph: compressed with shorten; install sph2pipe"):
        check_sphere(path)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/" + name)
    assert check_sphere(path).is_shorten


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda data: data[:-10], "truncated, 10 bytes"),
        (lambda data: data[:200].replace(b"end_head", b"........"), "cut short"),
        (lambda data: b"RIFF" + data, "no SPHERE file"),
        (lambda data: b"", "no SPHERE file"),
        (lambda data: data.replace(b"count -i 2", b"count -i x"), "channel_count has the value"),
        (lambda data: data.replace(b"count -i 2", b"count -i 0"), "channel_count is 0"),
        (lambda data: data.replace(b"-s3 pcm", b"-s3 xyz"), "coding 'xyz'"),
        (lambda data: data.replace(b"sample_rate -i 8000", b"sample_rate"), "is not 'name"),
    ],
)
def test_damage_is_named(tmp_path, change, message):
    path = tmp_path / "a.sph"
    path.write_bytes(change(sphere_bytes(voices(2, 0.1, 8000), 8000)))
    with pytest.raises(InputError, match=message):
        check_sphere(path)
