import random

import numpy as np
import pytest
import scipy.optimize

from icefall_ctx.formats.stm import StmSegment, read_stm
from icefall_ctx.score.cpwer import cheapest_assignment, cpwer, score_cpwer


def test_assignment_is_the_cheapest():
    generator = np.random.default_rng(0)
    for size in [0, 1, 2, 3, 5, 8, 13] * 20:
        costs = generator.integers(0, 20, (size, size)).astype(float)
        columns = cheapest_assignment(costs)
        assert sorted(columns) == list(range(size))
        rows, best = scipy.optimize.linear_sum_assignment(costs)
        assert costs[range(size), columns].sum() == costs[rows, best].sum()


def meeteval_counts(ref, hyp):
    meeteval = pytest.importorskip("meeteval")
    rate = meeteval.wer.cp_word_error_rate(
        {name: " ".join(words) for name, words in ref.items()},
        {name: " ".join(words) for name, words in hyp.items()},
    )
    return rate.errors, rate.length


def test_public_examples_equal_meeteval(shared_data):
    meeteval = pytest.importorskip("meeteval")
    folder = shared_data / "formats" / "meeteval"
    expected = meeteval.wer.cpwer(
        meeteval.io.load(folder / "ref.stm"), meeteval.io.load(folder / "hyp.stm")
    )
    found = score_cpwer(read_stm(folder / "ref.stm"), read_stm(folder / "hyp.stm"))
    assert set(found) == set(expected)
    for name, rate in expected.items():
        counts, _ = found[name]
        assert (counts.errors, counts.ref_words) == (rate.errors, rate.length)


def test_random_meetings_equal_meeteval():
    rng = random.Random(1)

    def side(speakers):
        return {
            f"s{i}": [rng.choice("abcde") for _ in range(rng.randrange(1, 15))]
            for i in range(speakers)
        }

    for _ in range(100):
        ref, hyp = side(rng.randrange(1, 6)), side(rng.randrange(1, 6))
        counts, _ = cpwer(ref, hyp)
        assert (counts.errors, counts.ref_words) == meeteval_counts(ref, hyp)


def test_speakers_without_partner():
    def segment(recording, speaker, text):
        return StmSegment(recording, "1", speaker, 0, 1, text)

    ref = [segment("r", "a", "x y"), segment("r", "b", "z"), segment("only-ref", "a", "q")]
    hyp = [segment("r", "1", "x y"), segment("only-hyp", "1", "p p")]
    found = score_cpwer(ref, hyp)
    assert (found["r"][0].dels, sorted(found["r"][1])) == (1, [("a", "1"), ("b", "")])
    assert found["only-ref"][0].dels == 1 and found["only-hyp"][0].ins == 2
