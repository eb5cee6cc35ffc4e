#!/usr/bin/env python3
"""Speed and memory of the i-vector stage, beside scikit-learn and plain NumPy, in one run.

    local/bench/ivector.py FSDD_RECORDINGS            speeds, a few minutes
    local/bench/ivector.py FSDD_RECORDINGS --large    2,048 x 200 on one hour of speech, ten minutes

Sentences of about three seconds are joined from the digits of one speaker.  Speeds are in
processor time: of one thread with OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import os
import sys

if "AuthenticAMD" in open("/proc/cpuinfo").read():  # this MKL is slow there unless told otherwise
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")

import argparse
import resource
import tempfile
import time
import warnings
from pathlib import Path
from typing import Callable, List

import numpy as np
import soundfile
import torch
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

from icefall_ctx.features.ivector import total_variability as tv
from icefall_ctx.features.ivector import ubm
from icefall_ctx.features.ivector.extractor import IvectorExtractor
from icefall_ctx.features.ivector.frontend import FrontendConfig
from icefall_ctx.features.ivector.sources import UtteranceSource
from icefall_ctx.features.ivector.training import TrainingOptions, train_extractor

RATE = 8000


def make_corpus(recordings: Path, folder: Path, seconds: float, seed: int = 0) -> CutSet:
    """``seconds`` of speech in sentences of seven digits, with levels drawn at random."""
    rng = np.random.default_rng(seed)
    by_speaker: dict = {}
    for path in sorted(recordings.glob("*_*_*.wav")):
        by_speaker.setdefault(path.stem.split("_")[1], []).append(soundfile.read(path)[0])
    speakers, cuts, total = sorted(by_speaker), [], 0.0
    while total < seconds:
        speaker = speakers[len(cuts) % len(speakers)]
        digits = rng.choice(len(by_speaker[speaker]), 7)
        samples = np.concatenate([by_speaker[speaker][k] for k in digits]) * rng.uniform(0.3, 1)
        samples = samples + rng.normal(0, 3e-4, len(samples))
        path = folder / f"s{len(cuts):05d}.wav"
        soundfile.write(path, samples.astype(np.float32), RATE)
        recording = Recording.from_file(path)
        supervision = SupervisionSegment(path.stem, path.stem, 0, recording.duration)
        supervision.speaker = speaker
        cuts.append(
            MonoCut(path.stem, 0, recording.duration, 0, [supervision], recording=recording)
        )
        total += recording.duration
    return CutSet.from_cuts(cuts)


def timed(function: Callable, repeats: int = 1) -> float:
    """The best processor time of ``repeats`` calls, in seconds: other load hardly changes it."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def bench_ubm(frames: torch.Tensor, num_gaussians: int, num_iters: int) -> None:
    from sklearn.mixture import GaussianMixture

    options = ubm.UbmOptions(num_gaussians=num_gaussians)
    floor = ubm.variance_floor(frames, options.variance_floor)
    start = ubm.kmeans_start(frames, options, floor)
    data = frames.double().numpy()

    def sklearn_fit(iters: int) -> None:
        GaussianMixture(
            num_gaussians, covariance_type="diag", max_iter=iters, tol=0,
            weights_init=start.weights.numpy(), means_init=start.means.numpy(),
            precisions_init=1 / start.covariances.numpy(),
        ).fit(data)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "did not converge"
        # Its fit() has a first part (k-means, labels) that does not belong to the iterations.
        theirs = timed(lambda: sklearn_fit(1 + num_iters)) - timed(lambda: sklearn_fit(1))
    ours = timed(lambda: ubm.em([frames], start, floor, num_iters))
    work = num_iters * len(frames)
    print(
        f"UBM, {num_gaussians} Gaussians, {num_iters} iterations over {len(frames)} frames of "
        f"{frames.shape[1]}: {work / ours:,.0f} frames/s; scikit-learn {work / theirs:,.0f}; "
        f"{theirs / ours:.1f} times as fast"
    )


