"""Comparisons over seeds: means by hand, intervals against scipy and the normal approximation."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from icefall_ctx.errors import InputError
from icefall_ctx.score.bootstrap import paired_difference
from icefall_ctx.score.compare import Run, System, compare, comparison_text
from icefall_ctx.score.compare_picture import plot_curve
from icefall_ctx.score.grouping import SnrBins, group
from icefall_ctx.score.wer import Utterance

WORDS = 10


def outputs(wrong, calls=6, turns=4):
    """Ten words a turn, ``wrong(call, turn)`` of them substituted; the SNR is the turn's."""
    return [
        Utterance(
            f"c{call}-{turn}",
            ["w"] * WORDS,
            ["x"] * wrong(call, turn) + ["w"] * (WORDS - wrong(call, turn)),
            f"c{call}",
            side="AB"[turn % 2],
            turn=turn,
            snr=float(turn),
        )
        for call in range(calls)
        for turn in range(turns)
    ]


def system(name, *seeds):
    return System(name, [Run(f"{name}{k}", outputs(wrong)) for k, wrong in enumerate(seeds)])


BASE = system("base", lambda c, t: 4, lambda c, t: 6)
BETTER = system("better", *(lambda c, t, k=k: 5 if t % 2 == 0 else k for k in (1, 2, 3)))


def compared(systems=(BASE, BETTER), kind="side", bins=None, **options):
    groups = group(systems[0].runs[0].utterances, kind, bins)
    return compare(systems, groups, resamples=500, **options)


def test_means_spread_and_differences():
    result = compared(name="test")
    base, better = result.rows.values()
    assert list(base) == list(better) == ["all", "A", "B"]
    assert base["all"].rates == pytest.approx([0.4, 0.6]) and base["all"].difference is None
    assert base["all"].deviation == pytest.approx(0.1 * math.sqrt(2))
    assert better["B"].rates == pytest.approx([0.1, 0.2, 0.3])
    assert better["B"].mean == pytest.approx(0.2)
    assert better["B"].difference.difference == pytest.approx(0.2 - 0.5)
    assert better["B"].relative == pytest.approx(-0.6)
    assert better["B"].difference.interval[:2] == pytest.approx((-0.3, -0.3))  # all calls alike
    assert better["B"].difference.p_value == pytest.approx(2 / 501)
    assert better["A"].relative == 0 and better["A"].difference.p_value == 1.0
    assert better["B"].words == 6 * 2 * WORDS and result.conversations == 6
    text = comparison_text(result)
    assert "| better |     3 |" in text and "20.00 (10.00 to 30.00)" in text
    assert "-30.00 [-30.00, -30.00], -60.0 %, p = 0.0040" in text
    assert len({len(line) for line in text.splitlines()[2:5]}) == 1
    json.dumps(result.to_dict(), allow_nan=False)


def random_errors(seed, conversations=60):
    generator = np.random.default_rng(seed)
    hard = generator.integers(2, 7, size=conversations)
    return generator, hard


@pytest.mark.parametrize("seeds", [1, 3])
def test_interval_is_scipys_and_the_normal_one(seeds):
    """Conversations of equal length: the rate is a mean over them, whose error is known."""
    generator, hard = random_errors(seeds)
    draws = generator.integers(0, 3, size=(2, seeds, len(hard)))

    def table(k):  # one turn a call
        wrong = (hard + draws[k] - 2 * k).tolist()
        return [
            Run(f"{k}{s}", outputs(lambda c, t, row=row: row[c], len(hard), 1))
            for s, row in enumerate(wrong)
        ]

    systems = [System("a", table(0)), System("b", table(1))]
    groups = group(systems[0].runs[0].utterances, "turn")
    found = compare(systems, groups, resamples=8000).rows["b"]["all"].difference
    each = (draws[1].mean(0) - draws[0].mean(0) - 2) / WORDS
    assert found.difference == pytest.approx(each.mean())
    error = each.std() / math.sqrt(len(each))
    expected = [each.mean() - 1.96 * error, each.mean() + 1.96 * error]
    assert found.interval[:2] == pytest.approx(expected, abs=0.12 * error)
    other = stats.bootstrap((each,), np.mean, n_resamples=8000, method="percentile", random_state=1)
    assert found.interval[:2] == pytest.approx(tuple(other.confidence_interval), abs=0.12 * error)


