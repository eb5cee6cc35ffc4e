"""The objective of the word memory (B4).

    loss = CE(P, Y) + lambda * mean_m CE(scores_m, label)

Both cross entropies are balanced: the mean over tokens outside of memory phrases plus the mean
over tokens inside.  They are multiplied by the number of tokens, which makes them sums over the
batch as all losses here are.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import partial
from typing import Callable, List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig, TrainConfig
from icefall_ctx.data.batch import Batch
from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.models.asr import AsrOutput
from icefall_ctx.models.memory import MemoryOutput, mix
from icefall_ctx.text.normalize import get_normalizer
from icefall_ctx.train.losses import (
    Augment,
    LossFunction,
    compute_loss,
    joint_loss,
    smoothed_cross_entropy,
)
from icefall_ctx.train.memory_sampler import MemorySampler
from icefall_ctx.train.metrics import Metrics

POOL = 20_000  # training sentences that the memory's entries are drawn from


def balanced(values: Tensor, inside: Tensor, mask: Tensor) -> Tensor:
    """(mean outside + mean inside) x tokens; an empty class counts nothing.

    Args:
      values, inside, mask: (N, U); ``mask`` is False at padding.
    """
    total = values.new_zeros(())
    for part in (mask & ~inside, mask & inside):
        total = total + values.masked_fill(~part, 0.0).sum() / part.sum().clamp(min=1)
    return total * mask.sum()


def swap_with_random(probs: Tensor, targets: Tensor, where: Tensor) -> Tensor:
    """Swap the probability of the target with that of a random token.

    Args:
      probs: (N, U, V).
      targets: (N, U).
      where: (N, U) the rows to change; they carry no gradient, the others keep theirs.
    """
    detached = probs.detach()
    gold = targets.unsqueeze(-1)
    other = torch.randint_like(gold, probs.size(-1))
    swapped = detached.scatter(-1, gold, detached.gather(-1, other))
    swapped = swapped.scatter(-1, other, detached.gather(-1, gold))
    return torch.where(where.unsqueeze(-1), swapped, probs)


def permuted(
    output: MemoryOutput, targets: Tensor, inside: Tensor, mask: Tensor, p: float
) -> Tuple[Tensor, Tensor]:
    """P_baseline and P_memory under the permutation trick, (N, U, V) each.

    Of the tokens of ``mask`` a share ``p`` is made useless in the decoder that should not have
    the say: inside memory phrases in the baseline, outside in the memory decoder.  So the gate
    cannot learn that one of them is right everywhere.
    """
    chosen = (torch.rand_like(targets, dtype=torch.float) < p) & mask
    baseline, memory = output.baseline.exp(), output.memory.exp()
    return (
        swap_with_random(baseline, targets, chosen & inside),
        swap_with_random(memory, targets, chosen & ~inside),
    )


def mixture_loss(
    output: AsrOutput,
    targets: Tensor,
    mask: Tensor,
    config: TrainConfig,
    labels: Tensor,
    permute: float,
) -> Tuple[Tensor, Metrics]:
    """The loss above, and how well the memory is used.

    Args:
      labels: (N, U+1) of :class:`~icefall_ctx.train.memory_sampler.SampledMemory`.
      permute: p of the permutation trick.
    """
    memory, inside = output.memory, labels > 0
    log_probs = output.log_probs
    if permute > 0:
        baseline_probs, memory_probs = permuted(memory, targets, inside, mask, permute)
        log_probs = mix(memory.gate, baseline_probs, memory_probs)
    smoothing = config.label_smoothing
    entropy = smoothed_cross_entropy(log_probs, targets, smoothing)
    scores = [s.scores.log_softmax(dim=-1) for s in memory.scores]
    choices = [smoothed_cross_entropy(s, labels, smoothing) for s in scores]
    text_sum = balanced(entropy, inside, mask)
    memory_sum = balanced(torch.stack(choices).mean(dim=0), inside, mask)
    metrics = memory_metrics(memory, labels, mask)
    metrics.add("mem", memory_sum.detach(), int(mask.sum()))
    return text_sum + config.lambda_memory * memory_sum, metrics


def memory_metrics(memory: MemoryOutput, labels: Tensor, mask: Tensor) -> Metrics:
    """``hit``: right choices of the last block inside phrases; ``false``: choices outside;
    ``gate_in``, ``gate_out``: weight of the baseline inside and outside."""
    metrics = Metrics()
    inside, outside = mask & (labels > 0), mask & (labels == 0)
    choice = memory.scores[-1].choice()
    gate = memory.gate.detach().squeeze(-1)
    for name, values, part in (
        ("hit", choice == labels, inside),
        ("false", choice != 0, outside),
        ("gate_in", gate, inside),
        ("gate_out", gate, outside),
    ):
        metrics.add(name, values[part].sum(), int(part.sum()))
    return metrics


@dataclass
class MemoryLoss:
    """Samples a memory for every batch and computes the loss of the model that has it.

    Attributes:
      sampler: draws the entries.
      updates: tells how many updates have been made; until ``memory_teacher_forcing`` of them
        2MEM reads the entry that it should choose.
    """

    sampler: MemorySampler
    updates: Callable[[], int] = int

    def __call__(
        self,
        model: nn.Module,
        batch: Batch,
        config: TrainConfig,
        augment: Optional[Augment] = None,
    ) -> Tuple[Tensor, Metrics]:
        # In training the trainer has seeded the generator by the place of the batch in the run;
        # in validation a batch has the same memory in every epoch.
        names = "/".join(batch.cut_ids).encode()
        rng = random.Random(random.getrandbits(64) if model.training else zlib.crc32(names))
        memory = self.sampler.sample(batch.tokens, batch.token_lens, rng).to(batch.tokens.device)
        forced = model.training and self.updates() < config.memory_teacher_forcing
        output = model(batch, augment, memory.entries, memory.labels if forced else None)
        permute = config.permute if model.training else 0.0
        loss = partial(mixture_loss, labels=memory.labels, permute=permute)
        return joint_loss(output, batch, config, loss)


def loss_of(model: ModelConfig, data: AsrDataModule, config: TrainConfig) -> LossFunction:
    """The objective of a model: with a word memory the one of this module."""
    if model.memory == "none":
        return compute_loss
    sampler = MemorySampler(
        data.tokenizer.pieces,
        training_sentences(data, config.seed),
        config.memory_size,
        config.memory_empty,
        config.memory_span_rate,
        config.memory_rare_rate,
        config.memory_rare_count,
        config.memory_rare_distractors,
        config.memory_max_words,
    )
    return MemoryLoss(sampler)


def training_sentences(data: AsrDataModule, seed: int) -> List[List[int]]:
    """Token ids of distinct training texts, a random part where there are very many."""
    normalize = get_normalizer(data.data.normalizer)
    texts = dict.fromkeys(normalize(cut.supervisions[0].text or "") for cut in data.train_cuts)
    some = list(texts)
    if len(some) > POOL:
        some = random.Random(seed).sample(some, POOL)
    return [data.tokenizer.encode(text) for text in some]
