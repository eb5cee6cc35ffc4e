"""What a decoding gives: utterances with both sides, what they cost, and the result files."""

from __future__ import annotations

import json
import logging
import resource
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from lhotse.cut import Cut

from icefall_ctx.config import DecodeConfig
from icefall_ctx.data.batch import Batch
from icefall_ctx.data.history import link_of
from icefall_ctx.decode import lattice_run
from icefall_ctx.decode.beam import Hypothesis
from icefall_ctx.files import write_text
from icefall_ctx.score.report import evaluate
from icefall_ctx.score.results import (
    result_paths,
    store_transcripts,
    write_error_stats,
    write_summary,
)
from icefall_ctx.score.wer import Utterance
from icefall_ctx.text.tokenizer import Tokenizer


@dataclass
class Decoded:
    """Results of one test set.

    Attributes:
      utterances: in the order they were decoded.
      confidences: by utt_id.
      audio_seconds, seconds: of speech, and what decoding it took, loading of features included.
    """

    utterances: List[Utterance] = field(default_factory=list)
    confidences: Dict[str, float] = field(default_factory=dict)
    audio_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def real_time_factor(self) -> float:
        return self.seconds / self.audio_seconds if self.audio_seconds else float("nan")


def collect(
    decoded: Decoded, batch: Batch, results: List[List[Hypothesis]], tokenizer: Tokenizer
) -> None:
    """Add the best hypothesis of every row."""
    for row, nbest in enumerate(results):
        utt_id = batch.utt_ids[row]
        decoded.utterances.append(
            Utterance(
                utt_id,
                batch.texts[row].split(),
                recognised_text(nbest[0], tokenizer).split(),
                batch.conv_ids[row],
                batch.speakers[row],
                batch.sides[row],
                batch.turns[row],
            )
        )
        decoded.confidences[utt_id] = nbest[0].confidence
    decoded.audio_seconds += sum(batch.durations)


def recognised_text(hypothesis: Hypothesis, tokenizer: Tokenizer) -> str:
    """The words of a search over words, else what the tokens spell."""
    if hypothesis.text is not None:
        return hypothesis.text
    return tokenizer.decode(hypothesis.tokens)


def add_missing(decoded: Decoded, cuts: Sequence[Cut], normalize: Any) -> None:
    """Utterances that could not be decoded count as deleted, and are named."""
    done = {utterance.utt_id for utterance in decoded.utterances}
    for cut in cuts:
        utt_id = link_of(cut, "utt_id")
        if utt_id not in done:
            logging.warning("%s: no output; its words count as deleted", utt_id)
            sup = cut.supervisions[0]
            words = normalize(sup.text or "").split()
            side = str((sup.custom or {}).get("side", ""))
            decoded.utterances.append(
                Utterance(
                    utt_id,
                    words,
                    None,
                    link_of(cut, "conv_id"),
                    sup.speaker or "",
                    side,
                    link_of(cut, "turn"),
                )
            )


def peak_memory_mb() -> float:
    """The most main memory that this process has held so far, in MB of 2^20 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, KiB on Linux


def write_results(
    decoded: Decoded,
    folder: Path,
    test_set: str,
    suffix: str,
    config: DecodeConfig,
    lattices: Optional[Dict[str, Any]] = None,
) -> float:
    """recogs, errs, wer-summary, and a report as text and JSON.  Returns the main rate.

    Args:
      lattices: what a lattice method adds to the report.
    """
    paths = result_paths(folder, test_set, suffix)
    store_transcripts(paths.recogs, decoded.utterances)
    write_error_stats(paths.errs, decoded.utterances)
    report = evaluate(
        decoded.utterances, name=test_set, unit=config.unit, rules=config.rules, seed=config.seed
    )
    cost = dict(
        method=config.method,
        real_time_factor=decoded.real_time_factor,
        audio_seconds=decoded.audio_seconds,
        peak_memory_mb=peak_memory_mb(),
    )
    text = (
        f"{report.text()}real-time factor {decoded.real_time_factor:.3f}, "
        f"{decoded.audio_seconds:.0f} s of speech, peak memory {cost['peak_memory_mb']:.0f} MB\n"
    )
    if lattices is not None:
        text += lattice_run.details_text(lattices)
    stem = f"report-{test_set}-{suffix}"
    write_text(folder / f"{stem}.txt", text)
    details = dict(report.to_dict(), **cost, **(lattices or {}))
    write_text(folder / f"{stem}.json", json.dumps(details, indent=2) + "\n")
    write_summary(paths.summary, {suffix: 100 * report.main.total.rate})
    print(text)
    return report.main.total.rate
