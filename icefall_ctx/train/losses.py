"""The training objective: ``w * CTC + (1 - w) * CE`` with label smoothing (A4).

A loss is a *sum over utterances*; the trainer divides the gradient by the number of utterances
of an update.  So batches of different sizes, accumulated batches and batches of several
processes weigh every utterance the same.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import TrainConfig
from icefall_ctx.data.batch import Batch, length_mask
from icefall_ctx.models.asr import AsrOutput
from icefall_ctx.train.metrics import Metrics, correct_tokens

SOS_EOS = 1
Augment = Callable[[Tensor, Tensor], Tensor]
LossFunction = Callable[
    [nn.Module, Batch, TrainConfig, Optional[Augment]], Tuple[Tensor, Metrics]
]
# (output, targets (N, U+1), their mask, settings) -> the sum over the batch, further metrics
AttentionLoss = Callable[[AsrOutput, Tensor, Tensor, TrainConfig], Tuple[Tensor, Metrics]]


def frames_needed(tokens: Tensor, token_lens: Tensor) -> Tensor:
    """Frames that CTC needs for targets (N, U): one a token, and a blank between equal ones."""
    if tokens.size(1) < 2:
        return token_lens.clone()
    repeated = (tokens[:, 1:] == tokens[:, :-1]) & length_mask(token_lens - 1, tokens.size(1) - 1)
    return token_lens + repeated.sum(dim=1)


def ctc_loss(log_probs: Tensor, lens: Tensor, tokens: Tensor, token_lens: Tensor) -> Tensor:
    """``-log P(tokens | frames)`` of each utterance, (N,).

    Args:
      log_probs: (N, T, V), float32, blank = 0.
      lens: (N,) valid frames.
      tokens: (N, U), padded with anything.
      token_lens: (N,).

    An utterance with fewer frames than :func:`frames_needed` gives 0 and no gradient.
    """
    return nn.functional.ctc_loss(
        log_probs.transpose(0, 1),
        tokens,
        lens,
        token_lens,
        blank=0,
        reduction="none",
        zero_infinity=True,
    )


def with_eos(tokens: Tensor, token_lens: Tensor) -> Tuple[Tensor, Tensor]:
    """Targets of the decoder (N, U+1), ``<sos/eos>`` after the last token, and their mask."""
    targets = nn.functional.pad(tokens, (0, 1))
    targets = targets.scatter(1, token_lens.unsqueeze(1), SOS_EOS)
    return targets, length_mask(token_lens + 1, targets.size(1))


def smoothed_cross_entropy(log_probs: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    """Cross entropy of (N, U, V) with ``1 - s`` on the target and ``s`` spread evenly, (N, U)."""
    gold = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return -(1.0 - smoothing) * gold - smoothing * log_probs.mean(dim=-1)


def trainable(batch: Batch, encoder_lens: Tensor) -> Tensor:
    """(N,), False where there are more tokens than frames to align them to."""
    return frames_needed(batch.tokens, batch.token_lens) <= encoder_lens


def token_cross_entropy(
    output: AsrOutput, targets: Tensor, mask: Tensor, config: TrainConfig
) -> Tuple[Tensor, Metrics]:
    """Label-smoothed cross entropy, summed over the tokens of ``mask`` (N, U+1)."""
    entropy = smoothed_cross_entropy(output.log_probs, targets, config.label_smoothing)
    return entropy.masked_fill(~mask, 0.0).sum(), Metrics()


def compute_loss(
    model: nn.Module,
    batch: Batch,
    config: TrainConfig,
    augment: Optional[Augment] = None,
) -> Tuple[Tensor, Metrics]:
    """Joint CTC/attention loss of a batch; see :func:`joint_loss`."""
    return joint_loss(model(batch, augment), batch, config)


def joint_loss(
    output: AsrOutput,
    batch: Batch,
    config: TrainConfig,
    attention_loss: AttentionLoss = token_cross_entropy,
) -> Tuple[Tensor, Metrics]:
    """``w * CTC + (1 - w) * attention_loss`` from the outputs of a model.

    Returns:
      The loss, summed over utterances, and the metrics.  Utterances with more tokens than
      frames are in neither, and are named in ``metrics.skipped``.
    """
    keep = trainable(batch, output.encoder_lens)
    ctc = ctc_loss(output.ctc_log_probs, output.encoder_lens, batch.tokens, batch.token_lens)
    targets, mask = with_eos(batch.tokens, batch.token_lens)
    mask = mask & keep.unsqueeze(1)
    ctc_sum = ctc.masked_fill(~keep, 0.0).sum()
    attention_sum, details = attention_loss(output, targets, mask, config)
    loss = config.ctc_weight * ctc_sum + (1.0 - config.ctc_weight) * attention_sum

    frames, tokens = int((output.encoder_lens * keep).sum()), int(mask.sum())
    metrics = batch_metrics(batch, keep, frames)
    metrics.add("loss", loss.detach(), frames)
    metrics.add("ctc", ctc_sum.detach(), frames)
    metrics.add("att", attention_sum.detach(), tokens)
    metrics.add("acc", correct_tokens(output.log_probs, targets, mask), tokens)
    metrics += details
    return loss, metrics


def batch_metrics(batch: Batch, keep: Tensor, frames: int) -> Metrics:
    """Counts of the utterances that are ``keep`` (N,), and the names of the others."""
    metrics = Metrics(skipped=[("more tokens than frames", name) for name in _dropped(batch, keep)])
    metrics.count("utterances", int(keep.sum()))
    metrics.count("frames", frames)
    metrics.count("seconds", sum(batch.durations))
    return metrics


def _dropped(batch: Batch, keep: Tensor) -> List[str]:
    return [cut_id for cut_id, kept in zip(batch.cut_ids, keep.tolist()) if not kept]


def is_finite(loss: Tensor) -> bool:
    return bool(torch.isfinite(loss))
