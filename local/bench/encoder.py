#!/usr/bin/env python3
"""Training step of the Transformer encoder beside torch.nn.TransformerEncoder of the same size.

    local/bench/encoder.py [--preset tiny|paper] [--repeats 7]

Both get the same subsampled frames, half of the utterances padded.  Ours may take 1.25 times as
long.
"""

from __future__ import annotations

import argparse
import sys

import torch
from presets import preset
from timing import in_turns, print_ratios
from torch import nn

from icefall_ctx.data.batch import length_mask
from icefall_ctx.models.attention import PositionalEncoding, ScoreFlow
from icefall_ctx.models.encoder import TransformerLayer


class Layers(nn.Module):
    """The layers of our encoder, without the subsampling that torch's has not."""

    def __init__(self, config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.encoder_layers))

    def forward(self, x: torch.Tensor, lens: torch.Tensor) -> torch.Tensor:
        flow = ScoreFlow.start(lens, x.size(1), None)
        for index, layer in enumerate(self.layers):
            x, _ = layer(x, None, flow, index)
        return x


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=("tiny", "paper"), default="tiny")
    parser.add_argument("--utterances", type=int, default=16)
    parser.add_argument("--frames", type=int, default=75, help="after subsampling: 25 a second")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = preset(options.preset)
    layer = nn.TransformerEncoderLayer(
        config.dim,
        config.heads,
        config.ff_dim,
        config.dropout,
        batch_first=True,
        norm_first=config.norm_first,
    )
    theirs = nn.TransformerEncoder(layer, config.encoder_layers)
    ours = Layers(config)
    positions = PositionalEncoding(config.dim)
    x = positions(torch.randn(options.utterances, options.frames, config.dim))
    lens = torch.full((options.utterances,), options.frames)
    lens[::2] = options.frames * 3 // 4
    padding = ~length_mask(lens, options.frames)

    def step(module: nn.Module, *arguments, **keywords) -> None:
        module.zero_grad(set_to_none=True)
        module(*arguments, **keywords).square().mean().backward()

    tasks = {
        "torch.nn.TransformerEncoder": lambda: step(theirs, x, src_key_padding_mask=padding),
        "ours": lambda: step(ours, x, lens),
    }
    seconds = in_turns(tasks, options.repeats)
    return 0 if print_ratios(seconds, "torch.nn.TransformerEncoder", {"ours": 1.25}) else 1


if __name__ == "__main__":
    sys.exit(main())
