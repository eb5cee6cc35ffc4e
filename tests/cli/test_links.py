"""The commands on files, and Lhotse's own commands on what they write."""

import gzip
import json

import lhotse
import pytest
from click.testing import CliRunner
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio import AudioSource
from lhotse.bin.modes import cli as lhotse_cli

from icefall_ctx.cli import cli
from icefall_ctx.errors import InputError

RATE = 8000


def call_recording(name):
    return Recording(
        id=name,
        sources=[AudioSource(type="file", channels=[0, 1], source=f"{name}.wav")],
        sampling_rate=RATE,
        num_samples=RATE * 10,
        duration=10.0,
    )


def call_turns(name):
    return [
        SupervisionSegment(
            id=f"{name}-{i}",
            recording_id=name,
            start=2.0 * i,
            duration=1.5,
            channel=i % 2,
            text=f"turn {i}",
            speaker=f"{name}-{'AB'[i % 2]}",
        )
        for i in range(5)
    ]


@pytest.fixture(params=["jsonl", "jsonl.gz"])
def folder(request, tmp_path):
    """Recordings, supervisions and whole-call cuts of six calls, all unlinked but the cuts."""
    names = [f"call{i}" for i in range(6)]
    suffix = request.param
    RecordingSet.from_recordings(map(call_recording, names)).to_file(
        tmp_path / f"recordings_all.{suffix}"
    )
    SupervisionSet.from_segments(t for name in names for t in call_turns(name)).to_file(
        tmp_path / f"supervisions_all.{suffix}"
    )
    (tmp_path / "suffix").write_text(suffix)
    return tmp_path


def path(folder, name):
    return str(folder / f"{name}.{(folder / 'suffix').read_text()}")


def run(*args, code=0):
    result = CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def refused(*args):
    """The one line of an InputError."""
    with pytest.raises(InputError) as error:
        CliRunner().invoke(cli, [str(arg) for arg in args], catch_exceptions=False)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture
def linked(folder):
    target = path(folder, "linked")
    output = run("link", path(folder, "supervisions_all"), target)
    assert "30 turns in 6 conversations" in output
    return target


def write_cuts(linked, target):
    """One cut a turn, as after trimming."""
    CutSet.from_cuts(
        MonoCut(
            id=f"cut-{turn.id}",
            start=turn.start,
            duration=turn.duration,
            channel=turn.channel,
            recording=call_recording(turn.recording_id),
            supervisions=[turn.with_offset(-turn.start)],
        )
        for turn in SupervisionSet.from_file(linked)
    ).to_file(target)


def test_link_writes_the_links(linked):
    turns = {turn.id: turn for turn in SupervisionSet.from_file(linked)}
    assert turns["call3-2"].custom == {
        "utt_id": "call3-2",
        "conv_id": "call3",
        "turn": 2,
        "prev": ["call3-0", "call3-1"],
    }
    assert turns["call3-2"].text == "turn 2" and turns["call3-2"].channel == 0


def test_link_options(folder):
    target = path(folder, "linked")
    rule = ["--conversation", r"id-pattern:(call\d)-", "--max-gap", "0.4", "--num-prev", "1"]
    assert "30 conversations" in run("link", path(folder, "supervisions_all"), target, *rule)
    assert "linked already" in refused("link", target, target)
    output = run("link", target, target, "--relink", "--conversation", "recording")
    assert "6 conversations" in output


def test_link_leaves_the_old_file_after_an_error(folder, linked):
    before = open(linked, "rb").read()
    assert "nothing" in refused(
        "link", path(folder, "supervisions_all"), linked, "--conversation", "field:nothing"
    )
    assert open(linked, "rb").read() == before
    assert not list(folder.glob(".tmp*"))


def test_wrong_files_end_with_one_line(folder, linked):
    supervisions, recordings = path(folder, "supervisions_all"), path(folder, "recordings_all")
    assert "holds recordings" in refused("link", recordings, linked)
    assert "no such file" in refused("link", folder / "none.jsonl", linked)
    assert "does not end in" in refused("link", supervisions, folder / "out.txt")
    assert "does not end in" in refused("describe", folder / "missing")
    # a folder is no manifest either: click says so, with its usage and status 2
    assert "is a directory" in run("describe", folder, code=2)
    assert "holds recordings" in refused("describe", recordings)
    assert "holds supervisions" in refused("validate", linked, "--recordings", linked)
    assert "holds recordings" in refused("split", recordings, folder, "--parts", "2")
    assert "no conversation links" in refused("split", supervisions, folder, "--parts", "2")


@pytest.mark.parametrize(
    "content", [b"\x1f\x8b broken", b"{", b"[1]\n", b'{"id": "x"}\n', b"\xff\xfe", b'"text"\n']
)
def test_damaged_files_end_with_one_line(tmp_path, content):
    for name in ("m.jsonl", "m.jsonl.gz"):
        (tmp_path / name).write_bytes(content)
        assert f"{name}:1: no Lhotse manifest" in refused("describe", tmp_path / name)


def test_damage_further_down_names_the_line(folder, linked):
    opener = gzip.open if linked.endswith(".gz") else open
    with opener(linked, "rt") as file:
        lines = file.readlines()
    lines[3] = lines[3][:40] + "\n"
    target = path(folder, "broken")
    with opener(target, "wt") as file:
        file.writelines(lines)
    assert ":4: cannot be read" in refused("validate", target)


