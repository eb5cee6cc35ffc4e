"""Train an extractor on a manifest: UBM, total variability, transform."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import chain
from typing import Iterable, Iterator, List

import torch
from torch import Tensor
from tqdm import tqdm

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.features.ivector import total_variability as tv
from icefall_ctx.features.ivector import ubm
from icefall_ctx.features.ivector.extractor import IvectorExtractor, TotalVariability
from icefall_ctx.features.ivector.frontend import FrontendConfig
from icefall_ctx.features.ivector.gmm import Gmm
from icefall_ctx.features.ivector.sources import (
    ShardPool,
    UtteranceSource,
    described,
    utterance_cuts,
)
from icefall_ctx.features.ivector.stats import (
    SelectionOptions,
    StatsComputer,
    StatsSource,
    batched_utterances,
)
from icefall_ctx.features.ivector.transforms import VectorTransform, train_transform


@dataclass(frozen=True)
class TrainingOptions:
    """Everything ``icefall-ctx ivector train`` can be told."""

    frontend: FrontendConfig = field(default_factory=FrontendConfig)
    ubm: ubm.UbmOptions = field(default_factory=ubm.UbmOptions)
    selection: SelectionOptions = field(default_factory=SelectionOptions)
    tv: tv.TotalVariabilityOptions = field(default_factory=tv.TotalVariabilityOptions)
    lda_dim: int = 100  # 0: none
    length_norm: bool = True
    cache_mb: int = 1024  # statistics kept in memory, all processes together
    num_jobs: int = 1
    device: str = "cpu"


def train_extractor(cuts: Iterable, options: TrainingOptions) -> IvectorExtractor:
    """Train on ``cuts``, a Lhotse cut set with speakers; see :class:`TrainingOptions`.

    Raises :class:`InputError` where the data cannot carry what was asked for, such as more
    Gaussians than frames.
    """
    singles = utterance_cuts(cuts)
    frontend = described(options.frontend, singles)
    with ShardPool(_shards(singles, frontend, options)) as pool:
        gmm = train_ubm(pool, options)
        model = train_model(pool, gmm, options)
        transform = _train_transform(pool, gmm, model, options)
    return IvectorExtractor(gmm, model, frontend, options.selection, transform)


def _shards(cuts: List, frontend: FrontendConfig, options: TrainingOptions) -> List[StatsSource]:
    num = max(1, min(options.num_jobs, len(cuts)))
    cache = options.cache_mb * 2**20 // num
    return [StatsSource(UtteranceSource(cuts[k::num], frontend), cache) for k in range(num)]


def train_ubm(pool: ShardPool, options: TrainingOptions) -> Gmm:
    """The UBM: started on a sample of the frames, then EM over all of them."""
    settings = options.ubm
    share = -(-settings.sample_frames // len(pool.shards))
    parts = pool.map(_sample_shard, share, settings.seed)
    frames = torch.cat(list(_progress(parts, pool, "reading the training set")))
    floor = ubm.variance_floor(frames, settings.variance_floor).to(options.device)
    frames = frames.to(options.device)
    gmm = ubm.start(frames, settings, floor)
    gmm = _em(pool, frames, gmm, floor, options)
    if settings.full:
        gmm = _em(pool, frames, ubm.as_full(gmm).to(options.device), floor, options)
    return gmm


def _em(
    pool: ShardPool, frames: Tensor, gmm: Gmm, floor: Tensor, options: TrainingOptions
) -> Gmm:
    """EM over the whole corpus: in memory where ``frames``, the sample, is all of it."""
    settings = options.ubm
    for _ in tqdm(range(settings.num_iters), "UBM", disable=None):
        if len(frames) < settings.sample_frames:
            stats = ubm.expectation([frames], gmm)
        else:
            stats = _sum(pool.map(_ubm_shard, gmm.to("cpu"), options.device))
        logging.info("UBM: log-likelihood a frame %.4f", stats.mean_log_likelihood)
        gmm = ubm.maximisation(stats, gmm, floor, settings.min_count)
    starved = int((stats.counts < settings.min_count).sum())
    if starved:
        logging.warning("UBM: %d of %d Gaussians have too few frames", starved, gmm.num_gaussians)
    return gmm.to("cpu")


def train_model(pool: ShardPool, gmm: Gmm, options: TrainingOptions) -> TotalVariability:
    settings = options.tv
    model = tv.initial_model(gmm, settings)
    for _ in tqdm(range(settings.num_iters), "total variability", disable=None):
        sums = _sum(pool.map(_tv_shard, gmm, model.matrix, model.offset, options))
        if not sums.num_utterances:
            raise InputError("no utterance with speech in the training data")
        model = tv.update(sums, model, settings)
    return model


def _train_transform(
    pool: ShardPool, gmm: Gmm, model: TotalVariability, options: TrainingOptions
) -> VectorTransform:
    parts = list(pool.map(_vectors_shard, gmm, model.matrix, model.offset, options))
    vectors = torch.cat([part[0] for part in parts])
    speakers = list(chain.from_iterable(part[1] for part in parts))
    return train_transform(vectors, speakers, options.lda_dim, options.length_norm)


def _sum(parts: Iterator):
    total = next(parts)
    for part in parts:
        total += part
    return total


def _progress(parts: Iterator, pool: ShardPool, text: str) -> Iterator:
    return tqdm(parts, text, total=len(pool.shards), unit="share", disable=None)


# What runs in the processes: functions of a shard and plain arguments.


def _sample_shard(shard: StatsSource, num_frames: int, seed: int) -> Tensor:
    try:
        return ubm.sample(shard.utterances.frames(), num_frames, seed)
    finally:
        _log_problems(shard.utterances.problems)


def _log_problems(problems: ProblemLog) -> None:
    if len(problems):
        logging.warning(problems.summary())


def _ubm_shard(shard: StatsSource, gmm: Gmm, device: str) -> ubm.GmmStats:
    stats = ubm.expectation(shard.utterances.frames(), gmm.to(device))
    stats.counts, stats.moments = stats.counts.cpu(), stats.moments.cpu()
    return stats


def _tv_shard(
    shard: StatsSource, gmm: Gmm, matrix: Tensor, offset: float, options: TrainingOptions
) -> tv.PosteriorSums:
    computer = StatsComputer(gmm.to(options.device), options.selection)
    batches = shard.batches(computer, options.tv.batch_size)
    sums = tv.expectation(batches, TotalVariability(matrix.to(options.device), offset))
    return sums.to("cpu")


def _vectors_shard(
    shard: StatsSource, gmm: Gmm, matrix: Tensor, offset: float, options: TrainingOptions
) -> tuple:
    """Raw i-vectors ``(N, R)`` of the utterances with speech, and their speakers."""
    extractor = IvectorExtractor(
        gmm, TotalVariability(matrix, offset), shard.utterances.config, options.selection,
        device=options.device,
    )
    vectors, speakers = [torch.zeros(0, matrix.shape[2], dtype=torch.float64)], []
    for batch in batched_utterances(shard.utterances, options.tv.batch_size):
        batch = [utterance for utterance in batch if len(utterance.frames)]
        if batch:
            vectors.append(extractor.raw(extractor.evidence([u.frames for u in batch])))
            speakers.extend(utterance.speaker for utterance in batch)
    return torch.cat(vectors), speakers
