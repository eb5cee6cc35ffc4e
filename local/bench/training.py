#!/usr/bin/env python3
"""CTC + attention training: seconds of audio a second of processor time, tiny and paper preset.

    local/bench/training.py [--presets tiny paper] [--repeats 3] [--profile]

One step is forward, backward, clipping and the update, without loading of data.
"""

from __future__ import annotations

import argparse

import torch
from presets import VOCAB, preset
from timing import in_turns, random_batch

from icefall_ctx.config import TrainConfig
from icefall_ctx.models.asr import build_model
from icefall_ctx.train.losses import compute_loss
from icefall_ctx.train.optim import build_optimizer


def training_step(model, batch, config: TrainConfig = TrainConfig()):
    """A function that does one update."""
    model.train()
    optimizer = build_optimizer(model, config)
    parameters = list(model.parameters())

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss, _ = compute_loss(model, batch, config)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.grad_clip)
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--presets", nargs="+", choices=("tiny", "paper"), default=["tiny", "paper"]
    )
    parser.add_argument("--seconds", type=float, default=2.5, help="of each utterance")
    parser.add_argument("--batch-seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for name in options.presets:
        torch.manual_seed(0)
        model = build_model(preset(name))
        utterances = max(1, int(options.batch_seconds / options.seconds))
        batch = random_batch(utterances, options.seconds, 10, VOCAB[name])
        step = training_step(model, batch)
        seconds = in_turns({name: step}, options.repeats)[name]
        size = sum(p.numel() for p in model.parameters()) / 1e6
        print(
            f"{name}: {size:.1f} M parameters, {utterances * options.seconds / seconds:.0f} s of "
            f"audio a second of processor time ({1000 * seconds:.0f} ms a step)",
            flush=True,
        )
        if options.profile:
            with torch.profiler.profile() as profile:
                step()
            print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=20))


if __name__ == "__main__":
    main()