def test_p_value_is_right_under_no_difference():
    """Without a difference, p below 0.1 comes up in about a tenth of all comparisons."""
    generator = np.random.default_rng(3)
    words = [WORDS] * 80
    values = [
        paired_difference(*generator.integers(0, 5, (2, 80)), words, resamples=200).p_value
        for _ in range(400)
    ]
    share = np.mean(np.array(values) < 0.1)
    assert 0.05 < share < 0.16  # binomial, four standard deviations around 0.105


def test_other_draws_for_every_system_would_be_wider():
    """Pairing matters: hard calls are hard for both, and cancel."""
    generator, hard = random_errors(5)
    a, words = hard.tolist(), [WORDS] * len(hard)
    b = (hard - generator.integers(0, 2, len(hard))).tolist()
    paired = paired_difference(a, b, words, resamples=2000).interval
    unpaired = stats.bootstrap(
        (np.array(a) / WORDS, np.array(b) / WORDS),
        lambda x, y, axis: y.mean(axis) - x.mean(axis),
        n_resamples=2000,
        method="percentile",
        random_state=0,
    ).confidence_interval
    assert paired.high - paired.low < 0.5 * (unpaired.high - unpaired.low)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda us: us[1:], "c0-0 is missing"),
        (lambda us: us + [Utterance("new", ["w"], ["w"])], "new is not in base0"),
        (lambda us: [Utterance("c0-0", ["v"], ["w"])] + us[1:], "has another reference"),
    ],
)
def test_runs_that_do_not_match(change, message):
    bad = System("bad", [BASE.runs[0], Run("bad1", change(outputs(lambda c, t: 1)))])
    with pytest.raises(InputError, match=message) as error:
        compared((BASE, bad))
    assert "bad1" in str(error.value)


def test_few_conversations_have_no_interval():
    """One call resampled is always the same call."""
    few = [
        System(name, [Run(name, outputs(lambda c, t, k=k: k, calls=4))])
        for name, k in (("base", 3), ("other", 1))
    ]
    result = compared(few)
    difference = result.rows["other"]["all"].difference
    assert difference.difference == pytest.approx(-0.2) and math.isnan(difference.p_value)
    assert "-20.00 [too few conversations], -66.7 %" in comparison_text(result)
    against = result.to_dict()["systems"][1]["groups"]["all"]["against_baseline"]
    assert against["interval"]["bounds"] == [None, None] and against["p_value"] is None


def test_two_systems_of_one_name():
    with pytest.raises(InputError, match="two systems are named 'base'"):
        compared((BASE, BASE))


def test_nothing_said_and_nothing_wrong_have_no_relative_change():
    perfect = system("perfect", lambda c, t: 0)
    result = compared((perfect, BASE))
    assert result.rows["base"]["all"].relative is None
    assert "n/a" in comparison_text(result)
    silent = [Utterance("u", [], ["x"], "c", side="A")]
    one, two = System("one", [Run("1", silent)]), System("two", [Run("2", silent)])
    row = compare((one, two), group(silent, "side"), resamples=100).to_dict()["systems"][1]
    assert row["groups"]["all"]["mean"] is None
    assert row["groups"]["all"]["against_baseline"]["interval"]["bounds"] == [None, None]


def test_curve_is_drawn_with_a_line_for_every_system(tmp_path):
    bins = SnrBins((0.0, 1.0, 2.5))
    result = compared(kind="snr", bins=bins)
    assert list(result.rows["base"]) == ["all", "0 to 1 dB", "1 to 2.5 dB"]
    assert "6 utterances, SNR 3.0 to 3.0 dB" in comparison_text(result)
    plot_curve(result, bins.centres, tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text()
    assert drawn.count("PolyCollection") == 2 and list(tmp_path.iterdir()) == [
        tmp_path / "curve.svg"
    ]
    with pytest.raises(InputError, match="a picture is named"):
        plot_curve(result, bins.centres, tmp_path / "curve.txt")
