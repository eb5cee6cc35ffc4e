#!/usr/bin/env python3
"""Beam search over a batch beside the same search one utterance at a time: time and text.

    local/bench/beam.py [--preset tiny] [--utterances 16] [--beam 5] [--repeats 3]

The batch may take a third of the time an utterance.  The model has random weights and prefers the
end of sentence as little as needed for hypotheses of a normal length.
"""

from __future__ import annotations

import argparse
import sys

import torch
from presets import VOCAB, preset
from timing import in_turns, print_ratios, random_batch

from icefall_ctx.decode.beam import BeamOptions, BeamSearch
from icefall_ctx.models.asr import build_model


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=("tiny", "paper"), default="tiny")
    parser.add_argument("--utterances", type=int, default=16)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = build_model(preset(options.preset)).eval()
    batch = random_batch(options.utterances, 3.0, 10, VOCAB[options.preset])
    batch.feature_lens = torch.linspace(150, 300, options.utterances).long()
    search = BeamSearch(model.decoder, BeamOptions(options.beam, max_len_ratio=0.3))
    with torch.no_grad():
        encoded = model.encode(batch)
        ctc = model.ctc_log_probs(encoded.out)

    def decode(rows: slice):
        state = model.decoder.prepare(encoded.out[rows], encoded.lens[rows])
        return [n[0].tokens for n in search.search(state, ctc[rows], encoded.lens[rows])]

    def one_by_one():
        return [decode(slice(i, i + 1))[0] for i in range(options.utterances)]

    with torch.no_grad():
        if one_by_one() != decode(slice(None)):
            print("the texts differ")
            return 1
        print(f"same text for {options.utterances} utterances, beam {options.beam}")
        seconds = in_turns(
            {"one by one": one_by_one, "batch": lambda: decode(slice(None))}, options.repeats
        )
    return 0 if print_ratios(seconds, "one by one", {"batch": 1 / 3}) else 1


if __name__ == "__main__":
    sys.exit(main())
