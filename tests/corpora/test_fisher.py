import pytest
from make_swbd import make_fisher

from icefall_ctx.corpora.fisher import fisher_calls, write_fisher_text
from icefall_ctx.errors import InputError, ProblemLog


def test_turns_in_time_order_and_calls_apart(tmp_path):
    expected = make_fisher(tmp_path)
    root = tmp_path / "LDC2004T19"
    assert [[t.text for t in call] for call in fisher_calls([root], ProblemLog())] == expected
    assert write_fisher_text([root, root], tmp_path / "lm.txt") == 4
    text = (tmp_path / "lm.txt").read_text()
    assert text == "and i generally prefer\nhi there\n\nand i generally prefer\nhi there\n"


def test_bad_line_is_counted(tmp_path):
    make_fisher(tmp_path)
    path = next((tmp_path / "LDC2004T19").rglob("trans/000/*.txt"))
    path.write_text(path.read_text() + "oops\n")
    problems = ProblemLog()
    assert len(list(fisher_calls([tmp_path], problems))) == 1
    assert [p.place for p in problems.problems] == [f"{path}:9"]


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match="no Fisher transcript"):
        write_fisher_text([tmp_path], tmp_path / "out.txt")
