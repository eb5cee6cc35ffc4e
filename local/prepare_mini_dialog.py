#!/usr/bin/env python3
"""Render the two-channel dialogues of mini_dialog and write their manifests."""

from __future__ import annotations

import argparse
from typing import Optional, Sequence

from icefall_ctx.command_line import number
from icefall_ctx.corpora.manifests import (
    describe,
    number_range,
    positive,
    run_stage,
    share,
    stage_parser,
)
from icefall_ctx.corpora.mini_dialog import MiniDialogConfig, prepare_mini_dialog


def get_parser() -> argparse.ArgumentParser:
    parser = stage_parser(__doc__, "mini_dialog")
    defaults = MiniDialogConfig()
    parser.add_argument("--train-hours", type=positive, default=defaults.train_hours,
                        help="hours of training speech, about")  # fmt: skip
    parser.add_argument("--test-hours", type=positive, default=defaults.test_hours,
                        help="hours of speech in each of dev and test, about")  # fmt: skip
    parser.add_argument("--new-words", type=number(int, 0), default=defaults.new_words,
                        help="sentences in newwords, each with its own name")  # fmt: skip
    parser.add_argument("--new-words-dev", type=number(int, 0), default=defaults.new_words_dev,
                        help="sentences in newwords_dev, likewise")  # fmt: skip
    parser.add_argument("--name-sentences", type=number(int, 0), default=defaults.name_sentences,
                        help="sentences in a part names, with one or two new names each in the "
                             "voices of training: to train a word memory")  # fmt: skip
    parser.add_argument("--caller-snr", type=number_range, default=defaults.caller_snr,
                        help="LOW,HIGH in dB, written --caller-snr=15,25")  # fmt: skip
    parser.add_argument("--reply-snr", type=number_range, default=defaults.reply_snr,
                        help="LOW,HIGH in dB, written --reply-snr=-2,8")  # fmt: skip
    parser.add_argument("--name-share", type=share, default=defaults.name_share,
                        help="share of the dialogues with invented names, 0 to 1")  # fmt: skip
    parser.add_argument("--spelling-share", type=share, default=defaults.spelling_share,
                        help="share of those that spell the name, 0 to 1")  # fmt: skip
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_parser().parse_args(argv)
    config = MiniDialogConfig(
        train_hours=args.train_hours,
        test_hours=args.test_hours,
        new_words=args.new_words,
        new_words_dev=args.new_words_dev,
        name_sentences=args.name_sentences,
        caller_snr=args.caller_snr,
        reply_snr=args.reply_snr,
        name_share=args.name_share,
        spelling_share=args.spelling_share,
        seed=args.seed,
    )
    parts = prepare_mini_dialog(
        args.manifest_dir, audio_dir=args.audio_dir, config=config, jobs=args.jobs
    )
    print(describe(parts))


if __name__ == "__main__":
    run_stage(main)
