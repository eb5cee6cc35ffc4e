#!/usr/bin/env python3
"""Run one recorded call turn by turn, as if it went on now, and print what is recognised.

    local/live_call.py --exp-dir exp/context --cuts data/fbank/mini_dialog_cuts_test.jsonl.gz

The audio of each turn is read as a waveform; nothing else of the cuts but times, channels and
speaker names is used.  The reference is printed beside the output, and never read by the model.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.config import DecodeConfig
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.data.history import link_of
from icefall_ctx.data.manifests import read_some
from icefall_ctx.decode.hypotheses import originals
from icefall_ctx.decode.live import LiveSession, turns_of
from icefall_ctx.decode.run import Experiment


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--exp-dir", type=Path, required=True, help="folder of the trained model")
    parser.add_argument("--cuts", type=Path, required=True, help="linked cuts with audio")
    parser.add_argument("--conversation", default="", help="its conv_id (default: the first)")
    parser.add_argument(
        "--avg", type=number(int, 1), default=1, help="checkpoints averaged (default: 1)"
    )
    parser.add_argument(
        "--beam-size", type=number(int, 1), default=5, help="hypotheses (default: 5)"
    )
    parser.add_argument("--words", default="", help="word list of the call, by commas")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    config = DecodeConfig(exp_dir=args.exp_dir, avg=args.avg, beam_size=args.beam_size)
    cuts = originals(read_some(args.cuts, "cuts"))
    turns = turns_of(cuts, args.conversation or link_of(cuts[0], "conv_id"))
    call = LiveSession(
        Experiment.open(config), turns[0].sampling_rate, link_of(turns[0], "conv_id")
    )
    if args.words:
        call.set_words(args.words.split(","))
    for cut in turns:
        supervision = cut.supervisions[0]
        heard = call.turn(cut.load_audio()[0], supervision.speaker or "")
        print(f"{cut.start:8.2f} s  {heard.speaker}  ({heard.confidence:.2f})  {heard.text}")
        print(f"{'':12}reference: {supervision.text}")


if __name__ == "__main__":
    run_stage(main)
