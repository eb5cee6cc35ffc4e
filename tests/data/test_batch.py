"""Histories capped and padded, chains in levels, records moved."""

import random

import pytest
import torch

from icefall_ctx.data.batch import (
    AudioHistory,
    Batch,
    TokenHistory,
    cap_history,
    length_mask,
    to_device,
)


def test_the_newest_is_kept():
    history = [([1, 2, 3], True), ([], False), ([4, 5], False), ([6], True)]
    assert cap_history(history, 2, 100) == [([4, 5], False), ([6], True)]
    assert cap_history(history, 9, 4) == [([3], True), ([4, 5], False), ([6], True)]
    assert cap_history(history, 9, 1) == [([6], True)]
    assert cap_history(history, 0, 9) == cap_history(history, 9, 0) == cap_history([], 2, 2) == []


@pytest.mark.parametrize("sentences, tokens", [(2, 5), (3, 7), (1, 1)])
def test_a_longer_history_never_keeps_less(sentences, tokens):
    """An hour of turns, many of them empty: bounded, and never shrinking with one token more."""
    rng = random.Random(0)
    history, kept_before = [], 0
    for _ in range(400):
        history.append(([rng.randrange(9) for _ in range(rng.choice([0, 0, 1, 4]))], False))
        kept = cap_history(history, sentences, tokens)
        flat = [t for sentence, _ in history for t in sentence]
        found = [t for sentence, _ in kept for t in sentence]
        assert len(kept) <= sentences and len(found) <= tokens
        assert found == flat[len(flat) - len(found) :], "a suffix of what was said"
        if history[-1][0] == []:
            assert len(found) == kept_before, "silence erases nothing"
        kept_before = len(found)


def test_histories_are_aligned_to_the_right():
    history = TokenHistory.from_lists([[[7, 8], [9]], [], [[5]]], [[True, False], [], [True]], 2)
    assert history.tokens.tolist() == [[[7, 8], [9, 0]], [[0, 0], [0, 0]], [[0, 0], [5, 0]]]
    assert history.lens.tolist() == [[2, 1], [0, 0], [0, 1]]
    assert history.same_speaker.tolist() == [[True, False], [False, False], [False, True]]
    assert history.has_history.tolist() == [True, False, True]
    assert history.mask.sum(dim=(1, 2)).tolist() == [3, 0, 1]


def test_no_history_at_all_is_defined():
    history = TokenHistory.from_lists([[], []])
    assert history.tokens.shape == (2, 1, 1) and not history.has_history.any()


def test_levels_of_chains():
    """Six utterances; turn 0 of conversation x is its own past."""
    features = [torch.full((3 + i, 2), float(i)) for i in range(4)]
    chains = [(-1, 0), (0, 0), (0, 1), (1, 2), (0, 1), (-1, -1)]
    history = AudioHistory.from_chains(features, chains)
    first, second = history.levels
    assert first.rows.tolist() == [0, 1] and first.previous.tolist() == [-1, -1]
    for chain, index in zip(chains, history.previous.tolist()):
        if chain[1] < 0:
            assert index == -1
            continue
        assert second.rows[index] == chain[1]
        before = int(second.previous[index])
        assert (first.rows[before] if before >= 0 else -1) == chain[0]
    assert second.rows.numel() == 4, "two utterances share the past (0, 1)"
    assert history.lens.tolist() == [3, 4, 5, 6] and history.features.shape == (4, 6, 2)
    assert torch.equal(history.features[2, :5], features[2])
    assert history.features[0, 3:].abs().sum() == 0


def test_length_mask():
    assert length_mask(torch.tensor([[0, 2]]), 3).tolist() == [[[False] * 3, [True, True, False]]]


def test_every_tensor_moves():
    n = ["a", "b"]
    batch = Batch(
        n, n, n, [0, 0], n, n, n,
        torch.zeros(2, 4, 3), torch.tensor([4, 4]), torch.zeros(2, 1).long(), torch.tensor([1, 1]),
        history=TokenHistory.from_lists([[[1]], []]),
        audio_history=AudioHistory.from_chains([torch.zeros(4, 3)], [(0,), (-1,)]),
        speaker_features=torch.zeros(2, 5),
    )
    moved = to_device(batch, torch.device("meta"))
    tensors = [
        moved.features, moved.tokens, moved.history.lens, moved.audio_history.features,
        moved.audio_history.levels[0].rows, moved.audio_history.previous, moved.speaker_features,
    ]
    assert all(tensor.device.type == "meta" for tensor in tensors)
    assert batch.features.device.type == "cpu" and len(moved) == 2 and moved.utt_ids == n
