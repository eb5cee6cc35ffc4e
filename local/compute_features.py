#!/usr/bin/env python3
"""Cut the turns out of recorded calls and store their features.

The output is a manifest of cuts, one a turn, in the order of the supervisions; with --perturb-speed
all turns at 0.9 and 1.1 follow.  Run again after an interruption, it continues.  Turns that are too
short or without text are skipped, turns whose audio is bad are left out; all are listed beside the
output, in NAME.left_out.txt.  The exit status is 1 if more than --max-bad-share of the turns were
bad.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import List, Optional

from icefall_ctx import files
from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.config import parse_bool
from icefall_ctx.corpora.manifests import run_stage
from icefall_ctx.data.manifests import check_manifest_path, read_manifest, write_manifest
from icefall_ctx.errors import InputError, Problem
from icefall_ctx.features.cuts import TurnCutter
from icefall_ctx.features.extraction import extract_features, make_tasks
from icefall_ctx.features.extractor import BACKENDS, FbankPitchConfig
from icefall_ctx.text.normalize import NORMALIZERS, get_normalizer


def get_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--recordings", type=Path, required=True, help="manifest of recordings")
    add("--supervisions", type=Path, required=True, help="manifest of linked supervisions")
    add("--output", type=Path, required=True, help="manifest of cuts to write (.jsonl.gz)")
    add("--storage-dir", type=Path,
        help="folder for the features (default: --output without its suffixes, then _feats)")
    add("--stats", type=Path, help="JSON file to write: mean and deviation of every dimension")
    add("--num-mel-bins", type=number(int, 4, 512), default=80, help="log-mel bins (default: 80)")
    add("--pitch", type=parse_bool, default=True, help="append 3 pitch dimensions (default: true)")
    add("--sampling-rate", type=number(int, 1000, 192000), default=16000,
        help="in Hz; audio of another rate is resampled (default: 16000)")
    add("--backend", choices=["auto", *BACKENDS], default="auto",
        help="same numbers, other speed (default: auto, the fastest installed)")
    add("--perturb-speed", action="store_true", help="add copies at 0.9 and 1.1, for training")
    add("--num-jobs", type=number(int, 1), default=2, help="processes (default: 2)")
    add("--min-duration", type=number(float, 0), default=0.1,
        help="seconds; shorter turns are skipped (default: 0.1)")
    add("--allow-empty-text", action="store_true",
        help="keep turns without text, for calls that are only to be recognised")
    add("--normalizer", choices=list(NORMALIZERS), default="none",
        help="a text is empty if it is after these rules; the text stays as it is (default: none)")
    add("--max-bad-share", type=number(float, 0), default=0.01,
        help="share of turns with bad audio, of 1, that is no failure (default: 0.01)")
    return parser


def beside(output: Path, ending: str) -> Path:
    """data/fbank/cuts_train.jsonl.gz -> data/fbank/cuts_train + ending"""
    return output.with_name(output.name.split(".jsonl")[0] + ending)


def check_output(path: Path) -> None:
    """Raises :class:`InputError` before the work rather than after it."""
    check_manifest_path(path)
    files.check_output(path)


def cut_turns(args: argparse.Namespace) -> TurnCutter:
    return TurnCutter(
        recordings={r.id: r for r in read_manifest(args.recordings, "recordings")},
        min_duration=args.min_duration,
        allow_empty_text=args.allow_empty_text,
        normalize=get_normalizer(args.normalizer),
    )


def main(argv: Optional[List[str]] = None) -> None:
    args = get_parser().parse_args(argv)
    config = FbankPitchConfig(args.sampling_rate, args.num_mel_bins, args.pitch, args.backend)
    check_output(args.output)
    cutter = cut_turns(args)
    cuts = cutter.cut_all(read_manifest(args.supervisions, "supervisions"))
    speeds = [1.0, 0.9, 1.1] if args.perturb_speed else [1.0]
    storage_dir = args.storage_dir or beside(args.output, "_feats")
    refused = len(cutter.bad)
    result = extract_features(make_tasks(cuts, speeds), config, storage_dir, args.num_jobs)
    for problem in result.problems:
        cutter.bad.add(*problem)
    write_manifest(result.cuts, args.output)
    if args.stats:
        result.stats.save(args.stats)
    logging.info("%s: features of %d turns at %d speeds", args.output, len(cuts), len(speeds))
    report(cutter, len(cuts) + refused, args)


def write_list(path: Path, problems: List[Problem]) -> None:
    """All turns that were left out, one a line; no file where there are none."""
    if problems:
        files.write_text(path, "".join(f"{p.place} {p.kind}: {p.detail}\n" for p in problems))
    else:
        path.unlink(missing_ok=True)


def report(cutter: TurnCutter, num_turns: int, args: argparse.Namespace) -> None:
    """Say what was left out; end with status 1 if that is too much."""
    logs = {"skipped": cutter.skipped, "repaired": cutter.trimmed, "left out": cutter.bad}
    for what, log in logs.items():
        if len(log):
            logging.warning("%s: %s", what, log.summary())
    write_list(beside(args.output, ".left_out.txt"), cutter.skipped.problems + cutter.bad.problems)
    if not num_turns:
        raise InputError(f"{args.supervisions}: no turn to compute features of")
    bad = len({problem.place for problem in cutter.bad.problems})  # a turn fails at every speed
    if bad > args.max_bad_share * num_turns:
        logging.error(
            "%d of %d turns are bad, more than --max-bad-share %g; the features of the others are "
            "in %s", bad, num_turns, args.max_bad_share, args.output,
        )  # fmt: skip
        sys.exit(1)


if __name__ == "__main__":
    run_stage(main)
