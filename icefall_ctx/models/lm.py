"""An LSTM language model whose state can be carried from turn to turn of a conversation.

``<sos>`` and ``<eos>`` share the id 1, so a conversation is one stream

    1 y_1 .. y_n 1 z_1 .. z_m 1 ...

and carrying the state costs nothing: the state after ``1 y_1 .. y_n`` is what the next
sentence, whose first input is again 1, starts from.  Beam search, n-best rescoring and the
trainer use this one interface.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from icefall_ctx.errors import InputError
from icefall_ctx.files import read_torch, write_torch

SOS_EOS = 1
IGNORE = -100  # target of padding


@dataclass(frozen=True)
class LstmLmConfig:
    """Size of the model; the defaults are those of the papers (4 layers of 1024)."""

    vocab_size: int
    d_model: int = 1024
    num_layers: int = 4
    dropout: float = 0.2
    tie_weights: bool = False


class LmState(NamedTuple):
    """What the LSTM remembers: ``h`` and ``c``, both (layers, N, d)."""

    h: Tensor
    c: Tensor

    def select(self, indices: Tensor) -> LmState:
        """Rows ``indices`` (M,) of this state: reorders, drops and repeats hypotheses."""
        return LmState(self.h.index_select(1, indices), self.c.index_select(1, indices))

    def detach(self) -> LmState:
        """The same values without their graph (truncated back-propagation)."""
        return LmState(self.h.detach(), self.c.detach())


class LstmLm(nn.Module):
    """Embedding, LSTM layers, and a linear layer over the vocabulary."""

    def __init__(self, config: LstmLmConfig):
        super().__init__()
        self.config = config
        d = config.d_model
        self.embed = nn.Embedding(config.vocab_size, d)
        dropout = config.dropout if config.num_layers > 1 else 0.0
        self.lstm = nn.LSTM(d, d, config.num_layers, batch_first=True, dropout=dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.output = nn.Linear(d, config.vocab_size)
        if config.tie_weights:
            nn.init.normal_(self.embed.weight, std=d**-0.5)
            self.output.weight = self.embed.weight

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    def initial_state(self, n: int) -> LmState:
        """The state before any text, for ``n`` rows."""
        zeros = self.embed.weight.new_zeros(self.config.num_layers, n, self.config.d_model)
        return LmState(zeros, zeros)

    def forward(
        self, tokens: Tensor, state: Optional[LmState] = None, lens: Optional[Tensor] = None
    ) -> Tuple[Tensor, LmState]:
        """Log-probabilities of the token after each input token.

        Args:
          tokens: (N, U) input ids, each row starting with ``<sos/eos>``.
          state: where each row goes on from; None is the start of a conversation.
          lens: (N,) input tokens of each row, all >= 1; None takes all U.  The state returned
            is the one after ``lens[i]`` tokens, so padding never enters it.
        Returns:
          log_probs (N, U, V), normalised float32, and the state after the last token.
        """
        x = self.dropout(self.embed(tokens))  # (N, U, d)
        state = self.initial_state(tokens.size(0)) if state is None else state
        if lens is None or bool((lens == tokens.size(1)).all()):  # packing costs time
            x, (h, c) = self.lstm(x, (state.h, state.c))
        else:
            packed = pack_padded_sequence(x, lens.cpu(), batch_first=True, enforce_sorted=False)
            packed, (h, c) = self.lstm(packed, (state.h, state.c))
            x, _ = pad_packed_sequence(packed, batch_first=True, total_length=tokens.size(1))
        logits = self.output(self.dropout(x))
        return logits.float().log_softmax(dim=-1), LmState(h, c)

    def step(self, tokens: Tensor, state: LmState) -> Tuple[Tensor, LmState]:
        """One token a row: tokens (N,) -> log_probs (N, V) of the next one, and the new state."""
        log_probs, state = self(tokens.unsqueeze(1), state)
        return log_probs.squeeze(1), state

    def score(
        self, sentences: Sequence[Sequence[int]], state: Optional[LmState] = None
    ) -> Tuple[Tensor, LmState]:
        """``log P(y_1 .. y_n <eos>)`` of whole sentences given as ids without ``<sos/eos>``.

        Returns the scores (N,), natural logarithm, and the state each sentence leaves behind
        for the next turn.
        """
        inputs, targets, lens = lm_batch(sentences)
        device = self.embed.weight.device
        log_probs, state = self(inputs.to(device), state, lens)
        return -token_nll(log_probs, targets.to(device)).sum(dim=1), state


def lm_batch(sentences: Sequence[Sequence[int]]) -> Tuple[Tensor, Tensor, Tensor]:
    """Inputs (N, U) ``<sos> y``, targets (N, U) ``y <eos>`` padded by IGNORE, and lens (N,)."""
    inputs = [torch.tensor([SOS_EOS, *ids], dtype=torch.long) for ids in sentences]
    targets = [torch.tensor([*ids, SOS_EOS], dtype=torch.long) for ids in sentences]
    lens = torch.tensor([len(row) for row in inputs])
    return (
        pad_sequence(inputs, batch_first=True),
        pad_sequence(targets, batch_first=True, padding_value=IGNORE),
        lens,
    )


def token_nll(log_probs: Tensor, targets: Tensor) -> Tensor:
    """``-log P`` of every target (N, U) under log_probs (N, U, V); zero on padding."""
    real = targets != IGNORE
    picked = log_probs.gather(2, targets.masked_fill(~real, 0).unsqueeze(2)).squeeze(2)
    return -picked.masked_fill(~real, 0.0)


def save_lm(path: Union[str, Path], lm: LstmLm, fingerprint: str, **extra: Any) -> None:
    """One file with weights, size and the fingerprint of the vocabulary, written atomically.

    ``extra`` is for the trainer: tensors, strings and containers of them.
    """
    # The settings travel as JSON: torch 1.13's safe loader refuses a plain float.
    config = json.dumps(asdict(lm.config))
    content = {"model": lm.state_dict(), "config": config, "fingerprint": fingerprint}
    content.update(extra)
    write_torch(path, content)


def load_lm(
    path: Union[str, Path], fingerprint: Optional[str] = None, device: str = "cpu"
) -> LstmLm:
    """The model in ``path`` in eval mode, refused if it was trained on another vocabulary."""
    content = load_lm_file(path, device)
    if fingerprint is not None and content["fingerprint"] != fingerprint:
        raise InputError(
            f"{path}: language model of vocabulary {content['fingerprint']}, but the model uses "
            f"{fingerprint}: train it with the tokenizer of the model"
        )
    lm = LstmLm(LstmLmConfig(**json.loads(content["config"])))
    lm.load_state_dict(content["model"])
    return lm.to(device).eval()


def load_lm_file(path: Union[str, Path], device: str = "cpu") -> dict:
    """The raw content of a checkpoint; names the file if it is missing or something else."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such language model, train one with local/train_lm.py")
    content = read_torch(path, device, "a language model")
    missing = {"model", "config", "fingerprint"} - set(content if isinstance(content, dict) else ())
    if missing:
        raise InputError(f"{path}: not a language model, it lacks {sorted(missing)}")
    return content
