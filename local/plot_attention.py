#!/usr/bin/env python3
"""Attention of a baseline and of a context model for one turn, side by side, as a PNG file.

    local/plot_attention.py --baseline-exp-dir exp/baseline --exp-dir exp/conditional_n2 \\
        --cuts data/fbank/digits_dialog_cuts_test.jsonl.gz --output exp/attention.png

The conversation is recognised up to the turn, with each model's own hypotheses as history.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import List, Optional, Sequence

from lhotse.cut import Cut

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.config import DecodeConfig
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.data.history import link_of
from icefall_ctx.data.manifests import read_some
from icefall_ctx.decode.attention_picture import HEAD, LAYER, compare_attention, plot_attention
from icefall_ctx.decode.hypotheses import originals
from icefall_ctx.decode.live import turns_of
from icefall_ctx.decode.run import Experiment
from icefall_ctx.errors import InputError

DEFAULT_TURN = 4


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--exp-dir", type=Path, required=True, help="folder of the context model")
    parser.add_argument("--baseline-exp-dir", type=Path, help="folder of the baseline")
    parser.add_argument("--cuts", type=Path, required=True, help="linked cuts")
    parser.add_argument("--utt-id", default="", help="the turn (default: the cuts' fourth)")
    parser.add_argument(
        "--layer",
        type=number(int, 1),
        default=LAYER,
        help=f"decoder layer, from 1; at most the last (default: {LAYER})",
    )
    parser.add_argument(
        "--head",
        type=number(int, 1),
        default=HEAD,
        help=f"attention head, from 1 (default: {HEAD})",
    )
    parser.add_argument(
        "--reference", action="store_true", help="over the tokens of the reference"
    )
    parser.add_argument(
        "--avg", type=number(int, 1), default=1, help="checkpoints averaged (default: 1)"
    )
    parser.add_argument("--output", type=Path, default=Path("attention.png"),
                        help="PNG file (default: attention.png)")
    return parser.parse_args(argv)


def turns_up_to(cuts: List[Cut], utt_id: str) -> List[Cut]:
    """The turns of one conversation, the one to look at last."""
    if not utt_id:
        return turns_of(cuts, link_of(cuts[0], "conv_id"))[:DEFAULT_TURN]
    chosen = [cut for cut in cuts if link_of(cut, "utt_id") == utt_id]
    if not chosen:
        raise InputError(f"no turn '{utt_id}' in the cuts; the first is {cuts[0].id}")
    turns = turns_of(cuts, link_of(chosen[0], "conv_id"))
    return turns[: turns.index(chosen[0]) + 1]


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    turns = turns_up_to(originals(read_some(args.cuts, "cuts")), args.utt_id)
    folders = [folder for folder in (args.baseline_exp_dir, args.exp_dir) if folder]
    experiments = [Experiment.open(DecodeConfig(exp_dir=f, avg=args.avg)) for f in folders]
    tokens = None
    if args.reference:
        last = experiments[-1]
        tokens = last.tokenizer.encode(last.normalize(turns[-1].supervisions[0].text or ""))
    maps = compare_attention(experiments, turns, tokens, args.layer, args.head)
    plot_attention(maps, [folder.name for folder in folders], args.output, turns[-1].id)
    print(f"wrote {args.output}")


if __name__ == "__main__":
    run_stage(main)
