"""Small models and random batches for the tests of models and search."""

from __future__ import annotations

from typing import List, Optional, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from icefall_ctx.config import ModelConfig
from icefall_ctx.data.batch import AudioHistory, Batch, TokenHistory
from icefall_ctx.models.asr import AsrModel, build_model

FEATURES = 8
VOCAB = 9


def small_config(**options) -> ModelConfig:
    settings = dict(
        feature_dim=FEATURES,
        vocab_size=VOCAB,
        encoder_layers=2,
        decoder_layers=2,
        dim=16,
        ff_dim=32,
        heads=2,
        conv_kernel=5,
        subsampling_channels=4,
    )
    return ModelConfig(**{**settings, **options})


def small_model(seed: int = 0, **options) -> AsrModel:
    """In eval mode, with every parameter random, also those that start at zero."""
    torch.manual_seed(seed)
    model = build_model(small_config(**options))
    for parameter in model.parameters():
        if parameter.dim() == 0 or not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def sound(frames: int, seed: int) -> torch.Tensor:
    return torch.randn(frames, FEATURES, generator=torch.Generator().manual_seed(seed))


def make_batch(
    features: Sequence[torch.Tensor],
    tokens: Optional[Sequence[List[int]]] = None,
    history: Optional[TokenHistory] = None,
    audio_history: Optional[AudioHistory] = None,
    conv_ids: Optional[List[str]] = None,
    speakers: Optional[List[str]] = None,
) -> Batch:
    n = len(features)
    names = [f"utt{i}" for i in range(n)]
    tokens = [torch.tensor(t) for t in (tokens or [[3, 4]] * n)]
    return Batch(
        utt_ids=names,
        cut_ids=names,
        conv_ids=conv_ids or names,
        turns=[0] * n,
        speakers=speakers or ["A"] * n,
        sides=[""] * n,
        texts=[""] * n,
        features=pad_sequence(list(features), batch_first=True),
        feature_lens=torch.tensor([f.size(0) for f in features]),
        tokens=pad_sequence(tokens, batch_first=True),
        token_lens=torch.tensor([len(t) for t in tokens]),
        history=history,
        audio_history=audio_history,
        durations=[f.size(0) / 100 for f in features],
    )
