import pytest
from checks import check_parts, turns_of
from make_hkust import make_hkust

from icefall_ctx.corpora.hkust import clean_hkust_text, prepare_hkust
from icefall_ctx.errors import InputError, ProblemLog


def prepare(root, **kwargs):
    return prepare_hkust(root / "LDC2005S15", root / "LDC2005T32", **kwargs)


def test_every_turn_with_its_side_speaker_and_part(tmp_path):
    expected = make_hkust(tmp_path, train_calls=2, dev_calls=1)
    problems = ProblemLog()
    parts = prepare(tmp_path, problems=problems)
    check_parts(parts, expected)
    assert {part: len(m["recordings"]) for part, m in parts.items()} == {"dev": 1, "train": 2}
    assert problems.counts() == {"no speech in the text": 3}  # {breath}, once a call


def test_the_first_calls_of_the_training_set_are_for_choosing_checkpoints(tmp_path):
    expected = make_hkust(tmp_path, train_calls=3, dev_calls=1)
    parts = prepare(tmp_path, num_valid_calls=1)
    check_parts(parts, expected)
    first = min(turn.recording for turn in expected)
    assert list(parts["valid"]["recordings"].ids) == [first]
    assert {part: len(m["recordings"]) for part, m in parts.items()} == {
        "dev": 1, "train": 2, "valid": 1,
    }  # fmt: skip


def test_turns_overlap_on_two_channels(tmp_path):
    make_hkust(tmp_path, train_calls=1, dev_calls=0)
    turns = list(prepare(tmp_path)["train"]["supervisions"])
    assert turns[1].start < turns[0].end
    assert (turns[0].channel, turns[1].channel) == (0, 1)
    assert turns[0].speaker != turns[1].speaker


def test_one_folder_for_both_releases_and_utf8(tmp_path):
    expected = make_hkust(tmp_path)
    for path in tmp_path.rglob("*.txt"):
        path.write_text(path.read_bytes().decode("gb18030"), encoding="utf-8")
    assert turns_of(prepare_hkust(tmp_path)) == sorted(expected)


def test_bad_lines_are_counted_and_strict_stops_at_the_first(tmp_path):
    make_hkust(tmp_path, train_calls=1, dev_calls=0)
    path = next(tmp_path.rglob("*.txt"))
    data = path.read_bytes()
    path.write_bytes(data + b"\r\n5.0 x A: oops\r\n\xff\xff 1 A: no\r\n5.7 9.9 B: late\r\n")
    problems = ProblemLog()
    good = len(prepare(tmp_path, problems=problems)["train"]["supervisions"])
    assert good == 5
    counts = problems.counts()
    assert counts["not 'start end A: text'"] == 1
    assert counts["not gb18030 text"] == 1
    assert counts["outside the recording"] == 1
    place = next(p.place for p in problems.problems if p.kind.startswith("not 'start"))
    assert place == f"{path}:15"
    with pytest.raises(InputError, match=f"{path.name}:"):
        prepare(tmp_path, problems=ProblemLog(strict=True))


def test_missing_and_truncated_audio_leave_the_other_calls(tmp_path):
    expected = make_hkust(tmp_path, train_calls=3, dev_calls=1)
    first, second, *_ = sorted(tmp_path.rglob("*.sph"))
    first.unlink()
    second.write_bytes(second.read_bytes()[:5000])
    problems = ProblemLog()
    turns = turns_of(prepare(tmp_path, problems=problems))
    gone = (first.stem, second.stem)
    assert turns == sorted(turn for turn in expected if turn.recording not in gone)
    assert problems.counts()["unusable audio"] == 1
    assert {p.detail for p in problems.problems if p.kind == "turn without audio"} == set(gone)


def test_nothing_usable_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        prepare_hkust(tmp_path / "nowhere")
    with pytest.raises(InputError, match="not one usable turn"):
        prepare_hkust(tmp_path)


@pytest.mark.parametrize(
    "raw, clean",
    [
        ('<foreign language="English"> OK </foreign>好', "OK 好"),
        ("((听不清)) {cough} 对，对。", "听不清 对 对"),
        ("{laugh}", ""),
        ("A 股 跌 了", "A 股 跌 了"),
    ],
)
def test_markup(raw, clean):
    assert clean_hkust_text(raw) == clean


def test_manifests_are_written(tmp_path):
    make_hkust(tmp_path)
    prepare(tmp_path, output_dir=tmp_path / "manifests")
    names = sorted(path.name for path in (tmp_path / "manifests").iterdir())
    assert names == [
        f"hkust_{kind}_{part}.jsonl.gz"
        for kind in ("recordings", "supervisions")
        for part in ("dev", "train")
    ]
