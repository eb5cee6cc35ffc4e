"""A folder with a small random model and conversations of random audio, for tests of tools."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import List

import numpy as np
import soundfile
import torch
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from model_inputs import small_config, small_model

from icefall_ctx.config import DataConfig, DecodeConfig, save_configs
from icefall_ctx.data.conversation import link_conversations
from icefall_ctx.decode.run import Experiment
from icefall_ctx.features.cuts import TurnCutter
from icefall_ctx.text.tokenizer import train_char
from icefall_ctx.train.checkpoint import save_checkpoint

RATE = 8000
LETTERS = "abcdef"
FEATURES = 23  # 20 mel bins and pitch
CUTS = "small_cuts_test.jsonl.gz"


def make_calls(folder: Path, calls: int = 3, turns: int = 4) -> List[MonoCut]:
    """Two-channel calls of noise, one turn after the other, as linked cuts without features."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    recordings, segments = {}, []
    for call in range(calls):
        name = f"call{call}"
        audio = 0.1 * rng.standard_normal((turns * RATE, 2)).astype(np.float32)
        audio *= np.linspace(0.2, 1.0, len(audio))[:, None]
        soundfile.write(folder / f"{name}.wav", audio, RATE)
        recordings[name] = Recording.from_file(folder / f"{name}.wav")
        segments += [
            SupervisionSegment(
                id=f"{name}-{turn}",
                recording_id=name,
                start=float(turn),
                duration=0.4 + 0.1 * ((turn + call) % 5),
                channel=turn % 2,
                text=" ".join(rng.choice(list(LETTERS), 3)),
                speaker=f"{name}-{'AB'[turn % 2]}",
                custom={"side": "AB"[turn % 2]},
            )
            for turn in range(turns)
        ]
    cuts = TurnCutter(recordings).cut_all(link_conversations(segments))
    CutSet.from_cuts(cuts).to_file(folder / CUTS)
    return cuts


def make_experiment(exp_dir: Path, manifest_dir: Path, seed: int = 0, **options) -> DecodeConfig:
    """Write ``config.yaml``, tokenizer and one checkpoint; returns settings that open them."""
    tokenizer = train_char([LETTERS + " "])
    tokenizer.save(exp_dir / "lang")
    options = dict(options, feature_dim=FEATURES, vocab_size=tokenizer.vocab_size)
    config = replace(small_config(**options), vocab_fingerprint=tokenizer.fingerprint)
    save_configs(exp_dir / "config.yaml", config, DataConfig(manifest_dir=manifest_dir))
    model = small_model(seed, **options)
    torch.nn.init.normal_(model.ctc.weight)
    save_checkpoint(
        exp_dir / "epoch-1.pt", {"model": model.state_dict(), "valid_losses": {1: 1.0}}
    )
    return DecodeConfig(
        exp_dir=exp_dir, avg=1, beam_size=2, test_cuts=CUTS, max_len_ratio=0.7, batch_size=2
    )


def open_experiment(exp_dir: Path, manifest_dir: Path, **options) -> Experiment:
    return Experiment.open(make_experiment(exp_dir, manifest_dir, **options))
