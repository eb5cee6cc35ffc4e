import ast
import json
import re

import pytest

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.score.report import evaluate
from icefall_ctx.score.results import (
    read_transcripts,
    result_paths,
    store_transcripts,
    write_error_stats,
    write_summary,
)
from icefall_ctx.score.wer import Utterance

UTTERANCES = [
    Utterance("call:1-b", ["IT'S", "a", '"quote"'], ["IT'S", "the"], conv_id="call"),
    Utterance("call:1-a", ["你", "好"], [], conv_id="call"),
    Utterance("gone", ["x"], None),
]


def test_recogs_round_trip_and_format(tmp_path):
    paths = result_paths(tmp_path, "test", "beam-5")
    assert paths.recogs.name == "recogs-test-beam-5.txt"
    store_transcripts(paths.recogs, UTTERANCES)
    lines = paths.recogs.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "call:1-a:\tref=['你', '好']"
    assert lines[1] == "call:1-a:\thyp=[]"
    assert lines[-1] == "gone:\thyp=None"
    back = {u.utt_id: u for u in read_transcripts(paths.recogs)}
    for utterance in UTTERANCES:
        assert (back[utterance.utt_id].ref, back[utterance.utt_id].hyp) == (
            utterance.ref,
            utterance.hyp,
        )


def test_bad_recogs_lines_are_counted_with_their_place(tmp_path):
    path = tmp_path / "recogs.txt"
    path.write_text(
        "a:\tref=['x']\na:\thyp=['x']\nnonsense\nb:\tref=['y'\nc:\thyp=['z']\nd:\tref=['w']\n"
        "a:\thyp=['again']\ne:\tref=__import__('os')\n"
    )
    log = ProblemLog()
    assert [(u.utt_id, u.hyp) for u in read_transcripts(path, log)] == [("a", ["x"]), ("d", None)]
    assert log.counts()["not a recogs line"] == 3
    assert log.counts()["utterance without a ref line"] == 1
    assert log.counts()["utterance without a hyp line"] == 1
    assert log.counts()["repeated utterance"] == 1
    assert any(problem.place == f"{path}:3" for problem in log.problems)
    with pytest.raises(InputError, match=":3"):
        read_transcripts(path, ProblemLog(strict=True))


def test_error_file_counts(tmp_path):
    path = tmp_path / "errs.txt"
    scores = write_error_stats(path, UTTERANCES)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("%WER = 83.33\n")
    assert "Errors: 0 insertions, 4 deletions, 1 substitutions, over 6 reference words" in text
    assert "gone:\t(x->*) [no output]" in text
    table = text.split("\nPER-WORD STATS:")[1].strip().splitlines()[1:]
    rows = {line.split()[0]: list(map(int, line.split()[1:])) for line in table}
    assert rows["IT'S"] == [1, 0, 1, 1]
    assert sum(row[2] for row in rows.values()) == scores.total.ref_words == 6
    assert sum(row[0] for row in rows.values()) == scores.total.correct


def test_summary_lists_best_first(tmp_path):
    write_summary(tmp_path / "s.txt", {"beam": 12.345, "greedy": 15.0, "lm": 11.0})
    expected = "settings\tWER\nlm\t11.00\nbeam\t12.35\ngreedy\t15.00\n"
    assert (tmp_path / "s.txt").read_text() == expected


def test_report_text_and_json_agree():
    report = evaluate(UTTERANCES, name="demo", bootstrap=20)
    text, plain = report.text(), json.loads(report.to_json())
    assert "demo WER, raw: 83.33 %" in text and "1 without output" in text
    assert plain["raw"]["total"]["errors"] == 5 and plain["rules"] is None
    assert re.search(r"call\s+2\s+5\s+0\s+3\s+1\s+80\.00", text)


def test_report_of_nothing_says_not_available():
    report = evaluate([Utterance("u", [], [])], bootstrap=10)
    assert "raw: n/a (ins 0" in report.text()
    assert json.loads(report.to_json())["raw"]["total"]["rate"] is None
    assert json.loads(evaluate([]).to_json())["raw"]["total"]["utterances"] == 0


def test_units():
    utterance = [Utterance("u", ["好的", "ok", "bye"], ["好", "地", "okay", "bye"])]
    assert evaluate(utterance, unit="mixed").raw.total.ref_words == 4
    assert evaluate(utterance, unit="mixed").raw.total.errors == 2
    assert evaluate(utterance, unit="char").raw.total.ref_words == 7
    assert evaluate(utterance, unit="char").raw.total.errors == 3


def test_recogs_values_are_python_lists(tmp_path):
    """icefall's own readers evaluate what follows the equals sign."""
    store_transcripts(tmp_path / "r.txt", UTTERANCES[:2])
    for line in (tmp_path / "r.txt").read_text(encoding="utf-8").splitlines():
        assert isinstance(ast.literal_eval(line.split("=", 1)[1]), list)
