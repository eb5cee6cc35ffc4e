"""Utterances of a manifest as frames, one after the other, on one process or several."""

from __future__ import annotations

import pickle
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional

import torch
from lhotse.audio.utils import AudioLoadingError
from torch import Tensor

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.features.ivector.frontend import Frames, Frontend, FrontendConfig


class Utterance(NamedTuple):
    """The speech frames ``(T, D)`` of one supervision."""

    id: str
    speaker: str
    frames: Tensor


def utterance_cuts(cuts: Iterable) -> List:
    """One cut a supervision, in manifest order; a cut with several is taken apart.

    Raises :class:`InputError` where there is none, or an id occurs twice.
    """
    singles: List = []
    for cut in cuts:
        if len(cut.supervisions) == 1:
            singles.append(cut)
        else:
            singles.extend(cut.trim_to_supervisions(keep_overlapping=False))
    if not singles:
        raise InputError("the manifest has no supervision to compute an i-vector for")
    seen = set()
    for cut in singles:
        id_ = cut.supervisions[0].id
        if id_ in seen:
            raise InputError(f"{id_}: this supervision id occurs twice; ids must be unique")
        seen.add(id_)
    return singles


def described(config: FrontendConfig, cuts: List) -> FrontendConfig:
    """``config`` with the kind and dimension of the stored features that ``cuts`` have."""
    if config.source == "audio":
        return config
    features = _features_of(cuts[0])
    if features.num_features < config.num_mel_bins:
        raise InputError(
            f"{cuts[0].id}: stored features have {features.num_features} columns, fewer than "
            f"num_mel_bins={config.num_mel_bins}"
        )
    return replace(config, feature_type=features.type, feature_dim=features.num_features)


def _features_of(cut):
    if not cut.has_features:
        raise InputError(f"{cut.id}: the manifest has no features; compute them, or use audio")
    track = cut if hasattr(cut, "features") else cut.tracks[0].cut
    return track.features


def check_features(cut, config: FrontendConfig) -> None:
    """Raise :class:`InputError` unless the cut's features are what the extractor was made for."""
    features = _features_of(cut)
    found = (features.type, features.num_features)
    wanted = (config.feature_type, config.feature_dim)
    if found != wanted:
        raise InputError(
            f"{cut.id}: features of type {found[0]} with {found[1]} dimensions, but this extractor "
            f"was trained on {wanted[0]} with {wanted[1]}"
        )


@dataclass
class UtteranceSource:
    """Iterates over :class:`Utterance`; what cannot be read is logged and gives no frames.

    Nothing is kept between utterances, so memory does not grow with the corpus.
    """

    cuts: List
    config: FrontendConfig
    problems: ProblemLog = field(default_factory=ProblemLog)
    reported: bool = False  # a problem is logged in the first pass only

    def __len__(self) -> int:
        return len(self.cuts)

    def __iter__(self) -> Iterator[Utterance]:
        return self.starting(0)

    def starting(self, position: int) -> Iterator[Utterance]:
        """The utterances from ``position`` on."""
        frontend = Frontend(self.config)
        for cut in self.cuts[position:]:
            frames = self._load(cut, frontend)
            supervision = cut.supervisions[0]
            if not self.reported:
                self._report(supervision.id, frames)
            yield Utterance(supervision.id, supervision.speaker or supervision.id, frames.frames)
        self.reported = True

    def _load(self, cut, frontend: Frontend) -> Frames:
        if self.config.source == "features":
            check_features(cut, self.config)
        try:
            return frontend(self._log_mel(cut, frontend))
        except (OSError, AudioLoadingError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self.problems.add(f"{self.config.source} not readable", cut.id, reason)
            return Frames(torch.zeros(0, self.config.dim), 0, 0)

    def _log_mel(self, cut, frontend: Frontend) -> Tensor:
        if self.config.source == "features":
            return torch.from_numpy(cut.load_features())
        samples = torch.from_numpy(cut.load_audio()[0])
        return frontend.log_mel(samples, cut.sampling_rate, cut.id)

    def _report(self, place: str, frames: Frames) -> None:
        if frames.num_bad:
            self.problems.add(
                "frames not finite", place, f"{frames.num_bad} of {frames.num_total} left out"
            )
        if not len(frames.frames):
            self.problems.add("no speech", place, f"in {frames.num_total} frames")

    def frames(self) -> Iterator[Tensor]:
        for utterance in self:
            yield utterance.frames


_HELD: Optional[Any] = None  # in a worker: its share of the corpus


def _hold(source: Any, threads: int) -> None:
    global _HELD
    torch.set_num_threads(threads)
    _HELD = source


class _Pickler(pickle.Pickler):
    """Writes tensors as arrays, straight to the file; torch's own way copies them first."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is Tensor:
            return torch.from_numpy, (value.cpu().contiguous().numpy(),)
        return NotImplemented


def _dump(value: Any, path: Path) -> None:
    with path.open("wb") as file:
        _Pickler(file, protocol=5).dump(value)


def _undump(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)


def _call(function: Callable, payload: Path, result: Path) -> None:
    _dump(function(_HELD, *_undump(payload)), result)


class ShardPool:
    """Calls ``function(shard, *arguments)`` for every shard, each in a process of its own.

    A process keeps its shard, so that what it caches stays.  Arguments and results travel through
    files: they may be larger than what a pipe takes well, and one result is in memory at a time.
    One shard runs here, without a process.  Use as a context manager.
    """

    def __init__(self, shards: List[Any], threads: int = 1) -> None:
        self.shards, self.threads = shards, threads
        self._workers: List[ProcessPoolExecutor] = []
        self._folder: Optional[tempfile.TemporaryDirectory] = None

    def __enter__(self) -> "ShardPool":
        if len(self.shards) > 1:
            self._folder = tempfile.TemporaryDirectory(prefix="icefall-ctx-ivector-")
            context = get_context("spawn")
            self._workers = [
                ProcessPoolExecutor(1, context, _hold, (shard, self.threads))
                for shard in self.shards
            ]
        return self

    def __exit__(self, *exception) -> None:
        for worker in self._workers:
            worker.shutdown(wait=True, cancel_futures=True)
        if self._folder is not None:
            self._folder.cleanup()

    def map(self, function: Callable, *arguments: Any) -> Iterator[Any]:
        """Results in the order of the shards, so that sums do not depend on timing."""
        if not self._workers:
            yield function(self.shards[0], *arguments)
            return
        folder = Path(self._folder.name)
        payload = folder / "arguments"
        _dump(arguments, payload)
        results = [folder / f"result-{k}" for k in range(len(self._workers))]
        futures = [
            worker.submit(_call, function, payload, result)
            for worker, result in zip(self._workers, results)
        ]
        for future, result in zip(futures, results):
            future.result()
            yield _undump(result)
            result.unlink()
