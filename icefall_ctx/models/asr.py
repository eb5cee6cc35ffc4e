"""The recogniser: encoder, CTC head and decoder, built from one config."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Callable, Iterator, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig
from icefall_ctx.data.batch import MIN_FRAMES, AudioHistory, Batch
from icefall_ctx.errors import InputError
from icefall_ctx.models.attention import AttentionScores
from icefall_ctx.models.decoder import build_decoder
from icefall_ctx.models.dropout import Dropout
from icefall_ctx.models.encoder import EncoderOutput, build_encoder
from icefall_ctx.models.memory import MemoryDecoder, MemoryOutput
from icefall_ctx.models.memory_entries import EntryTokens

SOS_EOS = 1  # <sos/eos>, in every vocabulary
Augment = Callable[[Tensor, Tensor], Tensor]


@dataclass
class AsrOutput:
    """Attributes:
    encoder_out: (N, T', d).
    encoder_lens: (N,).
    ctc_log_probs: (N, T', V).
    log_probs: (N, U+1, V), of the targets and of the final ``<sos/eos>``.
    memory: both decoders and the gate, where entries were given.
    """

    encoder_out: Tensor
    encoder_lens: Tensor
    ctc_log_probs: Tensor
    log_probs: Tensor
    memory: Optional[MemoryOutput] = None


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode inside the block; afterwards every submodule is in its own mode of before
    (frozen parts stay in eval mode while the rest trains)."""
    were_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in were_training:
            part.training = True


def decoder_input(tokens: Tensor) -> Tensor:
    """Targets (N, U) -> (N, U+1) with ``<sos/eos>`` in front."""
    return nn.functional.pad(tokens, (1, 0), value=SOS_EOS)


class AsrModel(nn.Module):
    """Joint CTC/attention model.  The feature statistics travel with it as buffers."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("feature_mean", torch.zeros(config.feature_dim))
        self.register_buffer("feature_std", torch.ones(config.feature_dim))
        self.encoder = build_encoder(config)
        self.ctc = nn.Linear(config.dim, config.vocab_size)
        self.ctc_dropout = Dropout(config.dropout)
        self.decoder = build_decoder(config)
        self.memory_model: Optional[AsrModel] = None  # see with_baseline

    def set_feature_stats(self, mean: Tensor, std: Tensor) -> None:
        """Statistics of the training features, each (C,)."""
        self.feature_mean.copy_(mean)
        self.feature_std.copy_(std.clamp(min=1e-5))

    def normalise(self, features: Tensor) -> Tensor:
        """(N, T, C) to zero mean and unit variance over the training set."""
        return (features - self.feature_mean) / self.feature_std

    def encoder_input(
        self, features: Tensor, lens: Tensor, speaker: Optional[Tensor], augment: Optional[Augment]
    ) -> Tensor:
        """Normalise, augment, concatenate the speaker features (N, D) to every frame, and pad to
        the fewest frames that the subsampling takes."""
        x = self.normalise(features)
        if augment is not None:
            x = augment(x, lens)
        if self.config.speaker_features != "none":
            speaker = self.drop_speakers(speaker)
            x = torch.cat([x, speaker.unsqueeze(1).expand(-1, x.size(1), -1)], dim=-1)
        return nn.functional.pad(x, (0, 0, 0, max(0, MIN_FRAMES - x.size(1))))

    def drop_speakers(self, speaker: Tensor) -> Tensor:
        """In training, a zero vector for some utterances, so that the model does without."""
        p = self.config.ivector_dropout
        if not self.training or p == 0.0:
            return speaker
        keep = torch.rand(speaker.size(0), 1, device=speaker.device) >= p
        return speaker * keep

    def previous_scores(self, history: AudioHistory) -> AttentionScores:
        """Run the earlier turns, oldest level first: eval mode, no gradient, no augmentation."""
        scores: Optional[AttentionScores] = None
        with torch.no_grad(), evaluating(self.encoder):
            for level in history.levels:
                if level.rows.numel() == 0:
                    continue  # nobody has a turn so long ago
                speaker = None if history.speaker is None else history.speaker[level.rows]
                lens = history.lens[level.rows]
                features = history.features[level.rows, : int(lens.max())]
                x = self.encoder_input(features, lens, speaker, None)
                previous = None if scores is None else scores.select(level.previous)
                scores = self.encoder.history_scores(x, lens, previous)
        return scores.select(history.previous)

    def encode(
        self,
        batch: Batch,
        augment: Optional[Augment] = None,
        previous: Optional[AttentionScores] = None,
    ) -> EncoderOutput:
        """Encode a batch; the past comes from ``previous``, else from the batch's audio history."""
        if self.config.attention == "context" and previous is None:
            history = batch.audio_history
            if history is not None and bool((history.previous >= 0).any()):
                previous = self.previous_scores(history)
        x = self.encoder_input(
            batch.features, batch.feature_lens, batch.speaker_features, augment
        )
        return self.encoder(x, batch.feature_lens, previous)

    def ctc_log_probs(self, encoder_out: Tensor) -> Tensor:
        """(N, T', d) -> float32 (N, T', V), blank = 0."""
        return self.ctc(self.ctc_dropout(encoder_out)).float().log_softmax(dim=-1)

    @property
    def has_memory(self) -> bool:
        """Whether the decoder has a word memory."""
        return isinstance(self.decoder, MemoryDecoder)

    def memory_audio(self, batch: Batch) -> Optional[Tuple[Tensor, Tensor]]:
        """Audio (N, T', d) and lengths (N,) for the memory decoder, where it was trained with
        another encoder than this model's; else None."""
        if self.memory_model is None:
            return None
        encoded = self.memory_model.encode(batch)
        return encoded.out, encoded.lens

    def forward(
        self,
        batch: Batch,
        augment: Optional[Augment] = None,
        entries: Optional[EntryTokens] = None,
        choice: Optional[Tensor] = None,
    ) -> AsrOutput:
        """Teacher-forced outputs for training and validation.

        Args:
          entries: the word memory of the batch, for a model that has one.
          choice: (N, U+1) entries that 2MEM reads instead of its own choice.
        """
        encoded = self.encode(batch, augment)
        log_probs, memory = self._teacher_forced(encoded, batch, entries, choice)
        return AsrOutput(
            encoder_out=encoded.out,
            encoder_lens=encoded.lens,
            ctc_log_probs=self.ctc_log_probs(encoded.out),
            log_probs=log_probs,
            memory=memory,
        )

    def _teacher_forced(
        self,
        encoded: EncoderOutput,
        batch: Batch,
        entries: Optional[EntryTokens],
        choice: Optional[Tensor],
    ) -> Tuple[Tensor, Optional[MemoryOutput]]:
        tokens = decoder_input(batch.tokens)
        if entries is None:
            state = self.decoder.prepare(encoded.out, encoded.lens, batch.history)
            return self.decoder(tokens, state), None
        memory = self.decoder.encode(entries)
        state = self.decoder.prepare(encoded.out, encoded.lens, batch.history, memory)
        output = self.decoder.mixture(tokens, state, choice)
        return output.log_probs, output


def build_model(config: ModelConfig) -> AsrModel:
    """Build the model that the config describes, with fresh parameters."""
    return AsrModel(config)


def with_baseline(model: AsrModel, baseline: AsrModel) -> AsrModel:
    """``baseline`` with the word memory of ``model``; both are changed.

    The memory decoder goes on hearing through the encoder that it was trained with.  With an
    empty memory the result is the baseline, bit for bit.

    Raises:
      InputError: other tokens, features or speaker features, or a baseline with a memory.
    """
    for name in ("vocab_fingerprint", "vocab_size", "feature_dim", "speaker_features"):
        ours, theirs = getattr(model.config, name), getattr(baseline.config, name)
        if ours != theirs:
            raise InputError(f"the baseline has {name} {theirs}, the word memory {ours}")
    if not model.has_memory or baseline.has_memory:
        raise InputError("a baseline without a word memory goes under a model with one")
    decoder = model.decoder
    decoder.baseline, baseline.decoder = baseline.decoder, decoder
    baseline.memory_model = model
    return baseline
