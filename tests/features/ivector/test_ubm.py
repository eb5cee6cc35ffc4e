"""Mixtures against SciPy's densities and scikit-learn's EM."""

import warnings

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector import ubm
from icefall_ctx.features.ivector.gmm import Gmm, Scorer


def blobs(num: int = 3000, dim: int = 6, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = 3 * torch.randn(8, dim, generator=generator)
    label = torch.randint(8, (num,), generator=generator)
    scale = 10.0 ** torch.arange(dim).div(dim - 1)  # dimensions of quite different sizes
    return (centres[label] + torch.randn(num, dim, generator=generator)) * scale + 5


def test_densities_are_scipys(gmm, frames):
    x = torch.cat(frames)
    covariances = gmm.covariances if gmm.full else torch.diag_embed(gmm.covariances)
    wanted = np.stack(
        [
            multivariate_normal(m, c).logpdf(x.numpy()) + np.log(w)
            for w, m, c in zip(gmm.weights.numpy(), gmm.means.numpy(), covariances.numpy())
        ],
        axis=1,
    )
    np.testing.assert_allclose(Scorer(gmm, torch.float64)(x), wanted, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(Scorer(gmm)(x), wanted, rtol=1e-4, atol=1e-3)


def test_whitener_inverts_the_covariance(gmm):
    whitener = gmm.whitener()
    if gmm.full:
        unit = whitener @ gmm.covariances @ whitener.transpose(1, 2)
        torch.testing.assert_close(unit, torch.eye(3).double().expand_as(unit))
    else:
        torch.testing.assert_close(whitener**2 * gmm.covariances, torch.ones(5, 3).double())


def test_one_estimation_step_is_the_formula(gmm, frames):
    """Weights, means and covariances of one EM step against sums over frames, in float64."""
    x = torch.cat(frames).double()
    floor = torch.full((3,), 1e-6).double()
    stats = ubm.expectation(frames, gmm, torch.float64)
    found = ubm.maximisation(stats, gmm, floor, min_count=0.0)
    joint = Scorer(gmm, torch.float64)(x)
    assert stats.log_likelihood == pytest.approx(float(joint.logsumexp(1).sum()))
    posterior = joint.softmax(1)
    count = posterior.sum(0)
    means = posterior.T @ x / count[:, None]
    offset = x[:, None] - means  # (T, C, D)
    covariances = torch.einsum("tc,tcd,tce->cde", posterior, offset, offset) / count[:, None, None]
    if not gmm.full:
        covariances = covariances.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(found.weights, count / len(x))
    torch.testing.assert_close(found.means, means)
    torch.testing.assert_close(found.covariances, covariances)


def test_em_is_scikit_learns():
    """The same start and iterations give scikit-learn's mixture, to 1e-6 of a deviation."""
    x = blobs()
    options = ubm.UbmOptions(num_gaussians=16)
    floor = torch.full((6,), 1e-12, dtype=torch.float64)
    start = ubm.kmeans_start(x, options, floor.new_ones(6) * 0.01)
    found = ubm.em([x], start, floor, 10, min_count=0.0, dtype=torch.float64)
    theirs = GaussianMixture(
        16,
        covariance_type="diag",
        max_iter=10,
        tol=0,
        reg_covar=0,
        weights_init=start.weights.numpy(),
        means_init=start.means.numpy(),
        precisions_init=1 / start.covariances.numpy(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(x.double().numpy())
    deviation = np.sqrt(theirs.covariances_)
    assert np.abs((found.means.numpy() - theirs.means_) / deviation).max() < 1e-6
    assert np.abs(found.covariances.numpy() / theirs.covariances_ - 1).max() < 1e-6
    assert np.abs(found.weights.numpy() - theirs.weights_).max() < 1e-9
    single = ubm.em([x], start, floor, 10, min_count=0.0)
    assert np.abs((single.means.numpy() - theirs.means_) / deviation).max() < 2e-2


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("floor_factor, min_count", [(1e-4, 0.0), (0.3, 0.0), (0.01, 80.0)])
def test_likelihood_never_falls(full, floor_factor, min_count):
    """With low and high floors, with starved Gaussians kept as they are."""
    x = blobs(1500)
    floor = ubm.variance_floor(x, floor_factor)
    gmm = ubm.kmeans_start(x, ubm.UbmOptions(num_gaussians=24), floor)
    history = []
    gmm = ubm.as_full(gmm) if full else gmm
    gmm = ubm.em([x], gmm, floor, 15, min_count, torch.float64, history)
    assert all(b >= a - 1e-10 for a, b in zip(history, history[1:]))
    assert history[-1] > history[0]
    assert (gmm.variances >= floor * (1 - 1e-9)).all()


def test_float32_follows_float64():
    x = blobs()
    options = ubm.UbmOptions(num_gaussians=16)
    floor = ubm.variance_floor(x, 0.01)
    start = ubm.kmeans_start(x, options, floor)
    histories = [[], []]
    for dtype, history in zip((torch.float32, torch.float64), histories):
        ubm.em([x], start, floor, 8, 0.0, dtype, history)
    np.testing.assert_allclose(*histories, rtol=1e-5)


def test_chunks_keep_every_frame():
    blocks = [torch.arange(n).float()[:, None] + 100 * n for n in (3, 0, 10, 1, 6)]
    found = list(ubm.chunks(blocks, 4))
    assert [len(c) for c in found] == [4, 4, 4, 4, 4]
    assert torch.equal(torch.cat(found), torch.cat(blocks))


def test_statistics_do_not_depend_on_blocks(gmm, frames):
    one = ubm.expectation([torch.cat(frames)], gmm, torch.float64)
    many = ubm.expectation(frames, gmm, torch.float64)
    half = ubm.expectation(frames[:5], gmm, torch.float64)
    half += ubm.expectation(frames[5:], gmm, torch.float64)
    torch.testing.assert_close(one.moments, many.moments)
    torch.testing.assert_close(one.moments, half.moments)
    assert one.num_frames == half.num_frames


def test_sample_is_uniform_and_in_order():
    x = torch.arange(20000).float()[:, None]
    found = ubm.sample(x.split(777), 2000, seed=0)[:, 0]
    assert len(found) == 2000 and (found[1:] > found[:-1]).all()
    assert abs(float(found.mean()) - 10000) < 4 * 20000 / (12 * 2000) ** 0.5
    assert torch.equal(ubm.sample([x[:50]], 2000, 0), x[:50])


@pytest.mark.parametrize("start", ["kmeans", "split"])
def test_both_starts_find_the_blobs(start):
    x = blobs()
    floor = ubm.variance_floor(x, 0.01)
    gmm = ubm.start(x, ubm.UbmOptions(num_gaussians=11, start=start), floor)
    single = ubm.single_gaussian(x, floor)
    gain = [ubm.expectation([x], g).mean_log_likelihood for g in (single, gmm)]
    assert gmm.num_gaussians == 11 and gain[1] > gain[0] + 2
    assert float(gmm.weights.sum()) == pytest.approx(1)


def test_more_gaussians_than_frames_is_a_clear_limit():
    with pytest.raises(InputError, match="64 Gaussians need at least 640.*at most 5 Gaussians"):
        ubm.start(torch.randn(50, 4), ubm.UbmOptions(num_gaussians=64), torch.ones(4).double())
    with pytest.raises(InputError, match="no speech frame"):
        ubm.sample([torch.zeros(0, 4)], 10, 0)


@pytest.mark.parametrize("full", [False, True])
def test_a_constant_dimension_is_floored(full):
    x = blobs(600)
    x[:, 2] = 7.0
    floor = ubm.variance_floor(x, 0.01)
    gmm = ubm.start(x, ubm.UbmOptions(num_gaussians=4), floor)
    gmm = ubm.em([x], ubm.as_full(gmm) if full else gmm, floor, 3)
    assert all(t.isfinite().all() for t in gmm.state_dict().values())
    assert Scorer(gmm)(x).isfinite().all()
    assert (gmm.variances[:, 2] > 0).all()


def test_frames_all_equal_give_a_finite_model():
    x = torch.ones(200, 3)
    gmm = ubm.start(x, ubm.UbmOptions(num_gaussians=4), ubm.variance_floor(x, 0.01))
    assert Scorer(gmm)(x).isfinite().all()


def test_a_dead_gaussian_keeps_its_parameters():
    x = blobs(500)
    start = ubm.single_gaussian(x, ubm.variance_floor(x, 0.01))
    far = start.means + 1e6
    two = Gmm(
        torch.tensor([0.5, 0.5]).double(),
        torch.cat([start.means, far]),
        start.covariances.repeat(2, 1),
    )
    found = ubm.em([x], two, ubm.variance_floor(x, 0.01), 3)
    assert torch.equal(found.means[1], far[0])
    assert float(found.weights[1]) < 1e-9
