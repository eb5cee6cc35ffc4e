"""Hypotheses of a model written into a manifest, for training against its own mistakes.

Conversations are decoded in groups; what a group gave is appended to ``<output>.partial`` beside
the output, so that a run that was killed goes on where it was.  The output itself appears whole.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence

from lhotse.cut import Cut
from lhotse.utils import fastcopy
from tqdm import tqdm

from icefall_ctx.config import DecodeConfig
from icefall_ctx.data.conversation import augmentation_suffix
from icefall_ctx.data.custom import with_custom
from icefall_ctx.data.history import link_of
from icefall_ctx.data.manifests import check_manifest_path, read_manifest, write_manifest
from icefall_ctx.decode.run import Experiment, check_history
from icefall_ctx.errors import InputError
from icefall_ctx.files import check_output
from icefall_ctx.train.checkpoint import chosen_checkpoints

GROUP = 4  # conversations a group for each decoded in step


class Heard(NamedTuple):
    hyp: str
    confidence: float


def originals(cuts: Iterable[Cut]) -> List[Cut]:
    """Without augmented copies: a conversation is decoded once, not at every speed."""
    return [cut for cut in cuts if not augmentation_suffix(cut.supervisions[0])]


def groups_of(cuts: Sequence[Cut], size: int) -> List[List[Cut]]:
    """Whole conversations, ``size`` a group, in the order in which they begin in ``cuts``."""
    conversations: Dict[str, List[Cut]] = {}
    for cut in cuts:
        conversations.setdefault(link_of(cut, "conv_id"), []).append(cut)
    parts = list(conversations.values())
    return [sum(parts[i : i + size], []) for i in range(0, len(parts), size)]


def run_fingerprint(config: DecodeConfig, cuts: Sequence[Cut]) -> str:
    """Changes with the checkpoints, the options, and the turns to decode."""
    paths = chosen_checkpoints(Path(config.exp_dir), config.epoch, config.avg)
    states = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    content = [states, {k: str(v) for k, v in asdict(config).items()}, [cut.id for cut in cuts]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


class PartialFile:
    """Results so far, a line a group; lines of another run, and one cut off by a kill, are not
    taken."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint
        self.done: Dict[str, Heard] = {}
        for record in self._records():
            self.done.update({utt_id: Heard(*heard) for utt_id, heard in record.items()})

    def _records(self) -> Iterator[Dict[str, Any]]:
        if not self.path.exists():
            return
        for line in self.path.read_text(encoding="utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            if record["run"] == self.fingerprint:
                yield record["heard"]

    def add(self, heard: Dict[str, Heard]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"run": self.fingerprint, "heard": heard}, ensure_ascii=False)
        with open(self.path, "a", encoding="utf-8") as file:
            # the newline in front ends a line that a kill cut off
            file.write(f"\n{line}\n")
            file.flush()
            os.fsync(file.fileno())
        self.done.update(heard)


def decode_group(
    experiment: Experiment, history: str, cuts: Sequence[Cut], bar: tqdm
) -> Dict[str, Heard]:
    """Hypothesis and confidence by utt_id; an utterance without output is empty, confidence 0."""

    def counted(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            bar.update(len(batch) if batch is not None else 0)

    decoded = experiment.decode(cuts, history, counted)
    return {
        u.utt_id: Heard(" ".join(u.hyp or []), round(decoded.confidences.get(u.utt_id, 0.0), 4))
        for u in decoded.utterances
    }


def with_hypothesis(cut: Cut, heard: Dict[str, Heard]) -> Cut:
    """``cut`` with ``hyp`` and ``hyp_confidence`` in its supervision; copies at another speed
    stay as they are."""
    supervision = cut.supervisions[0]
    if augmentation_suffix(supervision):
        return cut
    found = heard[link_of(cut, "utt_id")]
    changed = with_custom(supervision, hyp=found.hyp, hyp_confidence=found.confidence)
    return fastcopy(cut, supervisions=[changed])


def write_hypotheses(config: DecodeConfig, cuts_path: Path, output: Path) -> Dict[str, Heard]:
    """Decode ``cuts_path`` turn by turn and write a copy of it with hypotheses.

    Raises:
      InputError: no cuts, only augmented ones, or an output that is no manifest's name.
    """
    check_manifest_path(output)
    check_output(output)
    all_cuts = list(read_manifest(cuts_path, "cuts"))
    cuts = originals(all_cuts)
    if not cuts:
        raise InputError(f"{cuts_path}: holds no cuts, or copies at other speeds only")
    experiment = Experiment.open(config)
    history = check_history(config, experiment.recogniser)
    partial = PartialFile(output.with_name(output.name + ".partial"), run_fingerprint(config, cuts))
    with tqdm(total=len(cuts), desc="hypotheses", unit="turn", disable=None) as bar:
        for group in groups_of(cuts, GROUP * config.batch_size):
            if all(link_of(cut, "utt_id") in partial.done for cut in group):
                bar.update(len(group))
            else:
                partial.add(decode_group(experiment, history, group, bar))
    write_manifest((with_hypothesis(cut, partial.done) for cut in all_cuts), output)
    partial.path.unlink(missing_ok=True)
    logging.info("%s: hypotheses of %d turns", output, len(cuts))
    return partial.done
