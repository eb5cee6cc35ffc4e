"""Equal error rate against the threshold sweep, and the picture."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_curve

from icefall_ctx.errors import InputError
from icefall_ctx.features.ivector.evaluate import (
    averaged,
    draw,
    equal_error_rate,
    one_vector_a_speaker,
    projection,
    speaker_error_rate,
    speaker_pairs,
)


def test_rate_lies_on_scikit_learns_curve():
    generator = torch.Generator().manual_seed(0)
    same = torch.rand(5000, generator=generator) < 0.2
    scores = torch.randn(5000, generator=generator) + 1.5 * same
    false_alarm, hit, _ = roc_curve(same.numpy(), scores.numpy(), drop_intermediate=False)
    miss = 1 - hit
    k = int(np.argmax(false_alarm >= miss))
    low, high = sorted([miss[k], miss[k - 1], false_alarm[k], false_alarm[k - 1]])[1:3]
    found = equal_error_rate(scores, same)
    assert low - 1e-9 <= found.rate <= high + 1e-9
    assert found.num_same == int(same.sum()) and found.num_different == 5000 - found.num_same


@pytest.mark.parametrize(
    "scores, same, rate",
    [
        ([1.0, 2, 3, 4], [0, 0, 1, 1], 0.0),
        ([4.0, 3, 2, 1], [0, 0, 1, 1], 1.0),
        ([1.0, 1, 1, 1], [0, 0, 1, 1], 0.5),
        ([1.0, 2, 3, 4], [0, 1, 0, 1], 0.5),
    ],
)
def test_small_sets(scores, same, rate):
    found = equal_error_rate(torch.tensor(scores), torch.tensor(same).bool())
    assert found.rate == pytest.approx(rate)


def test_one_speaker_has_no_rate():
    with pytest.raises(InputError, match="both kinds are needed"):
        speaker_error_rate(torch.randn(4, 3), ["a"] * 4)


def test_pairs_and_sampling():
    vectors = torch.eye(4)
    scores, same = speaker_pairs(vectors, ["a", "a", "b", "c"])
    assert len(scores) == 6 and int(same.sum()) == 1 and float(scores.abs().max()) == 0
    scores, _ = speaker_pairs(vectors, ["a", "a", "b", "c"], max_vectors=3)
    assert len(scores) == 3
    calls = ["x", "x", "x", "y"]
    scores, same = speaker_pairs(torch.eye(4), ["a", "a", "b", "a"], calls)
    assert same.tolist() == [True, True, False]  # with the last one alone
    zero, _ = speaker_pairs(torch.zeros(2, 3), ["a", "b"])
    assert zero.tolist() == [0.0]


def test_means_of_each_speaker_in_each_conversation():
    vectors = torch.tensor([[1.0, 0], [3, 2], [5, 5], [7, 7]])
    means, speakers, calls = averaged(vectors, ["a", "a", "b", "a"], ["x", "x", "x", "y"])
    assert means.tolist() == [[2, 1], [5, 5], [7, 7]]
    assert (speakers, calls) == (["a", "b", "a"], ["x", "x", "y"])


def test_vectors_of_mode_speaker_are_known():
    vectors = torch.tensor([[1.0, 2], [1, 2], [-3, 0]])
    assert one_vector_a_speaker(vectors, ["a", "a", "b"])
    assert not one_vector_a_speaker(vectors, ["a", "b", "b"])
    assert not one_vector_a_speaker(vectors, ["a", "b", "c"])  # nobody has several


def test_projection_separates_the_speakers():
    generator = torch.Generator().manual_seed(0)
    names = ["a", "b", "c"] * 20
    centre = {"a": [9.0, 0, 0], "b": [0, 9.0, 0], "c": [0, 0, 0]}
    vectors = torch.tensor([centre[n] for n in names]) + torch.randn(60, 3, generator=generator)
    points = projection(vectors, names)
    assert points.shape == (60, 2)
    means = torch.stack([points[k::3].mean(0) for k in range(3)])
    assert float(torch.pdist(means).min()) > 6
    assert projection(vectors[:, :1], names).shape == (60, 2)


def test_a_picture_of_no_format_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"p\.text: a picture is named \*\.png"):
        draw(torch.randn(6, 4), ["a", "b"] * 3, tmp_path / "p.text")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("num_speakers", [1, 2, 45])
def test_picture_is_written(tmp_path, num_speakers):
    names = [f"s{k % num_speakers}" for k in range(90)]
    path = tmp_path / "p.png"
    draw(torch.randn(90, 4), names, path, "title")
    assert path.read_bytes().startswith(b"\x89PNG") and len(list(tmp_path.iterdir())) == 1
