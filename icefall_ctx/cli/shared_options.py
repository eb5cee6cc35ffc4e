"""Click options that several commands have."""

from __future__ import annotations

from typing import Callable

import click

from icefall_ctx.score.units import UNITS

normalizer_option = click.option(
    "--normalizer", default="", help="Named rules for both sides, such as 'english'."
)
unit_option = click.option(
    "--unit",
    type=click.Choice(list(UNITS)),
    default="word",
    show_default=True,
    help="mixed: Chinese characters one by one, words of other scripts whole.",
)


def seed_option(what: str) -> Callable:
    """``--seed``, a whole number from 0 on; ``what`` it is of."""
    return click.option(
        "--seed", type=click.IntRange(min=0), default=0, show_default=True, help=what
    )
