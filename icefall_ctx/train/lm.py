"""Training an LSTM LM on conversations, with the state carried across turns, or per sentence.

A conversation is one stream ``1 y_1 .. y_n 1 z_1 ..`` (1 is both ``<sos>`` and ``<eos>``), cut
into chunks; a batch holds the next chunk of several conversations, and each row's state goes on
from its previous chunk.  Training per sentence is the same with streams of one sentence, so the
two perplexities are over the same tokens.
"""

from __future__ import annotations

import json
import logging
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from tqdm import tqdm

from icefall_ctx.errors import InputError, Pathlike
from icefall_ctx.models.lm import (
    IGNORE,
    SOS_EOS,
    LmState,
    LstmLm,
    load_lm_file,
    save_lm,
    token_nll,
)
from icefall_ctx.text.tokenizer import Tokenizer

Stream = List[int]


@dataclass(frozen=True)
class LmTrainOptions:
    """How to train.

    Attributes:
      carry_state: carry the state across the turns of a conversation, else start each sentence
        anew.
      batch_size: conversations (or sentences) side by side.
      chunk: tokens a row and step, through which gradients flow.
      lr: of Adam; halved after an epoch that does not improve the dev perplexity.
    """

    carry_state: bool = True
    batch_size: int = 32
    chunk: int = 60
    epochs: int = 10
    lr: float = 1e-3
    clip: float = 5.0
    seed: int = 0
    save_every: int = 500  # steps


class Chunk(NamedTuple):
    """One step: inputs and targets (N, U), lens (N,), rows (N,) that start a new stream."""

    inputs: Tensor
    targets: Tensor
    lens: Tensor
    fresh: Tensor


class Perplexity(NamedTuple):
    """Negative log-likelihood over tokens, and what to divide it by."""

    nll: float
    tokens: int
    words: int

    @property
    def per_token(self) -> float:
        return math.exp(self.nll / max(1, self.tokens))

    @property
    def per_word(self) -> float:
        """Comparable between tokenizers; sentence ends count as words."""
        return math.exp(min(700.0, self.nll / max(1, self.words)))


def make_streams(
    conversations: Sequence[Sequence[str]], tokenizer: Tokenizer, carry_state: bool
) -> List[Stream]:
    """Token streams ``1 y .. 1 z .. 1`` of whole conversations, or of single sentences."""
    streams: List[Stream] = []
    for conversation in conversations:
        encoded = [[SOS_EOS, *tokenizer.encode(sentence)] for sentence in conversation]
        encoded = [ids for ids in encoded if len(ids) > 1]
        if carry_state and encoded:
            streams.append([*(i for ids in encoded for i in ids), SOS_EOS])
        elif not carry_state:
            streams += [[*ids, SOS_EOS] for ids in encoded]
    if not streams:
        raise InputError("the language model text has no sentence with tokens")
    return streams


def count_words(conversations: Sequence[Sequence[str]]) -> int:
    """Words and sentence ends."""
    return sum(len(s.split()) + 1 for conversation in conversations for s in conversation)


def chunks(
    streams: Sequence[Stream], batch_size: int, size: int, order_seed: Optional[int] = None
) -> Iterator[Chunk]:
    """Every token of every stream once, a stream staying in its row until its end.

    Streams begin in random order with ``order_seed``, those of about the same length together,
    else in the order of their length.
    """
    waiting = _order(streams, batch_size, order_seed)
    rows: List[Stream] = [[] for _ in range(min(batch_size, len(streams)))]
    position = [0] * len(rows)
    while True:
        fresh = torch.zeros(len(rows), dtype=torch.bool)
        for i in range(len(rows)):
            if position[i] >= len(rows[i]) - 1 and waiting:
                rows[i], position[i], fresh[i] = streams[waiting.pop()], 0, True
        left = [max(0, len(row) - 1 - start) for row, start in zip(rows, position)]
        if not any(left):
            return
        yield _cut(rows, position, [min(size, n) for n in left], fresh)
        position = [start + size for start in position]


def _order(streams: Sequence[Stream], batch_size: int, seed: Optional[int]) -> List[int]:
    order = sorted(range(len(streams)), key=lambda i: len(streams[i]))
    if seed is None:
        return order
    rng = random.Random(seed)
    order.sort(key=lambda i: len(streams[i]) * rng.uniform(0.8, 1.25))
    groups = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    rng.shuffle(groups)
    return [i for group in groups for i in group]


def _cut(
    rows: Sequence[Stream], starts: Sequence[int], counts: Sequence[int], fresh: Tensor
) -> Chunk:
    """Rows that have run out are padding of length one, whose targets do not count."""
    width = max(counts)
    inputs = torch.full((len(rows), width), SOS_EOS)
    targets = torch.full((len(rows), width), IGNORE)
    for i, (row, start, count) in enumerate(zip(rows, starts, counts)):
        if count:
            inputs[i, :count] = torch.tensor(row[start : start + count])
            targets[i, :count] = torch.tensor(row[start + 1 : start + count + 1])
    return Chunk(inputs, targets, torch.tensor(counts).clamp(min=1), fresh)


def advance(lm: LstmLm, chunk: Chunk, state: LmState) -> Tuple[Tensor, int, LmState]:
    """Summed ``-log P`` of a chunk, its tokens, and the state to go on from."""
    device = lm.embed.weight.device
    keep = (~chunk.fresh).to(device)[None, :, None]
    state = LmState(state.h.detach() * keep, state.c.detach() * keep)
    log_probs, state = lm(chunk.inputs.to(device), state, chunk.lens)
    loss = token_nll(log_probs, chunk.targets.to(device)).sum()
    return loss, int((chunk.targets != IGNORE).sum()), state


