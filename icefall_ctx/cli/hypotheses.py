"""``icefall-ctx hypotheses``: a model's own output in a manifest, as history for training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from icefall_ctx.cli.config_options import config_from, config_options
from icefall_ctx.config import DecodeConfig

_MANIFEST = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("cuts", type=_MANIFEST)
@click.argument("output", type=_MANIFEST)
@config_options(
    DecodeConfig,
    "exp_dir",
    "epoch",
    "avg",
    "method",
    "beam_size",
    "ctc_decode_weight",
    "length_bonus",
    "max_len_ratio",
    "lm_exp_dir",
    "lm_scale",
    "batch_size",
    "history",
    "history_min_confidence",
    "num_threads",
    "seed",
)
def hypotheses(cuts: Path, output: Path, **options: Any) -> None:
    """Decode CUTS turn by turn and write OUTPUT, a copy with hypotheses.

    Every supervision gets the custom fields hyp (text) and hyp_confidence (0 to 1).  Training
    with --train-cuts OUTPUT --history-hyps true --history-noise P reads them as history.  Copies
    at other speeds are passed on as they are; training finds the hypothesis of the original.

    A model makes fewer mistakes on what it was trained on than on other speech: an early epoch
    (--epoch, --avg) makes hypotheses more like those of a test set.  A run that was killed goes on
    where it was.
    """
    config = config_from(DecodeConfig, options, "icefall-ctx hypotheses")

    from icefall_ctx.decode.hypotheses import write_hypotheses

    found = write_hypotheses(config, cuts, output)
    empty = sum(not heard.hyp for heard in found.values())
    click.echo(f"{output}: hypotheses of {len(found)} turns, {empty} of them empty")
