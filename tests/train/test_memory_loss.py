"""Sampled entries and labels, the balanced loss and the permutation trick, and a whole run."""

import math
import random

import pytest
import torch
from synthetic import make_data, tiny_model, tiny_training

from icefall_ctx.models.asr import build_model
from icefall_ctx.models.memory import MemoryOutput
from icefall_ctx.models.memory_entries import MemoryScores
from icefall_ctx.text.splitting import WordSplitter
from icefall_ctx.train.loop import train
from icefall_ctx.train.memory_loss import balanced, permuted, swap_with_random
from icefall_ctx.train.memory_sampler import MemorySampler, Sentence

# ids 3 .. 9 begin a word, 10 .. 12 go on
PIECES = ["<blk>", "<sos/eos>", "<unk>", *(f"▁{c}" for c in "abcdefg"), "x", "y", "z"]


def labels_of(tokens, entries):
    sentence = Sentence(tokens, WordSplitter(PIECES))
    return sentence.labels({tuple(e): i for i, e in enumerate(entries, 1)})


def test_labels_of_a_hand_made_batch():
    #         a  b x  c  d y z  at the end
    tokens = [3, 4, 10, 5, 6, 11, 12]
    assert labels_of(tokens, [[6, 11, 12]]) == [0, 0, 0, 0, 1, 1, 1, 0]
    assert labels_of(tokens, [[3], [4, 10]]) == [1, 2, 2, 0, 0, 0, 0, 0]  # adjacent
    assert labels_of(tokens, [[3], [3, 4, 10]]) == [2, 2, 2, 0, 0, 0, 0, 0]  # longest
    assert labels_of(tokens, [[4], [10], [11, 12]]) == [0] * 8  # whole words only
    assert labels_of([3, 3], [[3]]) == [1, 1, 0]


def batch_of(*rows):
    lens = torch.tensor([len(r) for r in rows])
    tokens = torch.nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], batch_first=True)
    return tokens, lens


def test_sampled_entries_are_distinct_and_labels_point_at_their_tokens():
    pool = [[3, 4, 10, 5], [6, 11, 12, 7], [8, 9, 3, 4], [5, 6, 7]]
    sampler = MemorySampler(PIECES, pool, size=12, empty=0.0, span_rate=0.6, rare_rate=0.6)
    tokens, lens = batch_of([3, 4, 10, 5], [7, 8])
    for seed in range(20):
        memory = sampler.sample(tokens, lens, random.Random(seed))
        entries = [
            tuple(row[1 : n - 1].tolist())
            for row, n in zip(memory.entries.tokens, memory.entries.lens)
        ]
        assert len(set(entries)) == len(entries) <= 12
        assert memory.labels.shape == (2, 5)
        for row, labels in zip(tokens.tolist(), memory.labels.tolist()):
            for entry in set(labels) - {0}:
                inside = [t for t, label in zip(row, labels) if label == entry]
                assert tuple(inside) == entries[entry - 1]
    again = sampler.sample(tokens, lens, random.Random(19))
    assert torch.equal(again.entries.tokens, memory.entries.tokens)


def test_batches_without_a_relevant_entry():
    sampler = MemorySampler(PIECES, [[3, 4], [5, 6], [7, 8]], size=6, empty=1.0)
    tokens, lens = batch_of([3, 4], [9])
    memory = sampler.sample(tokens, lens, random.Random(0))
    assert not memory.labels.any() and memory.entries.lens.numel() > 0
    alone = MemorySampler(PIECES, [], size=6, empty=1.0).sample(tokens, lens, random.Random(0))
    assert alone.entries.lens.numel() == 1  # nothing else to show


def test_rare_words_as_distractors():
    """With all of them asked for, every distractor begins at a word that the pool has once."""
    pool = [[3, 4, 3], [3, 4], [5, 3], [4, 6, 11, 3], [7, 4], [3, 8]]  # 5 .. 8 once each
    tokens, lens = batch_of([9, 4])
    for rare_count, first in ((1, {5, 6, 7, 8}), (4, {4, 5, 6, 7, 8}), (0, set(range(3, 9)))):
        sampler = MemorySampler(
            PIECES, pool, size=8, empty=1.0, rare_count=rare_count, rare_distractors=1.0
        )
        seen = set()
        for seed in range(30):
            memory = sampler.sample(tokens, lens, random.Random(seed))
            seen |= set(memory.entries.tokens[:, 1].tolist())
        assert seen == first, rare_count  # "4" is said, but "4 3" is not


