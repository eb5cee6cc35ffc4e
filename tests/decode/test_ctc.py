"""CTC search and prefix scores against the sum over all alignments."""

import itertools
import math
from collections import defaultdict

import pytest
import torch

from icefall_ctx.decode.ctc import PrefixScorer, greedy, greedy_confidence, prefix_beam

V, T = 5, 5
LENS = torch.tensor([5, 3, 1])


@pytest.fixture
def log_probs():
    torch.manual_seed(0)
    return (2 * torch.randn(3, T, V)).log_softmax(-1)


def brute_force(log_probs, length):
    """Probability of every token sequence: the sum over all V^T alignments."""
    probability = defaultdict(float)
    for path in itertools.product(range(V), repeat=length):
        value = sum(float(log_probs[t, c]) for t, c in enumerate(path))
        merged = tuple(c for c, _ in itertools.groupby(path) if c != 0)
        probability[merged] += math.exp(value)
    return probability


@pytest.mark.parametrize("path", [(3, 1, 2), (2, 2, 2), (4, 4, 1)])
def test_prefix_scores(log_probs, path):
    scorer = PrefixScorer(log_probs, LENS)
    for row, length in enumerate(LENS.tolist()):
        truth = brute_force(log_probs[row], length)
        state, prefix = scorer.initial().select(torch.tensor([row])), ()
        assert math.exp(scorer.end(state)) == pytest.approx(truth[()], abs=1e-6)
        for token in path:
            psi, states = scorer.extend(state, torch.arange(1, V).unsqueeze(0))
            ends = scorer.end(states)
            for column, candidate in enumerate(range(1, V)):
                longer = prefix + (candidate,)
                begins = sum(p for h, p in truth.items() if h[: len(longer)] == longer)
                assert math.exp(psi[0, column]) == pytest.approx(begins, abs=1e-6)
                assert math.exp(ends[column]) == pytest.approx(truth.get(longer, 0), abs=1e-6)
            state, prefix = states.select(torch.tensor([token - 1])), prefix + (token,)


def test_prefix_scores_never_rise_and_stay_finite_over_an_hour_of_frames():
    torch.manual_seed(0)
    log_probs = (5 * torch.randn(2, 4000, V)).log_softmax(-1)
    scorer = PrefixScorer(log_probs, torch.tensor([4000, 10]))
    state, last = scorer.initial(), torch.zeros(2, dtype=torch.double)
    for token in (1, 1, 2, 3, 3, 3, 4, 1, 2, 1, 2):
        psi, state = scorer.extend(state, torch.tensor([[token], [token]]))
        assert psi.isfinite().all() and psi[0, 0] <= last[0] + 1e-9
        assert scorer.end(state)[0] <= psi[0, 0] + 1e-9
        last = psi[:, 0]
    assert last[1] <= -1e9  # eleven tokens with a blank between equal ones: not in ten frames


@pytest.mark.parametrize("row", range(3))
def test_prefix_beam_with_a_huge_beam(log_probs, row):
    length = int(LENS[row])
    truth = brute_force(log_probs[row], length)
    found = prefix_beam(log_probs[row], length, beam=10_000)
    ranked = sorted(truth.items(), key=lambda item: -item[1])[:20]
    for (tokens, score), (expected, probability) in zip(found, ranked):
        assert tuple(tokens) == expected and math.exp(score) == pytest.approx(probability, abs=1e-9)
    assert prefix_beam(log_probs[row], length, beam=3)[0][1] <= found[0][1] + 1e-12


def test_prefix_beam_forbids_tokens(log_probs):
    for tokens, _ in prefix_beam(log_probs[0], T, beam=100, forbidden=(1, 2))[:10]:
        assert not {1, 2} & set(tokens)


def test_greedy_merges_and_stops_at_the_end():
    best = torch.tensor([[3, 3, 0, 3, 4], [0, 2, 2, 1, 1], [1, 1, 1, 1, 1]])
    log_probs = torch.nn.functional.one_hot(best, V).float().mul(9).log_softmax(-1)
    assert greedy(log_probs, LENS) == [[3, 3, 4], [2], [1]]
    assert greedy(log_probs, torch.tensor([0, 0, 0])) == [[], [], []]
    peak = float(log_probs.max().exp())
    confidence = greedy_confidence(log_probs, torch.tensor([5, 3, 0]))
    assert confidence == pytest.approx([peak, peak, 0.0])
