"""Features of many cuts: in parallel, in order, over bad audio, and again after a kill.

The cuts are cut into chunks.  A chunk's features go to one Lilcom archive, its cuts to a manifest,
its account (problems, statistics) to a JSON file that is written last: where it exists, the chunk
is whole.  All three names hold a digest of everything the features depend on, so a second run
does only what is missing or has changed.

Storage is Lhotse's chunked Lilcom at a tick of 2^-8: values are rounded to within 0.002, which is
the size of the differences between backends, in 1.5 bytes a value instead of 4.  (Lhotse's default
tick, 2^-5, saves another quarter, but the pitch dimensions have a standard deviation of only a few
of its steps.)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from lhotse import CutSet, Features, MonoCut
from lhotse.audio.utils import AudioLoadingError, DurationMismatchError
from lhotse.features.io import LilcomChunkyWriter
from lhotse.utils import fastcopy
from tqdm import tqdm

from icefall_ctx.corpora.sphere import use_sphere_backend
from icefall_ctx.data.manifests import write_manifest
from icefall_ctx.errors import InputError, Problem
from icefall_ctx.features.audio import check_sources
from icefall_ctx.features.extractor import FbankPitch, FbankPitchConfig
from icefall_ctx.features.stats import FeatureStats, merged
from icefall_ctx.files import write_text

CHUNK_SIZE = 500  # cuts
TICK_POWER = -8

# What Lhotse and the libraries below it raise for audio that is missing, damaged or too short.
BAD_AUDIO = (
    AudioLoadingError,
    DurationMismatchError,
    AssertionError,
    OSError,
    RuntimeError,
    ValueError,
)


class CutTask(NamedTuple):
    """A turn and the speed at which its features are wanted."""

    cut: MonoCut
    speed: float


@dataclass(frozen=True)
class Chunk:
    """Some turns, and the file name (without suffix) of what comes out of them."""

    stem: str
    tasks: Tuple[CutTask, ...]
    config: FbankPitchConfig

    @property
    def manifest(self) -> Path:
        return Path(f"{self.stem}.cuts.jsonl.gz")

    @property
    def archive(self) -> Path:
        return Path(f"{self.stem}.lca")

    @property
    def account(self) -> Path:
        return Path(f"{self.stem}.json")


class ChunkResult(NamedTuple):
    problems: List[Problem]
    stats: FeatureStats


class ExtractionResult(NamedTuple):
    cuts: Iterator[MonoCut]  # in the order of the tasks
    problems: List[Problem]
    stats: FeatureStats


def make_tasks(cuts: Sequence[MonoCut], speeds: Sequence[float]) -> List[CutTask]:
    """All cuts at the first speed, then all at the second, and so on."""
    return [CutTask(cut, speed) for speed in speeds for cut in cuts]


def extract_features(
    tasks: Sequence[CutTask], config: FbankPitchConfig, storage_dir: Path, num_jobs: int = 1
) -> ExtractionResult:
    """Compute and store what ``storage_dir`` lacks of the features of ``tasks``.

    Cuts come out in the order of ``tasks`` whatever ``num_jobs`` is.  Cuts whose audio cannot be
    read are left out and listed in ``problems``; chunks with problems are tried again next time.
    """
    use_sphere_backend()  # before worker processes are forked
    chunks = _make_chunks(tasks, config, storage_dir)
    results: List[ChunkResult] = []
    bar = tqdm(total=len(tasks), desc="features", unit="cut", disable=None)
    with bar, _locked(storage_dir):
        for chunk, result in zip(chunks, _run(chunks, num_jobs)):
            results.append(result)
            bar.update(len(chunk.tasks))
    problems = [problem for result in results for problem in result.problems]
    dim = FbankPitch(config).feature_dim(config.sampling_rate)
    return ExtractionResult(
        cuts=(cut for chunk in chunks for cut in CutSet.from_jsonl_lazy(chunk.manifest)),
        problems=problems,
        stats=merged([result.stats for result in results], dim),
    )


def _make_chunks(
    tasks: Sequence[CutTask], config: FbankPitchConfig, storage_dir: Path
) -> List[Chunk]:
    # Every backend gives the same numbers, so another backend is no reason to do it again.
    settings = {**config.to_dict(), "backend": None, "tick": TICK_POWER}
    chunks: List[Chunk] = []
    for number, begin in enumerate(range(0, len(tasks), CHUNK_SIZE)):
        part = tuple(tasks[begin : begin + CHUNK_SIZE])
        digest = hashlib.sha256(json.dumps(settings).encode())
        for task in part:
            content = [task.cut.to_dict(), task.speed, _source_states(task.cut)]
            digest.update(json.dumps(content, sort_keys=True).encode())
        stem = str(storage_dir / f"feats-{number:05d}-{digest.hexdigest()[:12]}")
        chunks.append(Chunk(stem, part, config))
    return chunks


def _source_states(cut: MonoCut) -> List[Optional[Tuple[int, int]]]:
    """Size and time of change of every audio file: new audio under an old name is new."""
    sources = cut.recording.sources
    return [_file_state(source.source) for source in sources if source.type == "file"]


@lru_cache(maxsize=1 << 16)
def _file_state(path: str) -> Optional[Tuple[int, int]]:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One run at a time in ``folder``; a second waits and finds the work done."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start_worker(parent: int) -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A worker whose parent was killed would wait for work, and hold the lock, for ever."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _run(chunks: Sequence[Chunk], num_jobs: int) -> Iterator[ChunkResult]:
    if num_jobs <= 1:
        yield from map(_run_chunk, chunks)
        return
    context = multiprocessing.get_context("fork")
    try:
        with ProcessPoolExecutor(
            num_jobs, mp_context=context, initializer=_start_worker, initargs=(os.getpid(),)
        ) as pool:
            yield from pool.map(_run_chunk, chunks)
    except BrokenProcessPool as error:
        raise InputError(
            "a feature process died, perhaps for lack of memory; use fewer --num-jobs "
            "(what is done is kept)"
        ) from error


def _run_chunk(chunk: Chunk) -> ChunkResult:
    if chunk.account.is_file():
        return _read_account(chunk.account)
    temporary = Path(f"{chunk.stem}.tmp.lca")
    extractor = FbankPitch(chunk.config)
    stats = FeatureStats.zeros(extractor.feature_dim(chunk.config.sampling_rate))
    problems: List[Problem] = []
    cuts: List[MonoCut] = []
    try:
        with LilcomChunkyWriter(temporary, tick_power=TICK_POWER) as storage:
            for task in chunk.tasks:
                try:
                    cut, features = _compute(task, extractor)
                except BAD_AUDIO as error:
                    problems.append(_problem(task, error))
                    continue
                stats.add(features)  # a full disk is no bad audio: it ends the run
                cuts.append(_store(cut, features, extractor, storage))
        os.replace(temporary, chunk.archive)
    finally:
        temporary.unlink(missing_ok=True)
    for cut in cuts:
        cut.features.storage_path = str(chunk.archive)
    write_manifest(cuts, chunk.manifest)
    if not problems:
        write_text(chunk.account, json.dumps({"stats": stats.to_dict()}) + "\n")
    return ChunkResult(problems, stats)


def _read_account(path: Path) -> ChunkResult:
    data = json.loads(path.read_text(encoding="utf-8"))
    return ChunkResult([], FeatureStats.from_dict(data["stats"]))


def _problem(task: CutTask, error: BaseException) -> Problem:
    detail = " ".join(str(error).split("[extra info]")[0].split())[:200]
    sources = ", ".join(str(source.source) for source in task.cut.recording.sources)
    return Problem("bad audio", task.cut.id, f"{sources}: {detail}")


def _compute(task: CutTask, extractor: FbankPitch) -> Tuple[MonoCut, np.ndarray]:
    """The cut of ``task`` at its speed, and its features (T, C)."""
    check_sources(task.cut)
    cut = task.cut.resample(extractor.config.sampling_rate)
    if task.speed != 1.0:
        cut = cut.perturb_speed(task.speed)
    features = extractor.extract(cut.load_audio(), cut.sampling_rate)
    if not len(features):
        raise InputError(f"shorter than one frame ({cut.duration} s)")
    return cut, features


def _store(
    cut: MonoCut, features: np.ndarray, extractor: FbankPitch, storage: LilcomChunkyWriter
) -> MonoCut:
    """``cut`` with its features, now in ``storage``."""
    return fastcopy(
        cut,
        features=Features(
            type=extractor.name,
            num_frames=features.shape[0],
            num_features=features.shape[1],
            frame_shift=extractor.frame_shift,
            sampling_rate=cut.sampling_rate,
            start=cut.start,
            duration=cut.duration,
            storage_type=storage.name,
            storage_path=str(storage.storage_path),
            storage_key=storage.write(cut.id, features),
            recording_id=cut.recording_id,
            channels=cut.channel,
        ),
    )
