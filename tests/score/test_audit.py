"""The audit's figures against sums by hand."""

import json
import math

import pytest

from icefall_ctx.errors import InputError
from icefall_ctx.score.audit import audit, audit_text
from icefall_ctx.score.wer import Utterance


def outputs(wrong, calls=6, turns=4):
    """Ten words a turn; ``wrong(call, turn)`` of them are substituted."""
    return [
        Utterance(
            f"c{call}-{turn}",
            ["w"] * 10,
            ["x"] * wrong(call, turn) + ["w"] * (10 - wrong(call, turn)),
            f"c{call}",
            side="AB"[turn % 2],
            turn=turn,
        )
        for call in range(calls)
        for turn in range(turns)
    ]


DECODED = {
    "none": outputs(lambda call, turn: 4 if turn % 2 else 1),
    "hyp": outputs(lambda call, turn: 2 if turn % 2 else 1),
    "ref": outputs(lambda call, turn: 1 if turn % 2 else 1),
    "shuffled": outputs(lambda call, turn: 5 if turn % 2 else 1),
    "baseline": outputs(lambda call, turn: 3 + (call == 0)),
}


def test_rates_differences_and_verdicts():
    result = audit(DECODED, name="test", resamples=500)
    assert [cell.counts.rate for cell in result.overall.values()] == pytest.approx(
        [19 / 60, 0.25, 0.15, 0.10, 0.30]
    )
    assert list(result.cells) == [
        ("all", "all"),
        ("side", "A"),
        ("side", "B"),
        *(("turn", t) for t in ("0", "1", "2", "3-4")),
    ]
    gain = result.overall["hyp"].against["none"]
    assert gain.difference == pytest.approx(-0.10)
    assert gain.interval[:2] == pytest.approx((-0.10, -0.10))  # every conversation gains alike
    assert gain.p_value == pytest.approx(2 / 501)
    same = result.cells["side", "A"]["hyp"].against["none"]
    assert (same.difference, same.p_value) == (0.0, 1.0)
    varied = result.overall["baseline"].interval
    assert varied.low < 19 / 60 < varied.high
    assert result.lean == pytest.approx(0.30 / 0.25 - 1)
    assert result.leans_too_much
    assert result.kept == pytest.approx(0.10 / 0.15)
    text = audit_text(result)
    assert "shuffled against none: +20.0 % relative (A +0.0 %, B +25.0 %)" in text
    assert "leans on its history too much" in text and "keep 67 %" in text
    assert "hyp against baseline: -52.6 % relative" in text


def test_limit_of_three_percent():
    none = outputs(lambda call, turn: 5, calls=5, turns=4)  # 100 errors
    for more, too_much in ((3, False), (4, True)):
        shuffled = outputs(lambda call, turn: 5 + (call == 0 and turn < more), calls=5, turns=4)
        result = audit({"none": none, "shuffled": shuffled}, resamples=100)
        assert result.lean == pytest.approx(more / 100)
        assert result.leans_too_much == too_much


def test_what_is_not_defined_is_left_out():
    silent = [Utterance("a", [], ["x"], "c"), Utterance("b", [], [], "c")]
    result = audit({"none": silent, "hyp": silent, "ref": silent}, resamples=100)
    assert math.isinf(result.overall["none"].counts.rate)
    assert result.lean is None and result.kept is None and not result.leans_too_much
    assert "n/a" in audit_text(result)
    json.dumps(result.to_dict(), allow_nan=False)
    one = audit({"hyp": DECODED["hyp"]}, resamples=100)
    assert "against" not in audit_text(one) and list(one.overall) == ["hyp"]


def test_other_utterances_are_refused():
    with pytest.raises(InputError, match="different references|only in"):
        audit({"none": DECODED["none"], "hyp": DECODED["hyp"][:-1]}, resamples=100)
