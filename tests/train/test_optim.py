"""Learning rate, freezing, metrics, SpecAugment."""

import pytest
import torch
from synthetic import tiny_training
from torch import nn

from icefall_ctx.errors import InputError
from icefall_ctx.train.augment import SpecAugment
from icefall_ctx.train.metrics import Metrics
from icefall_ctx.train.optim import BatchNormGuard, Noam, build_optimizer, freeze, noam_rate


def test_noam_peaks_at_the_end_of_the_warm_up():
    rates = [noam_rate(step, 256, 100, 2.0) for step in range(1, 1000)]
    assert max(range(len(rates)), key=rates.__getitem__) == 99
    assert rates[99] == pytest.approx(2.0 * (256 * 100) ** -0.5)
    assert rates[49] == pytest.approx(rates[99] / 2)
    assert rates[399] == pytest.approx(rates[99] / 2)


def test_noam_sets_the_rate_of_the_coming_update_and_resumes():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0)
    scheduler = Noam(optimizer, 256, 100)
    seen = []
    for _ in range(5):
        seen.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    assert seen == [noam_rate(step, 256, 100, 1.0) for step in range(1, 6)]
    other = Noam(optimizer, 256, 100)
    other.load_state_dict(scheduler.state_dict())
    assert optimizer.param_groups[0]["lr"] == noam_rate(6, 256, 100, 1.0)
    with pytest.raises(InputError, match="--warmup 0"):
        Noam(optimizer, 256, 0)


def test_frozen_modules_are_named_and_stay():
    model = nn.ModuleDict({"encoder": nn.Linear(2, 2), "decoder": nn.Linear(2, 2)})
    assert freeze(model, "") == []
    frozen = freeze(model, "encoder")
    assert frozen == [model["encoder"]]
    optimizer = build_optimizer(model, tiny_training("exp"))
    assert sum(len(g["params"]) for g in optimizer.param_groups) == 2
    with pytest.raises(InputError, match="--freeze encodr: no parameter begins so; there are"):
        freeze(model, "encodr")
    freeze(model, "decoder, encoder")
    with pytest.raises(InputError, match="nothing is left to train"):
        build_optimizer(model, tiny_training("exp"))


def test_batch_norm_forgets_a_bad_batch():
    model = nn.Sequential(nn.BatchNorm1d(3))
    model(torch.randn(5, 3))
    before = [b.clone() for b in model.buffers()]
    guard = BatchNormGuard(model)
    guard.remember()
    model(torch.full((5, 3), float("nan")))
    guard.restore()
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers()))


def test_averages_are_over_frames_not_over_batches():
    metrics = Metrics()
    metrics.add("loss", 10.0, 100)
    metrics.add("loss", 1.0, 1)
    metrics.add("empty", 0.0, 0)
    assert metrics.averages() == {"loss": pytest.approx(11 / 101)}
    other = Metrics.from_state_dict(metrics.state_dict())
    other += metrics
    assert other.sums["loss"] == [22.0, 202.0] and metrics.sums["loss"] == [11.0, 101.0]


def masked(lens, frames=100, bins=20, seed=0, **options):
    augment = SpecAugment(**options)
    augment.seed(seed)
    return augment(torch.ones(len(lens), frames, bins), torch.tensor(lens)) == 0


def test_masks_stay_within_their_limits():
    for seed in range(50):
        zero = masked([100, 30, 1], seed=seed, time_mask_frames=15, freq_mask_bins=4)
        for row, length in zip(zero, (100, 30, 1)):
            frames = row.all(dim=1)
            assert not frames[length:].any(), "no mask beyond the utterance"
            assert frames.sum() <= 2 * min(15, int(0.2 * length))
            columns = row[~frames].all(dim=0)
            assert columns.sum() <= 8
            rebuilt = frames.unsqueeze(1) | columns.unsqueeze(0)
            assert torch.equal(row, rebuilt), "only whole frames and whole bins"


def test_masks_differ_between_utterances_and_depend_on_the_seed_only():
    a, b = masked([100, 100], seed=1), masked([100, 100], seed=1)
    assert torch.equal(a, b) and not torch.equal(a[0], a[1])
    assert not torch.equal(a, masked([100, 100], seed=2))
    augment = SpecAugment()
    augment(torch.ones(3, 50, 9), torch.tensor([50, 50, 50]))
    augment.seed(1)
    again = augment(torch.ones(2, 100, 20), torch.tensor([100, 100])) == 0
    assert torch.equal(a, again)


def test_every_bin_and_frame_can_be_masked():
    zero = torch.stack([masked([60], 60, 10, seed, freq_mask_bins=3)[0] for seed in range(300)])
    assert zero.all(dim=2).any(dim=0).all(), "first and last frame too"
    assert zero.all(dim=1).any(dim=0).all(), "first and last bin too"


def test_features_are_left_alone_outside_the_masks():
    augment = SpecAugment()
    features = torch.randn(4, 80, 83)
    before = features.clone()
    out = augment(features, torch.tensor([80, 70, 20, 5]))
    assert torch.equal(features, before)
    assert torch.equal(out[out != 0], features[out != 0])
