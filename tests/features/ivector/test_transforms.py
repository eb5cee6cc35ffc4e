"""LDA against scikit-learn, and the cases in which it cannot work."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector.transforms import (
    VectorTransform,
    lda,
    length_normalised,
    scatter,
    train_transform,
)


@pytest.fixture
def speakers():
    generator = torch.Generator().manual_seed(0)
    label = torch.randint(6, (400,), generator=generator)
    centre = torch.randn(6, 8, generator=generator, dtype=torch.float64)
    noise = torch.randn(400, 8, generator=generator, dtype=torch.float64)
    return centre[label] + noise @ torch.diag(torch.arange(1.0, 9)).double(), label.tolist()


def test_lda_spans_scikit_learns_space(speakers):
    vectors, labels = speakers
    labels = [f"s{k}" for k in labels]
    found = ((vectors - vectors.mean(0)) @ lda(vectors, labels, 3)).numpy()
    theirs = LinearDiscriminantAnalysis(solver="eigen", n_components=3)
    wanted = theirs.fit(vectors.numpy(), labels).transform(vectors.numpy())
    for k in range(3):
        correlation = abs(np.corrcoef(found[:, k], wanted[:, k])[0, 1])
        assert correlation > 1 - 1e-6


def test_within_speaker_covariance_becomes_the_identity(speakers):
    vectors, labels = speakers
    labels = [f"s{k}" for k in labels]
    within, between = scatter(vectors @ lda(vectors, labels, 5), labels)
    torch.testing.assert_close(within, torch.eye(5).double())
    sizes = between.diagonal()
    assert (sizes[:-1] >= sizes[1:]).all()


def test_dimension_is_limited_by_the_speakers(speakers, caplog):
    vectors, labels = speakers
    transform = train_transform(vectors, [str(k) for k in labels], 100)
    assert transform.dim == 5
    assert "LDA to 5 dimensions, not 100: 6 speakers" in caplog.text


def test_one_speaker_is_a_clear_limit(speakers):
    vectors, labels = speakers
    with pytest.raises(InputError, match="two speakers or more.*--lda-dim 0"):
        train_transform(vectors, ["one"] * len(labels), 10)
    assert train_transform(vectors, ["one"] * len(labels), 0).dim == 8


def test_constant_and_few_vectors_stay_finite():
    vectors = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).double()
    vectors[:, 3] = 1.0
    transform = train_transform(vectors, list("aabbc"), 2)
    assert transform(vectors).isfinite().all()
    constant = train_transform(torch.ones(4, 8), list("aabb"), 1)
    assert constant(torch.ones(4, 8).double()).isfinite().all()


def test_length_norm_leaves_zero_alone():
    found = length_normalised(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    torch.testing.assert_close(found[0].norm(), torch.tensor(2.0).sqrt())
    assert found[1].tolist() == [0, 0]


def test_state_survives():
    transform = VectorTransform(torch.ones(3).double(), torch.eye(3).double()[:, :2], False)
    again = VectorTransform.from_state_dict(transform.state_dict())
    x = torch.randn(4, 3).double()
    assert torch.equal(transform(x), again(x)) and again.normalise is False
