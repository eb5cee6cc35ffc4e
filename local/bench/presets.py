"""The two sizes that benchmarks know."""

from __future__ import annotations

from icefall_ctx.config import ModelConfig

SIZES = {
    "tiny": dict(
        encoder_layers=4,
        decoder_layers=2,
        dim=96,
        ff_dim=384,
        norm_first=True,
        subsampling_channels=32,
    ),
    "paper": dict(),  # the defaults: 12/6 layers, d 256, ff 2048, H 4
}
VOCAB = {"tiny": 60, "paper": 2000}


def preset(name: str, **options) -> ModelConfig:
    return ModelConfig(**{"vocab_size": VOCAB[name], **SIZES[name], **options})
