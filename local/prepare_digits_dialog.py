#!/usr/bin/env python3
"""Compose the two-channel digit calls and write their manifests."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Optional, Sequence

from icefall_ctx.corpora.digits_dialog import DigitsConfig, prepare_digits_dialog
from icefall_ctx.corpora.manifests import (
    describe,
    number_range,
    positive,
    run_stage,
    stage_parser,
)
from icefall_ctx.errors import ProblemLog


def get_parser() -> argparse.ArgumentParser:
    parser = stage_parser(__doc__, "digits_dialog")
    parser.add_argument("--fsdd-dir", type=Path, default=Path("download/fsdd"),
                        help="folder with {digit}_{speaker}_{index}.wav")  # fmt: skip
    parser.add_argument("--test-speakers", default="",
                        help="speakers kept for the part test_unseen, as a,b")  # fmt: skip
    parser.add_argument("--train-hours", type=positive, default=2.5,
                        help="hours of training speech")  # fmt: skip
    parser.add_argument("--test-hours", type=positive, default=0.4,
                        help="hours of speech in each other part")  # fmt: skip
    parser.add_argument("--caller-snr", type=number_range, default=(15.0, 25.0),
                        help="LOW,HIGH in dB")  # fmt: skip
    parser.add_argument("--readback-snr", type=number_range, default=(-10.0, -2.0),
                        help="LOW,HIGH in dB, written --readback-snr=-10,-2")  # fmt: skip
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_parser().parse_args(argv)
    hours = dict.fromkeys(("dev", "test", "test_unseen"), args.test_hours)
    problems = ProblemLog()
    parts = prepare_digits_dialog(
        args.fsdd_dir,
        args.manifest_dir,
        audio_dir=args.audio_dir,
        test_speakers=[name for name in args.test_speakers.split(",") if name],
        config=DigitsConfig(
            hours={"train": args.train_hours, **hours},
            caller_snr=args.caller_snr,
            readback_snr=args.readback_snr,
            seed=args.seed,
        ),
        jobs=args.jobs,
        problems=problems,
    )
    print(describe(parts))
    if problems:
        print(problems.summary())


if __name__ == "__main__":
    run_stage(main)