class NumpyExtractor:
    """The textbook, one utterance at a time, with what does not depend on it precomputed."""

    def __init__(self, extractor: IvectorExtractor) -> None:
        gmm = extractor.gmm
        self.weights, self.means = gmm.weights.numpy(), gmm.means.numpy()
        self.variances = gmm.covariances.numpy()
        self.matrix = extractor.model.matrix.numpy()  # whitened
        self.products = np.einsum("cdr,cds->crs", self.matrix, self.matrix, optimize=True)
        self.offset = extractor.model.offset
        self.constant = np.log(self.weights) - 0.5 * (
            np.log(2 * np.pi * self.variances) + self.means**2 / self.variances
        ).sum(1)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        logits = x @ (self.means / self.variances).T - 0.5 * x**2 @ (1 / self.variances).T
        logits += self.constant
        posterior = np.exp(logits - logits.max(1, keepdims=True))
        posterior /= posterior.sum(1, keepdims=True)
        first = (posterior.T @ x) / np.sqrt(self.variances)
        precision = np.tensordot(posterior.sum(0), self.products, 1)
        right = np.einsum("cdr,cd->r", self.matrix, first, optimize=True)
        right[0] += self.offset
        return np.linalg.solve(precision + np.eye(len(right)), right)


def bench_extraction(frames: List[torch.Tensor], num_gaussians: int, rank: int) -> None:
    joined = torch.cat(frames)
    options = ubm.UbmOptions(num_gaussians=num_gaussians)
    floor = ubm.variance_floor(joined, options.variance_floor)
    gmm = ubm.em([joined], ubm.kmeans_start(joined, options, floor), floor, 2)
    model = tv.initial_model(gmm, tv.TotalVariabilityOptions(rank=rank))
    extractor = IvectorExtractor(gmm, model, FrontendConfig())
    extractor.evidence(frames[:2])  # what is computed once
    reference = NumpyExtractor(extractor)
    plain = [f.double().numpy() for f in frames]
    theirs = timed(lambda: [reference(f) for f in plain], repeats=2)
    batch = 64
    ours = timed(
        lambda: [
            extractor.vectors(extractor.evidence(frames[k : k + batch]))
            for k in range(0, len(frames), batch)
        ],
        repeats=2,
    )
    print(
        f"extraction, {num_gaussians} x {rank}, {len(frames)} utterances, {len(joined)} frames: "
        f"{len(joined) / ours:,.0f} frames/s, {len(frames) / ours:.0f} utterances/s; NumPy "
        f"{len(joined) / theirs:,.0f} and {len(frames) / theirs:.0f}; "
        f"{theirs / ours:.1f} times as fast"
    )


def bench_large(cuts: CutSet, frontend: FrontendConfig) -> None:
    start = time.perf_counter()
    extractor = train_extractor(cuts, TrainingOptions(frontend, lda_dim=0))
    minutes = (time.perf_counter() - start) / 60
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    hours = sum(cut.duration for cut in cuts) / 3600
    print(
        f"training {extractor.gmm.num_gaussians} x {extractor.model.rank} on {hours:.2f} h "
        f"({len(cuts)} utterances): {minutes:.1f} minutes, peak memory {peak:.2f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, help="digits, {digit}_{speaker}_{index}.wav")
    parser.add_argument("--large", action="store_true", help="only 2,048 x 200 on one hour")
    args = parser.parse_args()
    frontend = FrontendConfig(source="audio", sampling_rate=RATE, num_mel_bins=24)
    print(f"{torch.get_num_threads()} threads")
    with tempfile.TemporaryDirectory() as folder:
        cuts = make_corpus(args.recordings, Path(folder), 3600 if args.large else 900)
        if args.large:
            bench_large(cuts, frontend)
            return
        frames = []
        seconds = timed(lambda: frames.extend(UtteranceSource(list(cuts), frontend).frames()))
        total = sum(len(f) for f in frames)
        print(f"front end from audio: {total / seconds:,.0f} frames/s of speech")
        for num_gaussians in (128, 512):
            bench_ubm(torch.cat(frames), num_gaussians, num_iters=3)
        bench_extraction(frames, 512, 100)
        bench_extraction(frames[:128], 2048, 200)


if __name__ == "__main__":
    sys.exit(main())
