import math
import random

import numpy as np
import pytest

from icefall_ctx.errors import InputError
from icefall_ctx.score.bootstrap import bootstrap_interval, paired_difference
from icefall_ctx.score.conversation import paired_bootstrap
from icefall_ctx.score.wer import (
    ErrorCounts,
    Utterance,
    count_utterance,
    score_utterances,
    turn_bucket,
)


def levenshtein(ref, hyp):
    """Textbook distance, to compare with."""
    row = list(range(len(hyp) + 1))
    for i, r in enumerate(ref, start=1):
        previous, row[0] = row[0], i
        for j, h in enumerate(hyp, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (r != h))
    return row[-1]


def test_counts_match_the_textbook_distance():
    rng = random.Random(1)
    for i in range(300):
        ref = [rng.choice("abcd") for _ in range(rng.randrange(12))]
        hyp = [rng.choice("abcd") for _ in range(rng.randrange(12))]
        counts = count_utterance(Utterance(str(i), ref, hyp))
        assert counts.errors == levenshtein(ref, hyp)
        assert counts.ref_words == len(ref)
        assert counts.ins - counts.dels == len(hyp) - len(ref)


@pytest.mark.parametrize(
    "ref, hyp, expected",
    [
        ([], ["a", "b"], ErrorCounts(0, 2, 0, 0, 1, 1)),
        (["a", "b"], [], ErrorCounts(2, 0, 2, 0, 1, 1)),
        ([], [], ErrorCounts(0, 0, 0, 0, 1)),
        (["a"], None, ErrorCounts(1, 0, 1, 0, 1, 1, missing=1)),
        ([], None, ErrorCounts(0, 0, 0, 0, 1, 0, missing=1)),
    ],
)
def test_empty_and_missing_are_counted(ref, hyp, expected):
    assert count_utterance(Utterance("u", ref, hyp)) == expected


def test_rates_without_reference_words_are_not_numbers():
    assert math.isnan(ErrorCounts().rate)
    assert ErrorCounts(ins=2).rate == math.inf
    assert ErrorCounts(ref_words=4, ins=5).rate == 1.25


def test_groups_add_up_to_the_total():
    rng = random.Random(2)
    utterances = [
        Utterance(
            f"u{i}",
            [rng.choice("abc") for _ in range(5)],
            [rng.choice("abc") for _ in range(5)],
            conv_id=f"c{i // 10}",
            speaker=f"s{i % 3}",
            turn=i % 10,
        )
        for i in range(60)
    ]
    scores = score_utterances(utterances, bootstrap=50)
    assert set(scores.groups) == {"conversation", "speaker", "turn"}  # no utterance has a side
    for groups in scores.groups.values():
        assert sum(groups.values(), ErrorCounts()) == scores.total
    assert set(scores.groups["turn"]) == {"0", "1", "2", "3-4", "5-9"}
    low, high, confidence = scores.interval
    assert low < scores.total.rate < high and confidence == 0.95


def test_turn_buckets():
    assert [turn_bucket(t) for t in (-1, 0, 2, 3, 4, 9, 19, 20, 999)] == [
        "", "0", "2", "3-4", "3-4", "5-9", "10-19", "20+", "20+",
    ]  # fmt: skip


def test_interval_matches_a_loop_over_resamples():
    errors, words = [3, 0, 5, 1, 2], [10, 4, 9, 8, 7]
    generator = np.random.default_rng(7)
    rates = []
    for draw in generator.integers(5, size=(500, 5)):
        rates.append(sum(errors[i] for i in draw) / sum(words[i] for i in draw))
    low, high = np.percentile(rates, [2.5, 97.5])
    interval = bootstrap_interval(errors, words, resamples=500, seed=7)
    assert interval == pytest.approx((low, high, 0.95))


def test_interval_covers_the_true_rate_as_often_as_it_says():
    generator = np.random.default_rng(0)
    inside = 0
    for trial in range(200):
        words = generator.integers(50, 150, size=60)
        errors = generator.binomial(words, 0.2)
        low, high, _ = bootstrap_interval(errors, words, resamples=200, seed=trial)
        inside += low <= 0.2 <= high
    assert 0.88 <= inside / 200 <= 0.99


def test_one_conversation_has_an_interval_of_width_zero():
    assert bootstrap_interval([2], [8], resamples=10)[:2] == (0.25, 0.25)


def test_paired_difference_separates_better_from_equal():
    generator = np.random.default_rng(3)
    words = generator.integers(80, 120, size=40)
    a, b = generator.binomial(words, 0.30), generator.binomial(words, 0.20)
    better = paired_difference(a, b, words, resamples=2000)
    assert better.difference == pytest.approx((b.sum() - a.sum()) / words.sum())
    assert better.p_value < 0.01 and better.interval.high < 0
    same = paired_difference(a, a, words, resamples=2000)
    assert same.difference == 0 and same.p_value == 1


def test_paired_bootstrap_needs_the_same_references():
    a = [Utterance("u1", ["a"], ["a"]), Utterance("u2", ["b"], ["c"])]
    b = [Utterance("u2", ["b"], ["b"]), Utterance("u1", ["a"], None)]
    assert paired_bootstrap(a, b, resamples=100).difference == 0
    with pytest.raises(InputError, match="u1"):
        paired_bootstrap(a, b[:1])
    with pytest.raises(InputError, match="u2"):
        paired_bootstrap(a[:1], b)
    with pytest.raises(InputError, match="different references"):
        paired_bootstrap(a, [Utterance("u1", ["x"], []), b[0]])
