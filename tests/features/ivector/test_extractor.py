"""Posteriors and training of the total variability model against dense formulas in float64."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector import total_variability as tv
from icefall_ctx.features.ivector.extractor import IvectorExtractor, TotalVariability
from icefall_ctx.features.ivector.frontend import FrontendConfig
from icefall_ctx.features.ivector.gmm import Scorer
from icefall_ctx.features.ivector.sources import Utterance
from icefall_ctx.features.ivector.stats import (
    SelectionOptions,
    StatsComputer,
    StatsSource,
    dense,
    select,
)
from icefall_ctx.features.ivector.transforms import train_transform

EXACT = SelectionOptions(top_n=5, min_posterior=0.0)
RANK = 4


def covariances(gmm):
    return gmm.covariances if gmm.full else torch.diag_embed(gmm.covariances)


def unwhitened(gmm, model):
    """``T_c`` (C, D, R) that moves the means themselves."""
    whitener = gmm.whitener()
    if gmm.full:
        return torch.linalg.solve(whitener, model.matrix)
    return model.matrix / whitener[..., None]


def dense_utterance(gmm, x):
    """Posteriors of all Gaussians, zeroth (C,) and first order statistics (C, D)."""
    posterior = Scorer(gmm, torch.float64)(x).softmax(1)
    return posterior.sum(0), posterior.T @ x.double()


def dense_posterior(gmm, model, counts, first):
    """Mean and covariance of ``w``, and the log-likelihood term, by stacking everything.

    The observations of Gaussian c are ``N_c`` frames with mean ``f_c / N_c``: one Gaussian
    observation of ``T_c w`` with covariance ``S_c / N_c``.
    """
    total = unwhitened(gmm, model).flatten(0, 1)  # (C D, R)
    precision = torch.block_diag(
        *[n * torch.linalg.inv(c) for n, c in zip(counts, covariances(gmm))]
    )
    observed = (first / counts[:, None]).flatten()
    prior = torch.zeros(model.rank, dtype=torch.float64)
    prior[0] = model.offset
    inverse = torch.eye(model.rank).double() + total.T @ precision @ total
    covariance = torch.linalg.inv(inverse)
    mean = covariance @ (prior + total.T @ precision @ observed)
    return mean, covariance


@pytest.fixture
def model(gmm):
    return tv.initial_model(gmm, tv.TotalVariabilityOptions(rank=RANK, seed=3))


@pytest.fixture
def stats(gmm, frames):
    return StatsComputer(gmm, EXACT)(frames)


def test_statistics_are_the_dense_sums(gmm, frames, stats):
    found = dense(stats, 5, 3)
    for row, x in enumerate(frames):
        counts, first = dense_utterance(gmm, x)
        whitener = gmm.whitener()
        white = (whitener @ first[..., None])[..., 0] if gmm.full else whitener * first
        torch.testing.assert_close(found.counts[row], counts, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(found.first[row], white, atol=1e-3, rtol=1e-4)


def as_matrix(alignment, num_frames, num):
    matrix = torch.zeros(num_frames, num)
    matrix[alignment.frame, alignment.gaussian] = alignment.posterior
    return matrix


def test_selection_keeps_the_best_and_sums_to_one():
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.97, 0.01, 0.01, 0.01]]))
    pruned = as_matrix(select(logits, SelectionOptions(top_n=3, min_posterior=0.2)), 2, 4)
    torch.testing.assert_close(pruned, torch.tensor([[0.625, 0.375, 0, 0], [1, 0, 0, 0]]))
    few = as_matrix(select(logits, SelectionOptions(top_n=1, min_posterior=0.2)), 2, 4)
    assert few.tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    best = as_matrix(select(logits, SelectionOptions(top_n=2, min_posterior=0.0)), 2, 4)
    torch.testing.assert_close(best[0], torch.tensor([0.625, 0.375, 0, 0]))
    assert float(best[1].sum()) == pytest.approx(1) and int((best[1] > 0).sum()) == 2
    flat = select(torch.zeros(1, 64), SelectionOptions(top_n=20, min_posterior=0.5))
    assert len(flat.posterior) == 20 and float(flat.posterior.sum()) == pytest.approx(1)


def test_an_utterance_does_not_depend_on_its_batch(gmm, frames):
    computer = StatsComputer(gmm, SelectionOptions())
    batch = dense(computer(frames), 5, 3)
    for row, x in enumerate(frames):
        alone = dense(computer([x]), 5, 3)
        torch.testing.assert_close(alone.first[0], batch.first[row], atol=1e-5, rtol=1e-5)


def test_posteriors_are_the_dense_formula(gmm, model, frames):
    """Given the same statistics the posterior agrees to 1e-9."""
    for x in frames:
        counts, first = dense_utterance(gmm, x)
        whitener = gmm.whitener()
        white = (whitener @ first[..., None])[..., 0] if gmm.full else whitener * first
        evidence = model.evidence(tv.Stats(counts[None], white[None]))
        mean, factor, _ = model.posterior(evidence)
        wanted, covariance = dense_posterior(gmm, model, counts, first)
        torch.testing.assert_close(mean[0], wanted, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(
            torch.cholesky_inverse(factor)[0], covariance, atol=1e-9, rtol=1e-9
        )


def test_log_likelihood_is_the_integral(gmm, frames):
    """With R = 1 the integral over ``w`` can be done numerically."""
    model = tv.initial_model(gmm, tv.TotalVariabilityOptions(rank=1))
    grid = torch.linspace(60, 140, 400_001, dtype=torch.float64)
    for x in frames[:3]:
        counts, first = dense_utterance(gmm, x)
        whitener = gmm.whitener()
        white = (whitener @ first[..., None])[..., 0] if gmm.full else whitener * first
        evidence = model.evidence(tv.Stats(counts[None], white[None]))
        found = tv.log_likelihood(*model.posterior(evidence), model.offset)
        linear, quadratic = float(evidence.linear), float(evidence.quadratic)
        log_density = -0.5 * (grid - model.offset) ** 2 - 0.5 * np.log(2 * np.pi)
        terms = log_density + linear * grid - 0.5 * quadratic * grid**2
        integral = terms.logsumexp(0) + torch.log(grid[1] - grid[0])
        assert float(found) == pytest.approx(float(integral), abs=1e-6)


@pytest.mark.parametrize("min_divergence", [False, True])
def test_likelihood_never_falls(gmm, model, stats, min_divergence):
    options = tv.TotalVariabilityOptions(
        rank=RANK, min_count=0.0, min_divergence=min_divergence
    )
    values = []
    for _ in range(12):
        sums = tv.expectation([stats[:7], stats[7:]], model)
        values.append(sums.log_likelihood)
        model = tv.update(sums, model, options)
    assert all(b >= a - 1e-8 for a, b in zip(values, values[1:]))
    assert values[-1] > values[0] + 1


def test_minimum_divergence_standardises_the_ivectors(gmm, model, stats):
    """In the new coordinates the posteriors have mean ``o e_1`` and covariance I."""
    sums = tv.expectation([stats], model)
    moved = tv.minimum_divergence(model.matrix, sums)
    change = torch.linalg.lstsq(model.matrix.flatten(0, 1), moved.matrix.flatten(0, 1)).solution
    back = torch.linalg.inv(change)  # w = change v
    mean = sums.mean / len(stats)
    covariance = sums.moment / len(stats) - torch.outer(mean, mean)
    wanted = torch.zeros(RANK).double()
    wanted[0] = moved.offset
    torch.testing.assert_close(back @ mean, wanted, atol=1e-7, rtol=1e-9)
    torch.testing.assert_close(
        back @ covariance @ back.T, torch.eye(RANK).double(), atol=1e-6, rtol=0
    )
    again = tv.expectation([stats], moved)
    assert again.log_likelihood >= sums.log_likelihood - 1e-9


def test_matrix_update_is_the_numerical_optimum(gmm, model, stats):
    """SciPy, maximising the expected log-likelihood, finds the same matrix to 1e-4."""
    sums = tv.expectation([stats], model)
    found = tv.maximisation(sums, model, min_count=0.0)
    counts, first = dense(stats, 5, 3)
    mean, factor, _ = model.posterior(model.evidence(tv.Stats(counts, first)))
    moment = torch.cholesky_inverse(factor) + mean[:, :, None] * mean[:, None]

    for c in range(5):
        scale = moment[:, range(RANK), range(RANK)].mean(0).sqrt()  # conditions the search

        def loss(flat):
            matrix = torch.tensor(flat).view(3, RANK).requires_grad_()
            t = matrix / scale
            linear = torch.einsum("ud,dr,ur->", first[:, c], t, mean)
            quadratic = torch.einsum("u,dr,dq,urq->", counts[:, c], t, t, moment)
            value = 0.5 * quadratic - linear
            value.backward()
            return float(value), matrix.grad.flatten().numpy()

        start = (model.matrix[c] * scale).flatten().numpy()
        best = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        wanted = torch.tensor(best.x).view(3, RANK) / scale
        assert float(((found[c] - wanted) * scale).abs().max()) < 1e-4


def test_training_is_a_dense_reference(gmm, model, frames):
    """Three iterations against a loop over utterances and Gaussians in the unwhitened space."""
    options = tv.TotalVariabilityOptions(rank=RANK, min_count=0.0, min_divergence=False)
    statistics = [dense_utterance(gmm, x) for x in frames]
    reference = unwhitened(gmm, model)
    whitener = gmm.whitener()
    counts = torch.stack([s[0] for s in statistics])
    first = torch.stack([s[1] for s in statistics])
    white = (whitener @ first[..., None])[..., 0] if gmm.full else whitener * first
    sparse = [tv.SparseStats(torch.arange(5), n, f) for n, f in zip(counts, white)]
    for _ in range(3):
        model = tv.update(tv.expectation([sparse], model), model, options)
        reference = _dense_iteration(gmm, reference, model.offset, statistics)
    torch.testing.assert_close(unwhitened(gmm, model), reference, atol=1e-6, rtol=1e-6)


def _dense_iteration(gmm, matrix, offset, statistics):
    inverse = torch.linalg.inv(covariances(gmm))
    left = [torch.zeros(RANK, RANK).double() for _ in range(5)]
    right = [torch.zeros(3, RANK).double() for _ in range(5)]
    for counts, first in statistics:
        precision = torch.eye(RANK).double()
        linear = torch.zeros(RANK).double()
        linear[0] = offset
        for c in range(5):
            precision += counts[c] * matrix[c].T @ inverse[c] @ matrix[c]
            linear += matrix[c].T @ inverse[c] @ first[c]
        covariance = torch.linalg.inv(precision)
        mean = covariance @ linear
        for c in range(5):
            left[c] += counts[c] * (covariance + torch.outer(mean, mean))
            right[c] += torch.outer(first[c], mean)
    return torch.stack([r @ torch.linalg.inv(a) for r, a in zip(right, left)])


def test_a_starved_gaussian_keeps_its_matrix(model, stats):
    sums = tv.expectation([stats], model)
    found = tv.maximisation(sums, model, min_count=float(sums.counts.sort().values[1]))
    kept = [torch.equal(found[c], model.matrix[c]) for c in range(5)]
    assert sum(kept) == 1


def test_evidence_adds_and_is_limited(gmm, model, stats):
    rows = model.evidence(dense(stats, 5, 3))
    both = rows[0:1] + rows[1:2]
    joined = dense(stats[:2], 5, 3)
    summed = model.evidence(tv.Stats(joined.counts.sum(0)[None], joined.first.sum(0)[None]))
    torch.testing.assert_close(both.linear, summed.linear)
    torch.testing.assert_close(both.quadratic, summed.quadratic)
    limited = rows.limited(20.0)
    torch.testing.assert_close(limited.counts, rows.counts.clamp_max(20.0))
    assert torch.equal(rows.limited(0.0).counts, rows.counts)
    # A capped count leaves the vector closer to the prior.
    free, capped = model.ivectors(rows), model.ivectors(rows, max_count=3.0)
    assert (capped.norm(dim=1) < free.norm(dim=1)).all()


class _Utterances:
    def __init__(self, frames):
        self.frames = frames

    def starting(self, position):
        return (Utterance(str(k), "s", f) for k, f in enumerate(self.frames[position:], position))


@pytest.mark.parametrize("cache_bytes", [0, 400, 10**6])
def test_cached_statistics_are_the_same(gmm, frames, cache_bytes):
    frames = frames[:3] + [torch.zeros(0, 3)] + frames[3:]
    computer = StatsComputer(gmm, EXACT)
    source = StatsSource(_Utterances(frames), cache_bytes)
    wanted = torch.stack([s.counts.sum() for f in frames if len(f) for s in computer([f])])
    for _ in range(3):
        found = [s for batch in source.batches(computer, 2) for s in batch]
        torch.testing.assert_close(torch.stack([s.counts.sum() for s in found]), wanted)
    assert (source.num_cached == len(frames)) == (cache_bytes == 10**6)


@pytest.fixture
def extractor(gmm, model, stats):
    raw = model.ivectors(model.evidence(dense(stats, 5, 3)))
    transform = train_transform(raw, ["a", "b", "c"] * 4, 2)
    return IvectorExtractor(gmm, model, FrontendConfig(), EXACT, transform)


def test_saved_and_loaded_is_the_same(extractor, frames, tmp_path):
    extractor.save(tmp_path / "x.pt")
    again = IvectorExtractor.load(tmp_path / "x.pt")
    assert again.fingerprint() == extractor.fingerprint()
    assert again.frontend == extractor.frontend and again.selection == extractor.selection
    one, two = (e.vectors(e.evidence(frames)) for e in (extractor, again))
    assert torch.equal(one, two) and one.shape == (12, 2)


def test_no_speech_gives_zeros(extractor):
    vectors = extractor.vectors(extractor.evidence([torch.zeros(0, 3), torch.randn(9, 3)]))
    assert torch.equal(vectors[0], torch.zeros(2).double())
    assert float(vectors[1].norm()) == pytest.approx(2**0.5)
    assert torch.equal(extractor.vectors(extractor.empty())[0], torch.zeros(2).double())


def test_frames_of_another_dimension_are_refused(extractor):
    with pytest.raises(InputError, match="4 dimensions.*trained on 3"):
        extractor.evidence([torch.zeros(5, 4)])


@pytest.mark.parametrize("content", [b"", b"no model at all", None])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "x.pt"
    if content is None:
        torch.save({"format": "something else"}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(InputError, match="not an i-vector extractor"):
        IvectorExtractor.load(path)
    with pytest.raises(InputError, match="no such extractor"):
        IvectorExtractor.load(tmp_path / "missing.pt")


def test_options_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        EXACT.top_n = 3


def test_offset_and_rank(model):
    assert TotalVariability(model.matrix, 100).rank == RANK