def test_empty_manifest(tmp_path):
    """Described as what it is; nothing succeeds at it."""
    empty, output = tmp_path / "e.jsonl", tmp_path / "l.jsonl"
    empty.write_text("")
    assert "n/a" in run("describe", empty)
    for command in (["link", empty, output], ["validate", empty]):
        with pytest.raises(InputError, match="e.jsonl: is empty"):
            run(*command)
    assert not output.exists()


def test_validate(folder, linked):
    recordings = path(folder, "recordings_all")
    assert "no problems" in run("validate", linked, "--recordings", recordings)
    turns = list(SupervisionSet.from_file(linked))
    part = path(folder, "part")
    SupervisionSet.from_segments(t for t in turns if t.id != "call2-1").to_file(part)
    output = run("validate", part, code=1)
    assert "3  dangling link: call2-2 -> call2-1, call2-3 -> call2-1" in output
    assert "no problems" in run("validate", part, "--index", linked)
    cuts = path(folder, "cuts")
    write_cuts(linked, cuts)
    assert "no problems" in run("validate", cuts)
    assert "30 problems" in run("validate", path(folder, "supervisions_all"), code=1)


def test_describe(linked):
    output = run("describe", linked)
    rows = dict(line.split("  ", 1) for line in output.splitlines())
    rows = {name.strip(): value.strip() for name, value in rows.items()}
    assert rows["turns"] == "30" and rows["conversations"] == "6" and rows["speakers"] == "12"
    assert rows["turns with history"] == "80.0 %"  # 4 of 5
    assert rows["turns per conversation"] == "median 5, 5 to 5"
    assert rows["gaps"] == "24 x, median 0.5 s, 0.5 s to 0.5 s"
    assert rows["overlaps"] == "none"
    assert rows["speech"] == "0.01 h"  # 45 s


def test_split_never_cuts_a_conversation(folder, linked):
    cuts = path(folder, "cuts_all")
    write_cuts(linked, cuts)
    out = folder / "out"
    output = run(
        *("split", linked, out, "--parts", "train:0.5,dev:0.5", "--seed", 1),
        *("--recordings", path(folder, "recordings_all"), "--cuts", cuts, "--disjoint-speakers"),
    )
    assert "train: 3 conversations, 15 turns, 6 speakers" in output
    names = sorted(p.name for p in out.iterdir())
    assert names == [
        f"{kind}_{part}.jsonl.gz"
        for kind in ("cuts", "linked", "recordings")
        for part in ("dev", "train")
    ]
    for part in ("train", "dev"):
        recordings = RecordingSet.from_file(out / f"recordings_{part}.jsonl.gz")
        turns = SupervisionSet.from_file(out / f"linked_{part}.jsonl.gz")
        split_cuts = CutSet.from_file(out / f"cuts_{part}.jsonl.gz")
        assert {t.recording_id for t in turns} == {r.id for r in recordings}
        assert {s.id for c in split_cuts for s in c.supervisions} == {t.id for t in turns}
        run(
            *("validate", out / f"linked_{part}.jsonl.gz"),
            *("--recordings", out / f"recordings_{part}.jsonl.gz"),
        )
        run("validate", out / f"cuts_{part}.jsonl.gz")


def test_split_refuses_to_overwrite_and_bad_parts(folder, linked):
    other = _copy_of(linked, folder)
    assert "overwrite" in refused(
        "split", linked, folder / "o", "--parts", "2", "--cuts", other
    )
    assert "sum to" in refused("split", linked, folder, "--parts", "a:0.5,b:0.2")


def _copy_of(linked, folder):
    (folder / "sub").mkdir()
    target = folder / "sub" / f"linked.{(folder / 'suffix').read_text()}"
    write_cuts(linked, str(target))
    return target


def run_lhotse(*args):
    result = CliRunner().invoke(lhotse_cli, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_commands_of_lhotse_work_on_what_is_written(folder, linked):
    copied = path(folder, "copied")
    run_lhotse("copy", linked, copied)
    assert list(SupervisionSet.from_file(copied)) == list(SupervisionSet.from_file(linked))
    assert "Validation failed" not in run_lhotse("validate", linked)
    lhotse.validate(SupervisionSet.from_file(linked))
    filtered = path(folder, "filtered")
    run_lhotse("filter", "duration>1.0", linked, filtered)
    assert len(SupervisionSet.from_file(filtered)) == 30
    cuts = path(folder, "cuts")
    write_cuts(linked, cuts)
    out = folder / "out"
    run("split", linked, out, "--parts", "2", "--cuts", cuts)
    assert "Cuts count" in run_lhotse("cut", "describe", out / "cuts_1.jsonl.gz")
    run_lhotse("validate", out / "cuts_1.jsonl.gz")


def test_what_is_written_is_what_lhotse_would_write(linked):
    opener = gzip.open if linked.endswith(".gz") else open
    with opener(linked, "rt") as file:
        written = [json.loads(line) for line in file]
    assert written == [turn.to_dict() for turn in SupervisionSet.from_file(linked)]
