"""Decode a test set once with every history a model can use, for :mod:`icefall_ctx.score.audit`."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from lhotse.cut import Cut

from icefall_ctx.config import DecodeConfig
from icefall_ctx.decode.run import Experiment, check_history, progress_bar, test_set_name
from icefall_ctx.errors import InputError
from icefall_ctx.files import write_text
from icefall_ctx.score.audit import BASELINE, Audit, audit, audit_text
from icefall_ctx.score.audit_picture import plot_audit
from icefall_ctx.score.report import normalizer_rules, retokenize
from icefall_ctx.score.results import store_transcripts
from icefall_ctx.score.units import RATE_NAMES
from icefall_ctx.score.wer import Utterance


def possible_histories(experiment: Experiment, wanted: Sequence[str]) -> List[str]:
    """Those of ``wanted`` that change what the model is given.

    Raises:
      InputError: the model is given nothing of earlier turns.
    """
    recogniser = experiment.recogniser
    if not recogniser.reads_text and recogniser.model.config.attention != "context":
        raise InputError(
            f"{experiment.config.exp_dir}: with --method {experiment.config.method} this model is "
            "given nothing of earlier turns; audit a model with --text-context or "
            "--attention context"
        )
    if not recogniser.reads_text and "ref" in wanted:
        logging.info("the model reads no text of earlier turns: ref is left out")
    return [h for h in wanted if h != "ref" or recogniser.reads_text]


def decode_histories(
    experiment: Experiment, cuts: Sequence[Cut], histories: Sequence[str], name: str = ""
) -> Dict[str, List[Utterance]]:
    """One decoding for each history."""
    return {
        history: experiment.decode(cuts, history, progress_bar(f"{name} {history}")).utterances
        for history in histories
    }


def run_audit(
    config: DecodeConfig,
    histories: Sequence[str],
    baseline_exp_dir: Optional[Path] = None,
    output_dir: Optional[Path] = None,
    resamples: int = 2000,
) -> List[Audit]:
    """Audit a model on every test set of ``--test-cuts``.

    Writes ``recogs-<set>-<history>.txt``, ``audit-<set>.txt``, ``.json`` and ``.png`` to
    ``output_dir``, by default the folder ``audit`` of the experiment.
    """
    experiment = Experiment.open(config)
    histories = possible_histories(experiment, histories)
    baseline = None
    if baseline_exp_dir is not None:
        baseline = Experiment.open(replace(config, exp_dir=baseline_exp_dir, history="hyp"))
    folder = output_dir or Path(config.exp_dir) / "audit"
    results = []
    for file_name in filter(None, config.test_cuts.split(",")):
        name = test_set_name(file_name)
        cuts = experiment.module.read_cuts(file_name)
        decoded = decode_histories(experiment, cuts, histories, name)
        if baseline is not None:
            decoded[BASELINE] = _decode_baseline(baseline, file_name, name)
        for history, utterances in decoded.items():
            store_transcripts(folder / f"recogs-{name}-{history}.txt", utterances)
        rules = normalizer_rules(config.rules)
        scored = {
            history: retokenize(utterances, unit=config.unit, rules=rules)
            for history, utterances in decoded.items()
        }
        result = audit(
            scored, name=name, unit=config.unit, resamples=resamples, seed=config.seed
        )
        write_audit(result, folder)
        results.append(result)
    return results


def _decode_baseline(baseline: Experiment, file_name: str, name: str) -> List[Utterance]:
    history = check_history(baseline.config, baseline.recogniser)
    cuts = baseline.module.read_cuts(file_name)
    return baseline.decode(cuts, history, progress_bar(f"{name} {BASELINE}")).utterances


def write_audit(result: Audit, folder: Path) -> None:
    rate = RATE_NAMES[result.unit]
    stem = f"audit-{result.name}"
    write_text(folder / f"{stem}.txt", audit_text(result, rate))
    write_text(folder / f"{stem}.json", json.dumps(result.to_dict(), indent=2) + "\n")
    plot_audit(result, folder / f"{stem}.png", rate)
