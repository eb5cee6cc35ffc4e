"""``icefall-ctx audit``: what the history does for one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Optional, Tuple

import click

from icefall_ctx.cli.config_options import config_from, config_options
from icefall_ctx.config import DecodeConfig
from icefall_ctx.errors import InputError
from icefall_ctx.score.audit import HISTORIES, audit_text
from icefall_ctx.score.units import RATE_NAMES


def _histories(context, parameter, value: str) -> Tuple[str, ...]:
    chosen = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    for name in chosen:
        if name not in HISTORIES:
            raise click.BadParameter(f"'{name}' is none of {', '.join(HISTORIES)}")
    if not chosen:
        raise click.BadParameter(f"name at least one of {', '.join(HISTORIES)}")
    return chosen


@click.command()
@config_options(DecodeConfig, "exp_dir", "test_cuts")
@click.option(
    "--baseline-exp-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of a model to compare with, decoded once on the same cuts.",
)
@click.option(
    "--histories",
    default=",".join(HISTORIES),
    show_default=True,
    callback=_histories,
    help="What the model is given as history, a decoding each: own hypotheses, references, "
    "nothing, or hypotheses of other conversations.",
)
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the reports go.  [default: audit in --exp-dir]",
)
@click.option(
    "--bootstrap",
    type=click.IntRange(min=100),
    default=2000,
    show_default=True,
    help="Resamples of conversations for 95 % intervals and p-values.",
)
@config_options(
    DecodeConfig,
    "epoch",
    "avg",
    "manifest_dir",
    "index",
    "method",
    "beam_size",
    "ctc_decode_weight",
    "length_bonus",
    "max_len_ratio",
    "lm_exp_dir",
    "lm_scale",
    "batch_size",
    "history_min_confidence",
    "normalizer",
    "unit",
    "num_threads",
    "seed",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def audit(
    baseline_exp_dir: Optional[Path],
    histories: Tuple[str, ...],
    output_dir: Optional[Path],
    bootstrap: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Error rates of one model with every history, by side and position in the conversation.

    The test cuts are decoded once with each history.  The report has intervals over
    conversations, paired differences to no history and to a baseline, and says whether the model
    leans on its history too much: whether other people's history costs more than 3 % relative
    against none.  Written as text, JSON and a picture.
    """
    config = config_from(DecodeConfig, options, "icefall-ctx audit")
    if not config.test_cuts:
        raise InputError("no test set; name cuts with --test-cuts")

    from icefall_ctx.decode.audit import run_audit

    results = run_audit(config, histories, baseline_exp_dir, output_dir, bootstrap)
    if as_json:
        click.echo(json.dumps([result.to_dict() for result in results], indent=2))
    else:
        click.echo("\n".join(audit_text(r, RATE_NAMES[r.unit]) for r in results), nl=False)
