"""The LSTM LM: state, padding, incremental use, checkpoints."""

import pytest
import torch
from torch import nn

from icefall_ctx.errors import InputError
from icefall_ctx.models.lm import (
    IGNORE,
    LstmLm,
    LstmLmConfig,
    lm_batch,
    load_lm,
    save_lm,
    token_nll,
)


@pytest.fixture
def lm():
    torch.manual_seed(0)
    return LstmLm(LstmLmConfig(vocab_size=11, d_model=16, num_layers=2)).eval()


def test_distributions_are_normalised(lm):
    log_probs, _ = lm(torch.randint(1, 11, (3, 5)))
    assert log_probs.shape == (3, 5, 11)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, 5))


def test_steps_equal_one_forward(lm):
    tokens = torch.randint(1, 11, (3, 5))
    expected, _ = lm(tokens)
    state = lm.initial_state(3)
    for t in range(5):
        log_probs, state = lm.step(tokens[:, t], state)
        torch.testing.assert_close(log_probs, expected[:, t])


def test_carried_state_is_one_long_stream(lm):
    first, second = [3, 4, 5], [6, 7]
    _, state = lm.score([first])
    carried, _ = lm.score([second], state)
    stream = torch.tensor([[1, *first, 1, *second]])
    log_probs, _ = lm(stream)
    expected = log_probs[0, 4, 6] + log_probs[0, 5, 7] + log_probs[0, 6, 1]
    torch.testing.assert_close(carried[0], expected)
    alone, _ = lm.score([second])
    assert not torch.allclose(alone, carried)


def test_padding_changes_neither_scores_nor_state(lm):
    sentences = [[3], [4, 5, 6, 7, 8], []]
    together, state = lm.score(sentences)
    for i, sentence in enumerate(sentences):
        alone, state_alone = lm.score([sentence])
        torch.testing.assert_close(together[i], alone[0])
        torch.testing.assert_close(state.h[:, i], state_alone.h[:, 0])


def test_select_reorders_and_repeats(lm):
    _, state = lm.score([[3], [4, 5], [6]])
    picked = state.select(torch.tensor([2, 0, 2, 2]))
    log_probs, _ = lm.step(torch.tensor([9, 9, 9, 9]), picked)
    expected, _ = lm.step(torch.tensor([9, 9, 9]), state)
    torch.testing.assert_close(log_probs, expected[[2, 0, 2, 2]])


def test_token_nll_equals_cross_entropy(lm):
    inputs, targets, lens = lm_batch([[3, 4], [5]])
    log_probs, _ = lm(inputs, lens=lens)
    ours = token_nll(log_probs, targets)
    reference = nn.functional.nll_loss(
        log_probs.transpose(1, 2), targets, ignore_index=IGNORE, reduction="none"
    )
    torch.testing.assert_close(ours, reference)


def test_checkpoint_round_trip_and_foreign_vocabulary(lm, tmp_path):
    path = tmp_path / "lm.pt"
    save_lm(path, lm, "abc")
    loaded = load_lm(path, "abc")
    torch.testing.assert_close(loaded.score([[3, 4]])[0], lm.score([[3, 4]])[0])
    with pytest.raises(InputError, match="vocabulary abc"):
        load_lm(path, "other")
    with pytest.raises(InputError, match="no such language model"):
        load_lm(tmp_path / "none.pt")
    torch.save({"model": {}}, tmp_path / "asr.pt")
    with pytest.raises(InputError, match="not a language model"):
        load_lm(tmp_path / "asr.pt")


def test_tied_weights_are_one_tensor():
    tied = LstmLm(LstmLmConfig(vocab_size=11, d_model=16, num_layers=1, tie_weights=True))
    assert tied.output.weight is tied.embed.weight
