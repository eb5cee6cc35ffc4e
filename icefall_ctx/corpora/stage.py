"""The stage of a recipe that reads a corpus: options, report, exit status."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from icefall_ctx.command_line import OneLineParser, number
from icefall_ctx.corpora.manifests import Manifests, describe, run_stage
from icefall_ctx.corpora.reading import share_lost
from icefall_ctx.errors import ProblemLog

Prepare = Callable[..., Dict[str, Manifests]]


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Where to write, and what to do about bad input."""
    parser.add_argument(
        "--manifest-dir",
        type=Path,
        default=Path("data/manifests"),
        help="where the manifests go (default: %(default)s)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at the first problem")
    parser.add_argument(
        "--max-lost",
        type=number(float, 0, 1),
        default=0.05,
        metavar="SHARE",
        help="share of turns and files that may be unusable before the exit status is 1 "
        "(default: %(default)s)",
    )


def read_corpus(
    args: argparse.Namespace, prepare: Prepare, *folders: Any, **options: Any
) -> None:
    """Call ``prepare``, print what was found, and exit with status 1 if too much was lost."""
    problems = ProblemLog(strict=args.strict)
    parts = prepare(*folders, output_dir=args.manifest_dir, problems=problems, **options)
    print(describe(parts))
    if problems:
        print(problems.summary())
    lost = share_lost(parts, problems)
    if lost > args.max_lost:
        print(f"{lost:.1%} of the input was not usable; --max-lost allows {args.max_lost:.1%}")
        sys.exit(1)


def corpus_stage(
    description: Optional[str],
    prepare: Prepare,
    counts: Optional[Dict[str, Tuple[int, str]]] = None,
    **folders: str,
) -> None:
    """A whole stage script for a reader whose inputs are folders and whole numbers.

    :param counts: argument of ``prepare`` -> default and help text of its option.
    :param folders: argument of ``prepare`` -> help text of its option, ``--corpus-dir`` for
        ``corpus_dir``.  All but ``corpus_dir`` may be left out.
    """

    def main(argv: Optional[Sequence[str]] = None) -> None:
        parser = OneLineParser(description=description)
        for name, text in folders.items():
            parser.add_argument(_flag(name), type=Path, required=name == "corpus_dir", help=text)
        for name, (default, text) in (counts or {}).items():
            text = f"{text} (default: %(default)s)"
            parser.add_argument(_flag(name), type=number(int, 0), default=default, help=text)
        add_reading_options(parser)
        args = parser.parse_args(argv)
        options = {name: getattr(args, name) for name in (*folders, *(counts or {}))}
        read_corpus(args, prepare, **options)

    run_stage(main)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
