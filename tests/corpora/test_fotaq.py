import importlib.util
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from icefall_ctx.corpora import fotaq
from icefall_ctx.corpora.fotaq_compare import compare, read_expected
from icefall_ctx.corpora.fotaq_words import new_word_parts, pick_new_words
from icefall_ctx.corpora.queen import QueenFile, download_package, unpack_package
from icefall_ctx.corpora.queen_text import Tree, read_game_text, split_segments
from icefall_ctx.errors import InputError, ProblemLog

HERE = Path(__file__).parent


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fixture = load("queen_fixture", HERE / "queen_fixture.py")


@pytest.fixture(scope="module")
def queen(tmp_path_factory) -> Path:
    return fixture.build(tmp_path_factory.mktemp("queen") / "queen.1c")


@pytest.fixture(scope="module")
def text(queen):
    return read_game_text(QueenFile(queen))


def test_segments_between_commands():
    assert split_segments("*FLHey!*01") == [(2, "Hey!")]
    assert split_segments("One*16*02 two ") == [(1, "One"), (3, "two")]
    assert split_segments("a*XY02(123,045)b*") == [(1, "a"), (2, "b")]
    assert split_segments("") == [] and split_segments("*") == []


def test_cutscene_gives_speakers_and_clip_names(text):
    turns = text.cutscenes["CUT_C1A"]
    assert [(line.clip, line.speaker, line.text) for turn in turns for line in turn.lines] == [
        ("C1A__012", "JOE", "Hello Floda!"),
        ("C1A__013", "JOE", "How are you?"),
        ("C1A__031", "BOB", "I see Floda."),  # the object "Trader Bob" is the person BOB
        ("C1A__041", "NARR-2", "(sigh)"),
    ]


def test_tree_in_level_order(text):
    lines = [line for turn in text.trees["PRIN1"].level_order() for line in turn.lines]
    assert [line.clip for line in lines] == (
        "04SSSSJ1 040001P2 040006J1 040007J1 040006P1 040006P2 04001EJ1 040007P1 040063P1 "
        "04XXXXP1 04XXXXJ1"
    ).split()
    assert {line.speaker for line in lines} == {"JOE", "PRIN"}


def test_remarks_are_numbered_from_1_and_41(text):
    assert text.remarks["DESC"][0].lines[0].clip == "JOE00411"
    assert text.remarks["RESP"][0].lines[0].clip == "JOE00011"


def test_paths_say_every_line_once_and_follow_the_tree(text):
    tree: Tree = text.trees["PRIN1"]
    seen = set()
    for seed in range(8):
        paths = fotaq.sample_paths(tree, np.random.default_rng(seed))
        said = [turn for path in paths for turn in path]
        assert sorted(said) == sorted(tree.level_order())
        assert paths[0][:2] == [tree.opening[0], tree.person[1]]
        for path in paths[:-1]:
            for turn, following in zip(path, path[1:]):
                key = int(turn.key[:4], 16) if turn.key.endswith("J") and "S" not in turn.key else 0
                if key in tree.person:
                    assert following == tree.person[key]  # choice -> its reply
        seen.add(tuple(turn.key for turn in paths[0]))
    assert len(seen) == 2


@pytest.mark.parametrize(
    "written, plain",
    [
        ("Don't 'quote' me, \"Joe\"...", "DON'T QUOTE ME JOE"),
        ("24 Hours & (sigh) more", "TWENTY FOUR HOURS AND MORE"),
        ("the 1940's at 19:00", "THE NINETEEN FORTIES AT NINETEEN HUNDRED"),
        ("Model X7, 2B", "MODEL X SEVEN TWO B"),
        ("<sneeze>", ""),
        ("@#^_!", ""),
    ],
)
def test_plain_text(written, plain):
    assert fotaq.plain_text(written) == plain


def test_manifests_and_resuming(queen, tmp_path):
    problems = ProblemLog()
    parts = fotaq.prepare_fotaq(
        queen, tmp_path / "m", audio_dir=tmp_path / "a", problems=problems, new_words=5
    )
    assert problems.counts() == {"no words": 1}
    supervisions = [s for part in ("train", "dev", "test") for s in parts[part]["supervisions"]]
    assert len(supervisions) == len({s.id for s in supervisions}) == len(fixture.CLIPS) - 2
    groups = {}
    for part in ("train", "dev", "test"):
        lengths = {r.id: r for r in parts[part]["recordings"]}
        clock = {}
        for s in parts[part]["supervisions"]:
            recording = lengths[s.recording_id]
            assert recording.load_audio().shape == (1, recording.num_samples)
            assert s.duration * fotaq.RATE == recording.num_samples
            groups.setdefault(s.custom["conv_id"].split("-")[0], set()).add(part)
            assert s.custom["conv_start"] == pytest.approx(clock.get(s.custom["conv_id"], 0.0))
            clock[s.custom["conv_id"]] = s.custom["conv_start"] + s.duration + fotaq.PAUSE
    assert groups["PRIN1"] and all(
        len(parts_of) == 1 for name, parts_of in groups.items() if name not in ("DESC", "RESP")
    )
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    next(iter(files)).unlink()
    again = fotaq.prepare_fotaq(queen, audio_dir=tmp_path / "a", new_words=5)
    changed = [p for p, time in files.items() if p.stat().st_mtime_ns != time]
    assert len(changed) == 1
    assert [s.to_dict() for s in again["train"]["supervisions"]] == [
        s.to_dict() for s in parts["train"]["supervisions"]
    ]
    clip = next(s for s in supervisions if s.id == "fotaq-C1A__013")
    assert clip.duration == pytest.approx(0.6, abs=0.15)  # MP3 pads its ends


