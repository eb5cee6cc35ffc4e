"""MagicData-RAMC and Datatang: one line format, two layouts."""

import pytest
from checks import check_parts, turns_of
from make_dialog import make_datatang_dialog, make_magicdata_ramc

from icefall_ctx.corpora.bracketed import read_timed_lines
from icefall_ctx.corpora.datatang_dialog import prepare_datatang_dialog
from icefall_ctx.corpora.magicdata_ramc import prepare_magicdata_ramc
from icefall_ctx.errors import InputError, ProblemLog


def test_ramc(tmp_path):
    expected = make_magicdata_ramc(tmp_path)
    parts = prepare_magicdata_ramc(tmp_path / "MagicData-RAMC")
    check_parts(parts, expected)
    assert {part: len(m["recordings"]) for part, m in parts.items()} == dict(train=2, dev=1, test=1)
    assert {s.gender for s in parts["train"]["supervisions"]} == {"female"}


def test_ramc_without_its_partition(tmp_path):
    make_magicdata_ramc(tmp_path)
    next(tmp_path.rglob("dev.tsv")).unlink()
    with pytest.raises(InputError, match="no dev.tsv"):
        prepare_magicdata_ramc(tmp_path)


def test_ramc_call_in_no_part(tmp_path):
    expected = make_magicdata_ramc(tmp_path)
    next(tmp_path.rglob("dev.tsv")).write_text("UTTRANS_ID\n")
    problems = ProblemLog()
    found = turns_of(prepare_magicdata_ramc(tmp_path, problems=problems))
    assert problems.counts()["call in no part"] == 1
    assert len(found) == len(expected) * 3 // 4


def test_datatang_two_channels(tmp_path):
    expected = make_datatang_dialog(tmp_path)
    parts = prepare_datatang_dialog(tmp_path / "datatang")
    check_parts(parts, expected)
    assert sorted(parts) == ["dev", "test", "train"]


def test_third_speaker_has_no_channel(tmp_path):
    make_datatang_dialog(tmp_path)
    path = sorted(tmp_path.rglob("*.txt"))[0]
    path.write_bytes(path.read_bytes() + "[4.6,4.9]\tS999\t男\t喂\n".encode("gb18030"))
    problems = ProblemLog()
    prepare_datatang_dialog(tmp_path, problems=problems)
    assert problems.counts()["no such channel"] == 1


@pytest.mark.parametrize(
    "line, speaker, text",
    [
        ("[1.0,2.5]\tG1\t女,北京\t你好 世界", "G1", "你好 世界"),
        ("[ 1.0 , 2.5 ]\tG1\t你好", "G1", "你好"),
        ("[1.0,2.5] G1\tmale\t", "G1", ""),
    ],
)
def test_line(tmp_path, line, speaker, text):
    path = tmp_path / "a.txt"
    path.write_text(line, encoding="utf-8")
    (found,) = read_timed_lines(path, ProblemLog())
    assert (found.start, found.end, found.speaker, found.text) == (1.0, 2.5, speaker, text)


@pytest.mark.parametrize(
    "line", ["[1.0]\tG1\t女\tx", "1.0,2.0\tG1\t女\tx", "[a,b]\tG1\t女\tx", "[1,2]\tG1"]
)
def test_bad_line(tmp_path, line):
    path = tmp_path / "a.txt"
    path.write_text("\n" + line, encoding="utf-8")
    problems = ProblemLog()
    assert list(read_timed_lines(path, problems)) == []
    assert [p.place for p in problems.problems] == [f"{path}:2"]
