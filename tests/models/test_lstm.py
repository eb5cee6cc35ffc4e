"""The LSTM decoder: steps equal the whole sentence, batches equal singles, rows may be moved."""

import torch
from model_inputs import small_model

TOKENS = torch.tensor([[1, 3, 4, 5], [1, 8, 7, 6]])


def decoder_and_audio():
    decoder = small_model(decoder="lstm", decoder_layers=2).decoder
    torch.manual_seed(0)
    return decoder, torch.randn(2, 9, 16), torch.tensor([9, 5])


def test_steps_with_moved_rows_equal_teacher_forcing():
    decoder, out, lens = decoder_and_audio()
    full = decoder(TOKENS, decoder.prepare(out, lens))
    torch.testing.assert_close(full.exp().sum(-1), torch.ones(2, 4))
    state = decoder.prepare(out, lens).select(torch.tensor([0, 0, 1, 1]))
    assert state.rows == 4
    for u in range(4):
        log_probs, state = decoder.step(TOKENS[[0, 0, 1, 1], u], state)
        torch.testing.assert_close(log_probs[[1, 2]], full[:, u])
        if u == 1:
            state = state.select(torch.tensor([1, 0, 3, 3]))
    assert state.select(torch.tensor([2])).rows == 1


def test_padding_changes_nothing():
    decoder, out, lens = decoder_and_audio()
    both = decoder(TOKENS, decoder.prepare(out, lens))
    alone = decoder(TOKENS[1:], decoder.prepare(out[1:, :5], lens[1:]))
    torch.testing.assert_close(alone[0], both[1])


def test_a_token_depends_on_earlier_ones_only():
    decoder, out, lens = decoder_and_audio()
    changed = TOKENS.clone()
    changed[:, 3] = 2
    a, b = (decoder(t, decoder.prepare(out, lens)) for t in (TOKENS, changed))
    assert torch.equal(a[:, :3], b[:, :3]) and not torch.equal(a[:, 3], b[:, 3])
