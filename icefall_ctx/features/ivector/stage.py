"""I-vectors for a manifest: Lhotse arrays attached to its supervisions.

Three modes:

``utterance``  each vector from its own speech.  Without speech: from all the speaker's
               utterances of the manifest.
``speaker``    each vector from all the speaker's utterances of the manifest.
``online``     each vector from this and earlier turns of the speaker in the conversation, see
               :mod:`.online`.  Turns are ordered by ``turn``, the number that linking gave them,
               whatever their order in the manifest; without links by start time.

A speaker without any speech gets zeros, the mean of the training set.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Union

import torch
from lhotse import CutSet, SupervisionSegment
from lhotse.array import Array
from lhotse.features.io import LilcomChunkyWriter
from lhotse.utils import fastcopy
from torch import Tensor
from tqdm import tqdm

from icefall_ctx.data.custom import with_custom
from icefall_ctx.data.manifests import read_some
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.features.ivector.extractor import Evidence, IvectorExtractor
from icefall_ctx.features.ivector.online import MAX_FRAMES, OnlineIvector
from icefall_ctx.features.ivector.sources import ShardPool, UtteranceSource, utterance_cuts
from icefall_ctx.features.ivector.stats import batched_utterances
from icefall_ctx.files import atomic_path

MODES = ("utterance", "speaker", "online")
FIELD = "ivector"
BATCH = 64  # utterances


@dataclass(frozen=True)
class ExtractionReport:
    """How many vectors were written, and how many came from elsewhere than their own speech."""

    num_vectors: int
    num_frames: int  # of speech
    from_speaker: int  # no speech of their own: the speaker's other utterances
    from_prior: int  # no speech of the speaker: zeros

    def __str__(self) -> str:
        return (
            f"{self.num_vectors} i-vectors from {self.num_frames} frames of speech; without speech "
            f"of their own: {self.from_speaker} from the speaker's other utterances, "
            f"{self.from_prior} from the prior mean"
        )


def conversation_key(supervision: SupervisionSegment) -> str:
    """The conversation, kept apart from its speed-perturbed and otherwise augmented copies."""
    custom = supervision.custom or {}
    original = custom.get("utt_id", supervision.id)
    suffix = supervision.id[len(original) :] if supervision.id.startswith(original) else ""
    return f"{custom.get('conv_id', supervision.recording_id)}{suffix}"


def speaker_key(supervision: SupervisionSegment) -> str:
    """The speaker; an utterance without one is a speaker of its own."""
    return supervision.speaker or f"utterance {supervision.id}"


def turn_position(cut) -> tuple:
    """What turns of a conversation are sorted by: turn number, else start time."""
    supervision = cut.supervisions[0]
    turn = (supervision.custom or {}).get("turn")
    if turn is not None:
        return (0, turn, supervision.id)
    return (1, cut.start + supervision.start, supervision.id)


def in_turn_order(cuts: Iterable) -> List:
    """Cuts with the turns of a conversation and speaker together, oldest first."""
    return sorted(
        cuts,
        key=lambda cut: (
            conversation_key(cut.supervisions[0]),
            speaker_key(cut.supervisions[0]),
            turn_position(cut),
        ),
    )


class _Vectors:
    """Turns the evidence of utterances, in the order of ``cuts``, into vectors, and counts."""

    def __init__(self, extractor: IvectorExtractor) -> None:
        self.extractor = extractor
        self.counts: Counter = Counter()

    def _count(self, own: float, total: float) -> None:
        self.counts["from_speaker" if total else "from_prior"] += own == 0

    def by_utterance(self, rows: Iterator[tuple]) -> Iterator[tuple]:
        pooled: Dict[str, Evidence] = {}
        silent: List[tuple] = []
        for supervision, evidence in rows:
            key = speaker_key(supervision)
            pooled[key] = pooled[key] + evidence if key in pooled else evidence
            if float(evidence.counts):
                yield supervision.id, self.extractor.vectors(evidence)[0]
            else:
                silent.append((supervision.id, key))
        for id_, key in silent:
            self._count(0.0, float(pooled[key].counts))
            yield id_, self.extractor.vectors(pooled[key])[0]

    def by_speaker(self, rows: Iterator[tuple]) -> Iterator[tuple]:
        pooled: Dict[str, Evidence] = {}
        members: List[tuple] = []
        for supervision, evidence in rows:
            key = speaker_key(supervision)
            pooled[key] = pooled[key] + evidence if key in pooled else evidence
            members.append((supervision.id, key, float(evidence.counts)))
        vectors = {key: self.extractor.vectors(value)[0] for key, value in pooled.items()}
        for id_, key, own in members:
            self._count(own, float(pooled[key].counts))
            yield id_, vectors[key]

    def online(self, rows: Iterator[tuple], max_frames: float) -> Iterator[tuple]:
        for _, turns in groupby(rows, key=lambda row: conversation_key(row[0])):
            session = OnlineIvector(self.extractor, max_frames)
            for supervision, evidence in turns:
                vector = session.accept_evidence(speaker_key(supervision), evidence)
                self._count(float(evidence.counts), float(vector.abs().sum()))
                yield supervision.id, vector


def _evidence_rows(
    shard: UtteranceSource, extractor: IvectorExtractor, totals: Counter
) -> Iterator[tuple]:
    """(supervision, evidence of one row) for every cut of ``shard``."""
    position = 0
    for batch in batched_utterances(shard, BATCH):
        evidence = extractor.evidence([utterance.frames for utterance in batch])
        totals["num_frames"] += sum(len(utterance.frames) for utterance in batch)
        for row in range(len(batch)):
            yield shard.cuts[position].supervisions[0], evidence[row : row + 1]
            position += 1


def _extract_shard(
    shard: UtteranceSource, path: str, mode: str, max_frames: float, device: str
) -> tuple:
    """Ids, vectors ``(N, dim)`` float32 and counts of one share of the manifest."""
    vectors = _Vectors(IvectorExtractor.load(path, device))
    totals: Counter = Counter()
    rows = _evidence_rows(shard, vectors.extractor, totals)
    rows = tqdm(rows, f"i-vectors ({mode})", total=len(shard.cuts), unit="utt", disable=None)
    if mode == "online":
        pairs = list(vectors.online(rows, max_frames))
    else:
        pairs = list(vectors.by_speaker(rows) if mode == "speaker" else vectors.by_utterance(rows))
    totals.update(vectors.counts)
    if len(shard.problems):
        logging.warning(shard.problems.summary())
    return [p[0] for p in pairs], torch.stack([p[1] for p in pairs]).float(), totals


def shares(cuts: List, num: int, key: Callable) -> List[List]:
    """``cuts`` in at most ``num`` lists of about equal length; equal keys stay together."""
    groups: Dict[str, List] = {}
    for cut in cuts:
        groups.setdefault(key(cut.supervisions[0]), []).append(cut)
    result: List[List] = [[] for _ in range(max(1, min(num, len(groups))))]
    for group in groups.values():
        min(result, key=len).extend(group)
    return result


def extract_vectors(
    cuts: Iterable,
    extractor_path: Union[str, Path],
    mode: str = "utterance",
    max_frames: float = MAX_FRAMES,
    num_jobs: int = 1,
    device: str = "cpu",
) -> tuple:
    """``({supervision id: vector (dim,)}, ExtractionReport)`` for all supervisions of ``cuts``.

    ``max_frames``: the forgetting limit of mode ``online``, in frames of speech; 0: none.
    """
    if mode not in MODES:
        raise InputError(f"mode {mode!r}: choose one of {', '.join(MODES)}")
    config = IvectorExtractor.load(extractor_path).frontend
    singles = utterance_cuts(cuts)
    if mode == "online":
        singles = in_turn_order(singles)
    key = conversation_key if mode == "online" else speaker_key
    shards = [UtteranceSource(part, config) for part in shares(singles, num_jobs, key)]
    vectors: Dict[str, Tensor] = {}
    totals: Counter = Counter()
    with ShardPool(shards) as pool:
        for ids, matrix, counts in pool.map(
            _extract_shard, str(extractor_path), mode, max_frames, device
        ):
            vectors.update(zip(ids, matrix))
            totals.update(counts)
    report = ExtractionReport(
        len(vectors), totals["num_frames"], totals["from_speaker"], totals["from_prior"]
    )
    return vectors, report


def store_vectors(vectors: Dict[str, Tensor], path: Union[str, Path]) -> Dict[str, Array]:
    """Write all vectors to the one file ``path`` (``.lca``); values are rounded to 2^-16."""
    path = Path(path)
    if path.suffix != ".lca":
        raise InputError(f"{path}: the file of the vectors must be named *.lca")
    arrays = {}
    with atomic_path(path) as temporary:
        with LilcomChunkyWriter(temporary, tick_power=-16) as writer:
            for id_, vector in vectors.items():
                # A copy: lilcom rounds its input in place.
                array = writer.store_array(id_, vector.numpy().copy())
                arrays[id_] = fastcopy(array, storage_path=str(path))
    return arrays


def attach(
    cuts: Iterable, arrays: Dict[str, Array], problems: Optional[ProblemLog] = None
) -> CutSet:
    """Copies of ``cuts`` whose supervisions have ``custom["ivector"]``: ``sup.load_ivector()``.

    A supervision without a vector is logged to ``problems``, or refused where there is no log.
    """
    problems = ProblemLog(strict=True) if problems is None else problems  # an empty log is falsy

    def with_vector(supervision: SupervisionSegment) -> SupervisionSegment:
        if supervision.id not in arrays:
            problems.add("no i-vector", supervision.id)
            return supervision
        return with_custom(supervision, **{FIELD: arrays[supervision.id]})

    return CutSet.from_cuts([cut.map_supervisions(with_vector) for cut in cuts])


def extract_manifest(
    manifest: Union[str, Path],
    extractor_path: Union[str, Path],
    output: Union[str, Path],
    storage: Union[str, Path],
    **options,
) -> ExtractionReport:
    """Read the cuts ``manifest``, write ``storage`` (vectors), then ``output`` (cuts).

    ``options`` are those of :func:`extract_vectors`.
    """
    cuts = load_cuts(manifest)
    vectors, report = extract_vectors(cuts, extractor_path, **options)
    # A kill must not leave an old manifest that points into new vectors.
    Path(output).unlink(missing_ok=True)
    arrays = store_vectors(vectors, storage)
    save_cuts(attach(cuts, arrays), output)
    return report


def load_cuts(manifest: Union[str, Path]) -> CutSet:
    """The cuts of ``manifest``, in memory: only times and names, no speech."""
    return read_some(manifest, "cuts")


def save_cuts(cuts: CutSet, path: Union[str, Path]) -> None:
    with atomic_path(path) as temporary:
        cuts.to_file(temporary)
