"""Conversations of synthetic features in which every letter has a sound of its own."""

from __future__ import annotations

import random
from pathlib import Path
from typing import List

import numpy as np
from lhotse import CutSet, Features, MonoCut, SupervisionSegment
from lhotse.features.io import NumpyFilesWriter

from icefall_ctx.config import DataConfig, ModelConfig, TrainConfig
from icefall_ctx.data.conversation import link_conversations
from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.text.tokenizer import train_char

DIM = 8
FRAMES_A_LETTER = 12
LETTERS = "abcdef"


def _cut(segment: SupervisionSegment, writer, rng: np.random.Generator, suffix: str) -> MonoCut:
    sounds = np.eye(DIM, dtype=np.float32)[[LETTERS.index(c) for c in segment.text]]
    array = np.repeat(sounds, FRAMES_A_LETTER, axis=0)
    array = array + 0.1 * rng.standard_normal(array.shape).astype(np.float32)
    duration = len(array) / 100
    stored = writer.write(segment.id + suffix, array)
    features = Features(
        type="synthetic",
        num_frames=len(array),
        num_features=DIM,
        frame_shift=0.01,
        sampling_rate=8000,
        start=0.0,
        duration=duration,
        storage_type=writer.name,
        storage_path=str(writer.storage_path),
        storage_key=stored,
        channels=0,
    )
    supervision = SupervisionSegment(
        id=segment.id + suffix,
        recording_id=segment.recording_id + suffix,
        start=0.0,
        duration=duration,
        text=segment.text,
        speaker=segment.speaker,
        custom=segment.custom,
    )
    return MonoCut(
        id=segment.id + suffix,
        start=0.0,
        duration=duration,
        channel=0,
        features=features,
        supervisions=[supervision],
    )


def make_cuts(
    folder: Path, conversations: int = 4, turns: int = 3, seed: int = 0, speeds=("",)
) -> List[MonoCut]:
    """Cuts ``c0-t0`` .. with the text ``abcd`` or the like, speakers A and B in turn."""
    rng = random.Random(seed)
    segments = [
        SupervisionSegment(
            id=f"c{seed}{c}-t{t}",
            recording_id=f"c{seed}{c}",
            start=float(t),
            duration=0.9,
            text="".join(rng.sample(LETTERS, rng.randint(2, 4))),
            speaker=f"{c}{'AB'[t % 2]}",
        )
        for c in range(conversations)
        for t in range(turns)
    ]
    linked = link_conversations(segments)
    noise = np.random.default_rng(seed)
    with NumpyFilesWriter(folder / "feats") as writer:
        return [_cut(s, writer, noise, suffix) for s in linked for suffix in speeds]


def make_data(folder: Path, model: ModelConfig, speeds=("",), **options) -> AsrDataModule:
    """Manifests in ``folder`` and the data module that reads them."""
    train = make_cuts(folder, 6, 4, seed=1, speeds=speeds)
    valid = make_cuts(folder, 2, 3, seed=2)
    CutSet.from_cuts(train).to_file(folder / "train.jsonl.gz")
    CutSet.from_cuts(valid).to_file(folder / "valid.jsonl.gz")
    tokenizer = train_char([LETTERS])
    tokenizer.save(folder / "lang_char")
    settings = dict(
        manifest_dir=folder,
        lang_dir=folder / "lang_char",
        train_cuts="train.jsonl.gz",
        valid_cuts="valid.jsonl.gz",
        max_duration=2.0,
        num_buckets=3,
        time_mask_frames=5,
        freq_mask_bins=2,
    )
    return AsrDataModule(DataConfig(**{**settings, **options}), model, tokenizer, seed=7)


def tiny_model(**options) -> ModelConfig:
    """A few thousand parameters."""
    settings = dict(
        feature_dim=DIM,
        encoder_layers=2,
        decoder_layers=1,
        dim=16,
        ff_dim=32,
        heads=2,
        conv_kernel=5,
        subsampling_channels=4,
    )
    return ModelConfig(**{**settings, **options})


def tiny_training(exp_dir: Path, **options) -> TrainConfig:
    settings = dict(
        exp_dir=exp_dir,
        num_epochs=2,
        warmup=20,
        seed=7,
        log_interval=3,
        save_every_n=0,
        tensorboard=False,
    )
    return TrainConfig(**{**settings, **options})