def test_a_word_that_the_pool_lacks_is_rare():
    """A pool is a part of a large corpus: the other words of the corpus are no less rare."""
    sampler = MemorySampler(
        PIECES, [[3, 4]] * 9, size=8, empty=0.0, span_rate=0.0, rare_rate=1.0, max_words=1
    )
    tokens, lens = batch_of([3, 9, 4], [9, 8, 3])
    for seed in range(10):
        labels = sampler.sample(tokens, lens, random.Random(seed)).labels > 0
        assert labels.tolist() == [[False, True, False, False], [True, True, False, False]]


def test_balanced_is_the_mean_of_both_classes():
    values = torch.tensor([[1.0, 2.0, 9.0], [4.0, 50.0, 60.0]])
    inside = torch.tensor([[False, True, True], [False, False, True]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    assert balanced(values, inside, mask).item() == pytest.approx(4 * ((1 + 4) / 2 + (2 + 9) / 2))
    assert balanced(values, ~mask, mask).item() == pytest.approx(1 + 2 + 9 + 4)
    assert balanced(values, inside, torch.zeros_like(mask)).item() == 0.0


def output_of(n=1, u=400, v=6):
    torch.manual_seed(0)
    baseline, memory = (torch.randn(n, u, v, requires_grad=True) for _ in range(2))
    gate = torch.full((n, u, 1), 0.3)
    scores = [MemoryScores(torch.zeros(n, u, 3))]
    return MemoryOutput(baseline.log_softmax(-1), memory.log_softmax(-1), gate, scores), (
        baseline,
        memory,
    )


def test_permuted_probabilities_sum_to_one_and_carry_no_gradient():
    output, leaves = output_of()
    targets = torch.randint(0, 6, (1, 400))
    inside = torch.arange(400).unsqueeze(0) % 2 == 0
    mask = torch.arange(400).unsqueeze(0) < 300
    found = permuted(output, targets, inside, mask, 0.5)
    for probs, before, leaf, own in zip(
        found, (output.baseline, output.memory), leaves, (inside, ~inside)
    ):
        torch.testing.assert_close(probs.sum(-1), torch.ones(1, 400))
        changed = (probs - before.exp()).abs().amax(-1) > 1e-7
        assert not bool((changed & ~(own & mask)).any())  # other class and padding untouched
        assert 0.25 < changed[own & mask].float().mean() < 0.55  # p = 0.5, a sixth hits itself
        (grad,) = torch.autograd.grad(probs.log().sum(), leaf, retain_graph=True)
        assert not grad[changed].any() and grad[~own].any()


def test_swap_exchanges_the_target_with_one_other_token():
    probs = torch.tensor([[[0.1, 0.2, 0.3, 0.4]]])
    torch.manual_seed(1)
    swapped = swap_with_random(probs, torch.tensor([[3]]), torch.tensor([[True]]))
    assert sorted(swapped.flatten().tolist()) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert int((swapped != probs).sum()) in (0, 2)


@pytest.mark.parametrize("kind, empty", [("mem", 1.0), ("2mem", 0.0)])
def test_a_run_from_a_baseline_keeps_it_and_learns_the_memory(tmp_path, kind, empty):
    plain = tiny_model(encoder_layers=1)
    data = make_data(tmp_path, plain)
    train(plain, data.data, tiny_training(tmp_path / "base", num_epochs=1), data)
    config = tiny_model(
        encoder_layers=1, memory=kind, memory_encoder_layers=1, memory_decoder_layers=1
    )
    options = tiny_training(
        tmp_path / kind,
        num_epochs=1,
        init_from=tmp_path / "base" / "epoch-1.pt",
        freeze="encoder.,ctc.,decoder.baseline.",
        memory_size=8,
        memory_empty=empty,
        memory_teacher_forcing=2,
        memory_span_rate=0.8,
    )
    trainer = train(config, data.data, options, make_data(tmp_path, config))
    saved = torch.load(tmp_path / "base" / "epoch-1.pt", weights_only=True)["model"]
    for name, value in trainer.model.state_dict().items():
        source = name.replace("decoder.baseline.", "decoder.")
        if name.startswith(("encoder.", "ctc.", "decoder.baseline.", "feature_")):
            assert torch.equal(value, saved[source]), name
    assert trainer.problems.counts() == {} and math.isfinite(trainer.valid_losses[1])
    fresh = build_model(trainer.model.config).decoder.gate.weight
    assert not torch.equal(trainer.model.decoder.gate.weight, fresh)
