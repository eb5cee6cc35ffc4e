"""The loss against direct formulas, and utterances that cannot be aligned."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from synthetic import make_data, tiny_model, tiny_training

from icefall_ctx.data.batch import Batch
from icefall_ctx.models.asr import build_model
from icefall_ctx.train.loop import with_tokenizer
from icefall_ctx.train.losses import (
    compute_loss,
    ctc_loss,
    frames_needed,
    smoothed_cross_entropy,
    with_eos,
)


def a_batch(tokens, frames=20):
    lens = torch.tensor([len(t) for t in tokens])
    padded = torch.nn.utils.rnn.pad_sequence([torch.tensor(t) for t in tokens], batch_first=True)
    n = len(tokens)
    names = [f"u{i}" for i in range(n)]
    return Batch(
        names, names, names, [0] * n, names, names, names,
        torch.randn(n, frames, 8), torch.full((n,), frames), padded, lens, durations=[1.0] * n,
    )


def fake_model(batch, encoder_lens, vocab=6, seed=0):
    """A model of free outputs; returns it and its two parameters."""
    torch.manual_seed(seed)
    n, u = batch.tokens.shape
    ctc = torch.randn(n, max(encoder_lens), vocab, requires_grad=True)
    att = torch.randn(n, u + 1, vocab, requires_grad=True)

    def model(batch, augment):
        return SimpleNamespace(
            encoder_lens=torch.tensor(encoder_lens),
            ctc_log_probs=ctc.log_softmax(-1),
            log_probs=att.log_softmax(-1),
        )

    return model, ctc, att


def brute_force_ctc(log_probs, target):
    total = 0.0
    for path in itertools.product(range(log_probs.size(1)), repeat=log_probs.size(0)):
        collapsed = [k for k, _ in itertools.groupby(path) if k != 0]
        if collapsed == target:
            total += torch.exp(sum(log_probs[t, k] for t, k in enumerate(path)))
    return -torch.log(torch.tensor(float(total)))


def test_ctc_is_the_sum_over_all_alignments():
    torch.manual_seed(0)
    log_probs = torch.randn(2, 5, 3).log_softmax(-1)
    lens, tokens = torch.tensor([5, 4]), torch.tensor([[1, 1], [2, 0]])
    found = ctc_loss(log_probs, lens, tokens, torch.tensor([2, 1]))
    assert found[0] == pytest.approx(float(brute_force_ctc(log_probs[0], [1, 1])), abs=1e-5)
    assert found[1] == pytest.approx(float(brute_force_ctc(log_probs[1, :4], [2])), abs=1e-5)


def test_smoothing_is_the_cross_entropy_with_a_smoothed_target():
    log_probs = torch.randn(2, 3, 5).log_softmax(-1)
    targets = torch.randint(5, (2, 3))
    smooth = torch.nn.functional.one_hot(targets, 5) * 0.9 + 0.1 / 5
    expected = -(smooth * log_probs).sum(-1)
    torch.testing.assert_close(smoothed_cross_entropy(log_probs, targets, 0.1), expected)
    torch.testing.assert_close(
        smoothed_cross_entropy(log_probs, targets, 0.1),
        torch.nn.functional.cross_entropy(
            log_probs.transpose(1, 2), targets, reduction="none", label_smoothing=0.1
        ),
    )


def test_targets_end_in_eos():
    targets, mask = with_eos(torch.tensor([[5, 4, 3], [2, 0, 0]]), torch.tensor([3, 1]))
    assert targets[0].tolist() == [5, 4, 3, 1] and targets[1, :2].tolist() == [2, 1]
    assert mask.tolist() == [[True] * 4, [True, True, False, False]]


def test_frames_needed_counts_blanks_between_equal_tokens():
    tokens = torch.tensor([[3, 3, 3], [3, 4, 3], [3, 3, 0], [0, 0, 0]])
    assert frames_needed(tokens, torch.tensor([3, 3, 2, 0])).tolist() == [5, 3, 3, 0]
    assert frames_needed(torch.zeros(2, 0), torch.tensor([0, 0])).tolist() == [0, 0]


def test_loss_is_the_weighted_sum():
    batch = a_batch([[3, 4], [5]])
    model, ctc, att = fake_model(batch, [8, 6])
    config = tiny_training("exp", ctc_weight=0.3, label_smoothing=0.0)
    loss, metrics = compute_loss(model, batch, config)
    ctc_sum = torch.nn.functional.ctc_loss(
        ctc.log_softmax(-1).transpose(0, 1), batch.tokens, torch.tensor([8, 6]),
        torch.tensor([2, 1]), reduction="sum",
    )
    nll = -att.log_softmax(-1)
    ce_sum = nll[0, 0, 3] + nll[0, 1, 4] + nll[0, 2, 1] + nll[1, 0, 5] + nll[1, 1, 1]
    assert float(loss) == pytest.approx(float(0.3 * ctc_sum + 0.7 * ce_sum), rel=1e-5)
    assert metrics.totals == {"utterances": 2, "frames": 14, "seconds": 2.0}
    assert metrics.averages()["att"] == pytest.approx(float(ce_sum / 5), rel=1e-5)


@pytest.mark.parametrize(
    "tokens, frames, trained",
    [
        ([2, 3, 4], 2, False),  # more tokens than frames
        ([2, 3, 4], 3, True),  # as many
        ([2, 2], 2, False),  # "a a" needs a blank
        ([2, 2], 3, True),
        ([2], 0, False),  # nothing left after subsampling
    ],
)
def test_an_utterance_that_cannot_be_aligned_is_named_and_changes_nothing(tokens, frames, trained):
    good = [3, 4, 5]
    batch = a_batch([good, tokens])
    model, ctc, att = fake_model(batch, [8, frames])
    loss, metrics = compute_loss(model, batch, tiny_training("exp"))
    loss.backward()
    assert all(torch.isfinite(tensor).all() for tensor in (loss, ctc.grad, att.grad))
    assert metrics.skipped == ([] if trained else [("more tokens than frames", "u1")])
    assert metrics.totals["utterances"] == 1 + trained
    assert metrics.totals["frames"] == 8 + frames * trained
    if not trained:
        assert not ctc.grad[1].any() and not att.grad[1].any()
        single = a_batch([good])
        rows = SimpleNamespace(
            encoder_lens=torch.tensor([8]),
            ctc_log_probs=ctc.detach()[:1].log_softmax(-1),
            log_probs=att.detach()[:1, :4].log_softmax(-1),
        )
        alone, _ = compute_loss(lambda b, a: rows, single, tiny_training("exp"))
        assert float(alone) == pytest.approx(float(loss), rel=1e-6)


def test_a_batch_in_which_nothing_can_be_aligned():
    batch = a_batch([[2, 3], [2, 2]])
    model, ctc, att = fake_model(batch, [1, 2])
    loss, metrics = compute_loss(model, batch, tiny_training("exp"))
    assert float(loss) == 0.0 and metrics.totals["utterances"] == 0 and metrics.averages() == {}


@pytest.mark.parametrize("encoder", ["transformer", "conformer", "lstm"])
def test_padding_does_not_change_the_loss_of_the_model(tmp_path, encoder):
    """A batch's loss is the sum of its utterances'; the model is in eval mode."""
    config = tiny_model(encoder=encoder, text_context="conditional", history_sentences=2)
    data = make_data(tmp_path, config)
    model = build_model(with_tokenizer(config, data.tokenizer)).eval()
    training = tiny_training(tmp_path)
    dataset = data.dataset(training=False)
    cuts = data.valid_cuts
    with torch.no_grad():
        together, metrics = compute_loss(model, dataset[cuts], training)
        alone = sum(compute_loss(model, dataset[[cut]], training)[0] for cut in cuts)
    assert float(together) == pytest.approx(float(alone), rel=1e-5)
    assert metrics.totals["utterances"] == len(cuts)


def test_ctc_weight_bounds():
    batch = a_batch([[3, 4]])
    for weight, name in ((1.0, "att"), (0.0, "ctc")):
        model, ctc, att = fake_model(batch, [8])
        config = replace(tiny_training("exp"), ctc_weight=weight)
        compute_loss(model, batch, config)[0].backward()
        unused = att if name == "att" else ctc
        assert not unused.grad.any()