@torch.no_grad()
def evaluate(
    lm: LstmLm, streams: Sequence[Stream], words: int, batch_size: int = 32, chunk: int = 60
) -> Perplexity:
    """Perplexity over all streams; rows start at zero and carry their state to their end."""
    lm.eval()
    state = lm.initial_state(min(batch_size, len(streams)))
    nll, tokens = 0.0, 0
    for part in chunks(streams, batch_size, chunk):
        loss, count, state = advance(lm, part, state)
        nll, tokens = nll + float(loss), tokens + count
    return Perplexity(nll, tokens, words)


@dataclass
class Progress:
    """Where training stands; ``step`` counts chunks within the epoch."""

    epoch: int = 0
    step: int = 0
    lr: float = 0.0
    best: float = math.inf


class LmTrainer:
    """Trains one model; killed at any moment, the next run goes on from the last whole file.

    Files in ``exp_dir``: ``best.pt`` for use, ``last.pt`` for resuming.
    """

    def __init__(
        self, lm: LstmLm, options: LmTrainOptions, exp_dir: Pathlike, fingerprint: str
    ):
        self.lm, self.options, self.fingerprint = lm, options, fingerprint
        self.last, self.best = Path(exp_dir) / "last.pt", Path(exp_dir) / "best.pt"
        self.optimizer = torch.optim.Adam(lm.parameters(), lr=options.lr)
        self.progress = Progress(lr=options.lr)
        self.state: Optional[LmState] = None
        torch.manual_seed(options.seed)
        if self.last.is_file():
            self._resume()

    def fit(self, train: Sequence[Stream], dev: Sequence[Stream], dev_words: int) -> float:
        """Train to ``options.epochs``; returns the best dev perplexity per token."""
        while self.progress.epoch < self.options.epochs:
            self._epoch(train)
            dev_perplexity = evaluate(self.lm, dev, dev_words)
            self._finish_epoch(dev_perplexity)
        return self.progress.best

    def _epoch(self, train: Sequence[Stream]) -> None:
        options, progress = self.options, self.progress
        if self.state is None:
            self.state = self.lm.initial_state(min(options.batch_size, len(train)))
        self.lm.train()
        seed = options.seed * 1000 + progress.epoch
        total = sum(len(stream) - 1 for stream in train)
        nll, tokens = 0.0, 0
        with tqdm(total=total, unit="tok", desc=f"epoch {progress.epoch + 1}", disable=None) as bar:
            for i, chunk in enumerate(chunks(train, options.batch_size, options.chunk, seed)):
                count = int((chunk.targets != IGNORE).sum())
                if i >= progress.step:
                    nll, tokens = nll + self._update(chunk), tokens + count
                    bar.set_postfix_str(f"ppl {math.exp(nll / max(1, tokens)):.1f}", refresh=False)
                bar.update(count)

    def _update(self, chunk: Chunk) -> float:
        loss, count, self.state = advance(self.lm, chunk, self.state)
        self.optimizer.zero_grad(set_to_none=True)
        (loss / max(1, count)).backward()
        torch.nn.utils.clip_grad_norm_(self.lm.parameters(), self.options.clip)
        self.optimizer.step()
        self.progress.step += 1
        if self.progress.step % self.options.save_every == 0:
            self._save()
        return float(loss)

    def _finish_epoch(self, dev: Perplexity) -> None:
        progress = self.progress
        logging.info(
            f"epoch {progress.epoch + 1}: dev perplexity {dev.per_token:.2f} per token, "
            f"{dev.per_word:.1f} per word, lr {progress.lr:g}"
        )
        if dev.per_token < progress.best:
            progress.best = dev.per_token
            save_lm(self.best, self.lm, self.fingerprint)
        else:
            progress.lr /= 2
            self._set_lr()
        progress.epoch, progress.step, self.state = progress.epoch + 1, 0, None
        self._save()

    def _set_lr(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.progress.lr

    def _save(self) -> None:
        """``last.pt`` is also a language model: same keys as ``best.pt`` and some more."""
        tensors: Dict[str, Tensor] = {"rng": torch.get_rng_state()}
        if self.state is not None:
            tensors.update(h=self.state.h.detach(), c=self.state.c.detach())
        save_lm(
            self.last,
            self.lm,
            self.fingerprint,
            optimizer=self.optimizer.state_dict()["state"],
            progress=json.dumps([vars(self.progress), vars(self.options)]),
            tensors=tensors,
        )

    def _resume(self) -> None:
        content = load_lm_file(self.last, str(self.lm.embed.weight.device))
        progress, options = json.loads(content["progress"])
        changed = {k for k, v in vars(self.options).items() if k != "epochs" and options[k] != v}
        if content["fingerprint"] != self.fingerprint or changed:
            what = sorted(changed) or "the vocabulary"
            raise InputError(f"{self.last}: was trained with other settings ({what}): "
                             "choose another --exp-dir or remove it")
        self.lm.load_state_dict(content["model"])
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": content["optimizer"], "param_groups": groups})
        self.progress = Progress(**progress)
        self._set_lr()
        tensors = content["tensors"]
        torch.set_rng_state(tensors["rng"].cpu())
        self.state = LmState(tensors["h"], tensors["c"]) if "h" in tensors else None
        logging.info(f"going on from {self.last}: epoch {self.progress.epoch + 1}")