def test_damaged_clip_is_left_out_and_named(tmp_path):
    path = fixture.build(tmp_path / "queen.1c")
    data = bytearray(path.read_bytes())
    row = data.index(b"040007J1.SB")
    offset, size = (int.from_bytes(data[row + k : row + k + 4], "big") for k in (13, 17))
    data[offset : offset + size] = b"\0" * size
    path.write_bytes(data)
    problems = ProblemLog()
    parts = fotaq.prepare_fotaq(path, audio_dir=tmp_path / "a", problems=problems)
    assert problems.counts()["damaged"] == 1
    ids = {s.id for p in parts.values() for s in p["supervisions"]}
    assert "fotaq-040007J1" not in ids and "fotaq-040006J1" in ids


def make_parts(**texts):
    from lhotse import RecordingSet, SupervisionSegment, SupervisionSet

    parts = {}
    for part, lines in texts.items():
        segments = [
            SupervisionSegment(
                f"{part}{i}", f"{part}{i}", 0.0, 1.0, text=fotaq.plain_text(line),
                speaker=f"S{i % 2}", custom={"original": line},
            )  # fmt: skip
            for i, line in enumerate(lines)
        ]
        recordings = [fotaq.Recording(s.id, [], 8000, 8000, 1.0) for s in segments]
        parts[part] = {
            "recordings": RecordingSet.from_recordings(recordings),
            "supervisions": SupervisionSet.from_segments(segments),
        }
    return parts


def test_new_words_leave_training_altogether():
    parts = make_parts(
        train=["I saw Floda.", "Go to Floda now", "That is Floda's map", "the map", "Is Bob in?"],
        dev=["that is Floda"],
        test=["we like Floda and the map", "see the map", "a map"],
    )
    assert pick_new_words(parts, 10, 0) == ["FLODA"]
    assert "MAP" in pick_new_words(parts, 10, 0, names_only=False)
    assert pick_new_words(parts, 10, 0, occurrences=range(9, 31)) == []
    new = new_word_parts(parts, ["FLODA"])
    assert [s.id for s in new["train_nonew"]["supervisions"]] == ["train3", "train4"]
    assert [s.id for s in new["newwords"]["supervisions"]] == ["train0", "train1", "test0"]
    assert [r.id for r in new["newwords"]["recordings"]] == ["train0", "train1", "test0"]


def test_comparison_counts_what_differs(queen, tmp_path):
    rows = [
        {"id": "C1A__012", "conversation": "CUT_C1A", "kind": "cutscene", "speaker": "JOE",
         "text": "Hello Floda!"},
        {"id": "C1A__031", "conversation": "CUT_C1A", "kind": "cutscene", "speaker": "AL",
         "text": "I see Floda."},
        {"id": "NONE0001", "conversation": "x", "kind": "cutscene", "speaker": "", "text": ""},
    ]  # fmt: skip
    path = tmp_path / "expected.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    counts, details = compare(QueenFile(queen), read_expected(path))
    assert (counts["agree"], counts["missing"], counts["different speaker"]) == (1, 1, 1)
    assert counts["extra"] == len(fixture.CLIPS) - 3 and len(details) == 2 + counts["extra"]
    path.write_text('{"id": 1}\n')
    with pytest.raises(InputError, match=":1:"):
        read_expected(path)


def test_bad_files_end_with_one_line(queen, tmp_path, monkeypatch):
    bad = tmp_path / "bad.1c"
    for data in (b"", b"QTBL", b"RIFF" + b"\0" * 99, queen.read_bytes()[:400]):
        bad.write_bytes(data)
        with pytest.raises(InputError, match="bad.1c"):
            QueenFile(bad)
    with pytest.raises(InputError, match="no such file"):
        QueenFile(tmp_path / "none")
    for data in (b"", b"!<arch>\nrubbish" * 9):
        bad.write_bytes(data)
        with pytest.raises(InputError, match="Debian package"):
            unpack_package(bad, tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="apt-get is not on this machine"):
        download_package(tmp_path / "d")


def test_package_is_unpacked_without_dpkg(queen, tmp_path):
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as archive:
        archive.add(queen, "./usr/share/scummvm/game/queen.1c")
    package = tmp_path / "game.deb"
    data = b"!<arch>\n"
    for name, content in (("debian-binary", b"2.0"), ("data.tar.xz", inner.getvalue())):
        data += f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(content):<10}".encode() + b"`\n"
        data += content + b"\n" * (len(content) % 2)
    package.write_bytes(data)
    assert unpack_package(package, tmp_path / "out").read_bytes() == queen.read_bytes()
    script = load("prepare_fotaq", HERE.parents[1] / "local" / "prepare_fotaq.py")
    script.main(
        f"--package {package} --download-dir {tmp_path}/out --manifest-dir {tmp_path}/m "
        f"--audio-dir {tmp_path}/a --jobs 1".split()
    )
    assert (tmp_path / "m" / "fotaq_supervisions_train_nonew.jsonl.gz").is_file()


def test_all_expected_clips_agree(shared_data):
    """Against the true game file, where a recipe has downloaded it."""
    repo = HERE.parents[1]
    found = sorted(repo.glob("egs/fotaq/ASR/download/fotaq/queen.1c"))
    if not found:
        pytest.skip("egs/fotaq/ASR/download/fotaq/queen.1c is not there: run its prepare.sh")
    rows = read_expected(shared_data / "fotaq" / "expected.jsonl")
    assert compare(QueenFile(found[0]), rows) == ({"agree": 6587, "extra": 0}, [])
