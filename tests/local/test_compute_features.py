"""The stage script: order, channels, rates, speeds, bad audio, interruptions."""

import importlib.util
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, Recording, RecordingSet, SupervisionSegment, SupervisionSet, validate

from icefall_ctx.errors import InputError
from icefall_ctx.features import extraction
from icefall_ctx.features.extractor import FbankPitch, FbankPitchConfig
from icefall_ctx.features.stats import FeatureStats

SCRIPT = Path(__file__).resolve().parents[2] / "local" / "compute_features.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("compute_features", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Calls:
    """Two-channel calls: a tone of its own on every channel, three turns a call."""

    def __init__(self, folder: Path, num_calls: int = 2, rates=(8000,)):
        self.folder, self.audio = folder, {}
        recordings, turns = [], []
        for c in range(num_calls):
            rate = rates[c % len(rates)]
            t = np.arange(4 * rate) / rate
            tones = [np.sin(2 * np.pi * f * t) * 0.2 for f in (300 + 60 * c, 1500 + 60 * c)]
            path = folder / f"call{c}.wav"
            soundfile.write(path, np.stack(tones, axis=1), rate)
            recordings.append(Recording.from_file(path))
            for k, (start, duration) in enumerate([(0.2, 1.0), (1.1, 0.7), (2.3, 1.234)]):
                utt_id = f"call{c}-{k}"
                custom = {"utt_id": utt_id, "turn": k, "prev": [f"call{c}-{j}" for j in range(k)]}
                turns.append(SupervisionSegment(
                    utt_id, f"call{c}", start, duration, k % 2, text="yes", custom=custom
                ))  # fmt: skip
        RecordingSet.from_recordings(recordings).to_file(folder / "recordings.jsonl.gz")
        SupervisionSet.from_segments(turns).to_file(folder / "supervisions.jsonl.gz")
        self.ids = [turn.id for turn in turns]

    def args(self, *more, output="cuts.jsonl.gz"):
        return [
            "--recordings", str(self.folder / "recordings.jsonl.gz"),
            "--supervisions", str(self.folder / "supervisions.jsonl.gz"),
            "--output", str(self.folder / output), "--sampling-rate", "8000",
            "--backend", "lhotse", "--num-jobs", "1", *more,
        ]  # fmt: skip

    def cuts(self, output="cuts.jsonl.gz"):
        return list(CutSet.from_jsonl_lazy(self.folder / output))


@pytest.fixture
def calls(tmp_path):
    return Calls(tmp_path)


def test_each_turn_has_the_features_of_its_own_channel(script, calls):
    script.main(calls.args("--stats", str(calls.folder / "stats.json")))
    cuts = calls.cuts()
    assert [cut.id for cut in cuts] == calls.ids
    extractor = FbankPitch(FbankPitchConfig(8000, backend="lhotse"))
    for cut in cuts:
        (supervision,) = cut.supervisions
        assert (supervision.id, supervision.start) == (cut.id, 0)
        assert supervision.duration == cut.duration
        assert cut.custom is None and supervision.custom["utt_id"] == cut.id
        audio = soundfile.read(calls.folder / f"{cut.recording_id}.wav", dtype="float32")[0]
        begin, length = round(cut.start * 8000), round(cut.duration * 8000)
        expected = extractor.extract(audio[begin : begin + length, int(cut.id[-1]) % 2], 8000)
        np.testing.assert_allclose(cut.load_features(), expected, atol=2**-8)
    validate(CutSet.from_cuts(cuts), read_data=True)
    stats = FeatureStats.load(calls.folder / "stats.json")
    frames = np.concatenate([cut.load_features() for cut in cuts])
    np.testing.assert_allclose(stats.mean, frames.mean(0), atol=2**-8)
    assert stats.count == len(frames)


def test_any_number_of_jobs_gives_the_same_manifest(script, tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "CHUNK_SIZE", 4)
    calls = Calls(tmp_path, num_calls=5)
    manifests = []
    for jobs in (1, 3):
        more = ["--num-jobs", str(jobs), "--storage-dir", str(tmp_path / f"{jobs}")]
        script.main(calls.args("--perturb-speed", *more, output=f"{jobs}.jsonl.gz"))
        manifests.append(calls.cuts(f"{jobs}.jsonl.gz"))
    ids = [cut.id for cut in manifests[0]]
    assert ids == [utt_id + suffix for suffix in ("", "_sp0.9", "_sp1.1") for utt_id in calls.ids]
    assert ids == [cut.id for cut in manifests[1]]
    for one, three in zip(*manifests):
        np.testing.assert_array_equal(one.load_features(), three.load_features())


def test_rates_and_speeds_have_lengths_right_to_a_sample(script, tmp_path):
    calls = Calls(tmp_path, num_calls=3, rates=(44100, 8000, 16000))
    script.main(calls.args("--perturb-speed"))
    cuts = calls.cuts()
    assert len(cuts) == 27
    for cut in cuts:
        speed = float(cut.id.split("_sp")[1]) if "_sp" in cut.id else 1.0
        utt_id = cut.supervisions[0].custom["utt_id"]
        original = {"0": 1.0, "1": 0.7, "2": 1.234}[utt_id[-1]]
        assert cut.sampling_rate == 8000
        assert abs(cut.num_samples - original * 8000 / speed) <= 1
        assert cut.load_audio().shape == (1, cut.num_samples)
        assert len(cut.load_features()) == cut.num_frames
        assert cut.supervisions[0].id == cut.id == utt_id + (f"_sp{speed}" if speed != 1 else "")


