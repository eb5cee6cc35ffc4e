"""LM training: streams, carried state, perplexity, resuming."""

import math

import pytest
import torch

from icefall_ctx.errors import InputError
from icefall_ctx.models.lm import LstmLm, LstmLmConfig, load_lm
from icefall_ctx.text.tokenizer import train_char
from icefall_ctx.train.lm import (
    IGNORE,
    LmTrainer,
    LmTrainOptions,
    chunks,
    count_words,
    evaluate,
    make_streams,
)

TEXT = [["ab ab", "ba", "abba"], ["a"], ["bb a", "ab"]]


def small_lm(vocab_size: int) -> LstmLm:
    torch.manual_seed(0)
    return LstmLm(LstmLmConfig(vocab_size=vocab_size, d_model=16, num_layers=1, dropout=0.1))


def test_streams_join_turns_with_one_shared_symbol():
    tokenizer = train_char(s for c in TEXT for s in c)
    first = make_streams(TEXT, tokenizer, carry_state=True)[1]
    assert first == [1, *tokenizer.encode("a"), 1]
    joined = make_streams(TEXT, tokenizer, carry_state=True)[2]
    assert joined == [1, *tokenizer.encode("bb a"), 1, *tokenizer.encode("ab"), 1]
    single = make_streams(TEXT, tokenizer, carry_state=False)
    assert len(single) == 6
    with pytest.raises(InputError, match="no sentence"):
        make_streams([[""]], tokenizer, carry_state=True)


@pytest.mark.parametrize("batch_size,size,seed", [(1, 3, None), (2, 2, 0), (8, 100, 1)])
def test_chunks_hold_every_token_once_in_order(batch_size, size, seed):
    streams = [[1, *range(10 * i + 2, 10 * i + 2 + n), 1] for i, n in enumerate([5, 1, 7, 3, 3])]
    seen, row_of = [], {}
    for chunk in chunks(streams, batch_size, size, seed):
        assert chunk.inputs.shape == chunk.targets.shape and chunk.targets.size(1) <= size
        for i, targets in enumerate(chunk.targets.tolist()):
            if chunk.fresh[i]:
                row_of[i] = []
                seen.append(row_of[i])
            row_of[i] += [t for t in targets if t != IGNORE]
    assert sorted(seen) == sorted(stream[1:] for stream in streams)


def test_perplexity_does_not_depend_on_batching():
    tokenizer = train_char(s for c in TEXT for s in c)
    lm = small_lm(tokenizer.vocab_size).eval()
    for carry_state in (True, False):
        streams = make_streams(TEXT, tokenizer, carry_state)
        expected = 0.0
        for stream in streams:
            log_probs, _ = lm(torch.tensor([stream[:-1]]))
            expected -= sum(float(log_probs[0, i, t]) for i, t in enumerate(stream[1:]))
        for batch_size, size in [(1, 2), (3, 4), (10, 100)]:
            got = evaluate(lm, streams, count_words(TEXT), batch_size, size)
            assert got.nll == pytest.approx(expected, rel=1e-5)
            assert got.tokens == sum(len(stream) - 1 for stream in streams)
        assert got.per_token == pytest.approx(math.exp(expected / got.tokens))


def test_carried_state_learns_what_a_sentence_alone_cannot():
    """The second turn repeats the first: only a carried state can know it."""
    turns = [f"{x}{y}{z}" for x in "abcd" for y in "abcd" for z in "abcd"]
    text = [[turn, turn] for turn in turns]
    tokenizer = train_char(turns)
    results = {}
    for carry_state in (True, False):
        lm = LstmLm(LstmLmConfig(tokenizer.vocab_size, d_model=32, num_layers=1, dropout=0.0))
        streams = make_streams(text, tokenizer, carry_state)
        optimizer = torch.optim.Adam(lm.parameters(), lr=0.02)
        trainer = LmTrainer.__new__(LmTrainer)
        trainer.lm, trainer.optimizer = lm, optimizer
        trainer.options = LmTrainOptions(batch_size=64, save_every=10**9)
        trainer.progress = type("P", (), {"step": 0, "epoch": 0})()
        for _ in range(60):
            trainer.progress.step, trainer.state = 0, None
            trainer._epoch(streams)
        results[carry_state] = evaluate(lm, streams, 1).per_token
    assert results[True] < 0.8 * results[False]


def trained(directory, tokenizer, epochs, **kwargs) -> LmTrainer:
    options = LmTrainOptions(batch_size=2, chunk=3, epochs=epochs, save_every=2, **kwargs)
    trainer = LmTrainer(
        small_lm(tokenizer.vocab_size), options, directory, tokenizer.fingerprint
    )
    return trainer


class Killed(Exception):
    pass


def test_killed_training_goes_on_as_if_nothing_happened(tmp_path, monkeypatch):
    tokenizer = train_char(s for c in TEXT for s in c)
    streams = make_streams(TEXT, tokenizer, carry_state=True)
    whole = trained(tmp_path / "a", tokenizer, 2)
    whole.fit(streams, streams, 1)

    broken = trained(tmp_path / "b", tokenizer, 2)
    save = broken._save

    def save_and_die():
        save()
        if broken.progress.epoch == 1 and broken.progress.step == 2:
            raise Killed

    monkeypatch.setattr(broken, "_save", save_and_die)
    with pytest.raises(Killed):
        broken.fit(streams, streams, 1)
    again = trained(tmp_path / "b", tokenizer, 2)
    assert (again.progress.epoch, again.progress.step) == (1, 2)
    again.fit(streams, streams, 1)
    for name, value in whole.lm.state_dict().items():
        torch.testing.assert_close(again.lm.state_dict()[name], value, rtol=0, atol=0)
    load_lm(tmp_path / "b" / "best.pt", tokenizer.fingerprint)


def test_other_settings_are_refused_when_resuming(tmp_path):
    tokenizer = train_char(s for c in TEXT for s in c)
    streams = make_streams(TEXT, tokenizer, carry_state=True)
    trained(tmp_path, tokenizer, 1).fit(streams, streams, 1)
    with pytest.raises(InputError, match="lr"):
        trained(tmp_path, tokenizer, 2, lr=0.5)
