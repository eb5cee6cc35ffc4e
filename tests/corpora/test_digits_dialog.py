import dataclasses
import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from make_fsdd import make_fsdd

from icefall_ctx.corpora import digits_dialog as digits
from icefall_ctx.errors import InputError, ProblemLog

CONFIG = digits.DigitsConfig(
    hours={"train": 0.02, "dev": 0.005, "test": 0.005, "test_unseen": 0.005}
)


@pytest.fixture(scope="module")
def fsdd(tmp_path_factory) -> Path:
    return make_fsdd(tmp_path_factory.mktemp("fsdd"))


def prepare(fsdd, folder, **options):
    options.setdefault("config", CONFIG)
    return digits.prepare_digits_dialog(fsdd, folder / "manifests", audio_dir=folder, **options)


def checksums(folder):
    return {
        str(path.relative_to(folder)): hashlib.md5(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*.flac"))
    }


def test_same_bytes_for_the_same_seed_with_any_number_of_jobs(fsdd, tmp_path):
    for name, options in (("one", {}), ("two", {"jobs": 2})):
        prepare(fsdd, tmp_path / name, **options)
    other = dataclasses.replace(CONFIG, seed=1)
    prepare(fsdd, tmp_path / "seed", config=other)
    first = checksums(tmp_path / "one")
    assert first and first == checksums(tmp_path / "two")
    assert not set(first.values()) & set(checksums(tmp_path / "seed").values())


def test_no_recording_and_no_unseen_speaker_in_two_parts(fsdd):
    recordings = digits.find_recordings(fsdd, ProblemLog(strict=True))
    parts = digits.split_recordings(recordings, ["ann", "dot"])
    used = {part: set() for part in parts}
    for part, bank in parts.items():
        for call in digits.plan_part(part, bank, Path("audio"), CONFIG):
            for turn in call.turns:
                used[part].update((r.speaker, r.digit, r.index) for r in turn.recordings)
            used[part].update((r.speaker, r.digit, r.index) for r in call.babble)
    names = list(used)
    assert names == ["train", "dev", "test", "test_unseen"]
    for i, one in enumerate(names):
        assert used[one]
        for two in names[i + 1 :]:
            assert not used[one] & used[two]
    assert {index for *_, index in used["test"]} <= set(range(10))
    assert {index for *_, index in used["dev"]} <= set(range(10, 15))
    assert {speaker for speaker, *_ in used["test_unseen"]} == {"ann", "dot"}
    for part in ("train", "dev", "test"):
        assert {speaker for speaker, *_ in used[part]} == {"bob", "cid"}


def test_manifests_agree_with_audio_and_plan(fsdd, tmp_path):
    parts = prepare(fsdd, tmp_path)
    recordings = digits.find_recordings(fsdd, ProblemLog(strict=True))
    bank = digits.split_recordings(recordings)["train"]
    plans = {c.call_id: c for c in digits.plan_part("train", bank, tmp_path, CONFIG)}
    by_call = {}
    for supervision in parts["train"]["supervisions"]:
        by_call.setdefault(supervision.recording_id, []).append(supervision)
    assert set(by_call) == set(plans)
    for recording in parts["train"]["recordings"]:
        assert recording.load_audio().shape == (2, recording.num_samples)
        turns, plan = by_call[recording.id], plans[recording.id]
        assert len({turn.speaker for turn in turns if turn.channel == 0}) == 1
        assert len({(turn.channel, turn.speaker) for turn in turns}) == 2
        assert len({turn.speaker for turn in turns}) == 2
        for turn, planned in zip(turns, plan.turns):
            said = [digits.WORDS[recording.digit] for recording in planned.recordings]
            assert turn.text.split() == said
            pauses = sum(planned.pauses)
            spoken = sum(sf.info(str(r.path)).frames for r in planned.recordings)
            assert round(turn.duration * digits.RATE) == spoken + pauses
            assert turn.end <= recording.duration
            assert turn.custom["side"] == digits.SIDES[turn.channel]
            low, high = (15, 25) if turn.channel == 0 else (-10, -2)
            assert low <= turn.custom["snr"] <= high
    hours = sum(s.duration for s in parts["train"]["supervisions"]) / 3600
    assert 0.02 <= hours < 0.035


def test_read_backs_repeat_the_group_but_for_corrections():
    rng = np.random.default_rng(0)
    config = digits.DigitsConfig()
    repeats = wrong = 0
    for _ in range(200):
        turns = digits.draw_exchanges(rng, config)
        for (side, group), (next_side, reply) in zip(turns, turns[1:]):
            if (side, next_side) == (0, 1):
                repeats += group == reply
                wrong += group != reply
                assert sum(a != b for a, b in zip(group, reply)) <= 1
        assert turns[-1][0] == 1 and turns[-1][1] == turns[-2][1]
    assert wrong / (wrong + repeats) == pytest.approx(config.misread, abs=0.04)


def test_bad_files_are_named_and_the_others_used(fsdd, tmp_path):
    folder = tmp_path / "recordings"
    folder.mkdir()
    for path in (fsdd / "recordings").iterdir():
        (folder / path.name).symlink_to(path)
    for name in ("0_ann_0.wav", "1_ann_0.wav", "2_ann_0.wav"):
        (folder / name).unlink()
    (folder / "0_ann_0.wav").write_bytes(b"RIFF")
    sf.write(folder / "1_ann_0.wav", np.ones(999) * 0.1, 16000)
    sf.write(folder / "2_ann_0.wav", np.zeros(999), 8000)
    sf.write(folder / "readme.wav", np.ones(999) * 0.1, 8000)
    problems = ProblemLog()
    found = digits.find_recordings(tmp_path, problems)
    assert problems.counts() == {"unreadable": 1, "format": 1, "silent": 1, "name": 1}
    assert len(found) == 4 * 170 - 3


@pytest.mark.parametrize(
    "speakers, message", [(["eve", "ann"], "eve"), (["ann"], "two"), (["ann", "bob", "cid"], "two")]
)
def test_impossible_test_speakers_are_refused(fsdd, speakers, message):
    recordings = digits.find_recordings(fsdd, ProblemLog(strict=True))
    with pytest.raises(InputError, match=message):
        digits.split_recordings(recordings, speakers)


def test_missing_folder_empty_folder_missing_digit(fsdd, tmp_path):
    with pytest.raises(InputError, match="--fsdd-dir"):
        digits.find_recordings(tmp_path / "nowhere", ProblemLog())
    with pytest.raises(InputError, match="no .*wav"):
        digits.find_recordings(tmp_path, ProblemLog())
    recordings = digits.find_recordings(fsdd, ProblemLog(strict=True))
    few = [r for r in recordings if (r.speaker, r.digit) != ("bob", 7) or r.index > 9]
    with pytest.raises(InputError, match="test: no usable recording of 7_bob"):
        digits.split_recordings(few)


def test_script_writes_manifests_and_counts(fsdd, tmp_path, capsys):
    script = Path(__file__).parents[2] / "local" / "prepare_digits_dialog.py"
    spec = importlib.util.spec_from_file_location("prepare_digits_dialog", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(
        f"--fsdd-dir {fsdd} --manifest-dir {tmp_path}/m --audio-dir {tmp_path}/a --jobs 1 "
        "--train-hours 0.01 --test-hours 0.003 --readback-snr=-5,0 --test-speakers ann,bob".split()
    )
    assert "test_unseen" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "m").iterdir())
    assert names == sorted(
        f"digits_dialog_{kind}_{part}.jsonl.gz"
        for kind in ("recordings", "supervisions")
        for part in ("train", "dev", "test", "test_unseen")
    )
    for wrong in ("--readback-snr=loud", "--readback-snr=5,1", "--train-hours=-1", "--test-hour=x"):
        with pytest.raises(SystemExit):
            module.main([wrong])