def test_bad_audio_is_listed_and_the_others_go_on(script, tmp_path, caplog):
    calls = Calls(tmp_path, num_calls=6)
    (tmp_path / "call0.wav").unlink()
    os.truncate(tmp_path / "call1.wav", 48044)  # 1.5 s: one turn whole, one in part
    samples, _ = soundfile.read(tmp_path / "call2.wav")
    soundfile.write(tmp_path / "call2.wav", samples, 16000)
    soundfile.write(tmp_path / "call3.wav", samples[:, 0], 8000)
    (tmp_path / "call4.wav").write_text("not audio")
    with pytest.raises(SystemExit) as info:
        script.main(calls.args("--max-bad-share", "0.5"))
    assert info.value.code == 1
    assert [cut.id for cut in calls.cuts()] == ["call1-0", *calls.ids[-3:]]
    for text in ["call0-0: bad audio", "14 of 18 turns are bad", "--max-bad-share 0.5"]:
        assert text in caplog.text
    listed = (tmp_path / "cuts.left_out.txt").read_text().splitlines()
    assert [line.split()[0] for line in listed] == [*calls.ids[:3], *calls.ids[4:-3]]
    for text in ["ends at 1.500 s", "16000 Hz, its manifest says 8000", "1 channels"]:
        assert text in "\n".join(listed)
    script.main(calls.args("--max-bad-share", "0.8"))  # status 0 below the threshold


def test_repaired_audio_is_taken_on_the_next_run(script, calls):
    good = (calls.folder / "call1.wav").read_bytes()
    (calls.folder / "call1.wav").write_bytes(good[:100])
    with pytest.raises(SystemExit):
        script.main(calls.args())
    (calls.folder / "call1.wav").write_bytes(good)
    extraction._file_state.cache_clear()  # another process, as a user's second run is
    from icefall_ctx.features import audio

    audio._read_header.cache_clear()
    script.main(calls.args())
    assert [cut.id for cut in calls.cuts()] == calls.ids
    assert not (calls.folder / "cuts.left_out.txt").exists()


def test_second_run_computes_nothing_and_changed_options_everything(script, calls, monkeypatch):
    script.main(calls.args())
    first = [cut.load_features() for cut in calls.cuts()]
    monkeypatch.setattr(FbankPitch, "extract", None)  # computing would fail
    script.main(calls.args("--stats", str(calls.folder / "stats.json")))
    assert FeatureStats.load(calls.folder / "stats.json").count == sum(map(len, first))
    with pytest.raises(TypeError):
        script.main(calls.args("--num-mel-bins", "40"))


def test_killed_run_continues(calls, tmp_path):
    calls = Calls(tmp_path, num_calls=250)
    command = [sys.executable, str(SCRIPT), *calls.args()]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    storage = tmp_path / "cuts_feats"
    while process.poll() is None and not list(storage.glob("*.json")):
        time.sleep(0.02)
    process.kill()
    process.wait()
    done = {path: path.stat().st_mtime_ns for path in storage.glob("*.json")}
    assert done and not (tmp_path / "cuts.jsonl.gz").exists()
    subprocess.run(command, check=True, capture_output=True)
    assert [cut.id for cut in calls.cuts()] == calls.ids
    assert {path: path.stat().st_mtime_ns for path in done} == done
    validate(CutSet.from_cuts(calls.cuts()), read_data=True)


@pytest.mark.parametrize(
    "option, value, status",
    [
        ("--recordings", "nowhere.jsonl.gz", 2),
        ("--supervisions", str(SCRIPT), 2),
        ("--output", "/proc/nowhere/cuts.jsonl.gz", 2),
        ("--output", "cuts.txt", 2),
        ("--backend", "fast", 2),
        ("--pitch", "maybe", 2),
        ("--sampling-rate", "-1", 2),
        ("--num-mel-bins", "0", 2),
        ("--num-jobs", "0", 2),
        ("--max-bad-share", "nan", 2),
    ],
)
def test_wrong_options_end_with_one_line(script, calls, capsys, option, value, status):
    try:
        script.main(calls.args(option, value))
    except InputError as error:
        assert "\n" not in str(error)
    except SystemExit as error:
        assert error.code == status
        assert option in capsys.readouterr().err
    else:
        pytest.fail(f"{option} {value} was taken")


def test_a_full_disk_is_no_bad_audio(script, calls):
    """A limit on file sizes stands in for it: nothing is written, no turn is lost silently."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *calls.args("--max-bad-share", "1")],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000)),
    )
    assert done.returncode == 2 and "file sizes" in done.stderr and "bad audio" not in done.stderr
    assert not (calls.folder / "cuts.jsonl.gz").exists()
    script.main(calls.args())
    assert [cut.id for cut in calls.cuts()] == calls.ids
