#!/usr/bin/env python3
"""How many seconds of audio each feature backend does in a second, on one core.

All backends see the same signal in the same run, in turn, so that the ratios do not depend on what
else the machine does; the best of several rounds counts.
"""

from __future__ import annotations

import argparse
import time
from typing import Callable, Dict

import numpy as np
import torch

from icefall_ctx.errors import InputError
from icefall_ctx.features.extractor import (
    BACKENDS,
    FbankPitch,
    FbankPitchConfig,
    kaldi_pitch,
    resolve_backend,
)


def synthetic_speech(seconds: float, sampling_rate: int) -> np.ndarray:
    """A gliding voice in noise, ``(num_samples,)`` float32."""
    rng = np.random.default_rng(0)
    t = np.arange(int(seconds * sampling_rate)) / sampling_rate
    voice = sum(np.sin(2 * np.pi * k * (120 * t + 3 * np.sin(t))) / k for k in range(1, 9))
    return (0.1 * voice + 0.01 * rng.standard_normal(len(t))).astype(np.float32)


def installed_backends() -> Dict[str, FbankPitchConfig]:
    configs = {}
    for name in BACKENDS:
        try:
            configs[name] = FbankPitchConfig(backend=resolve_backend(name))
        except InputError as error:
            print(f"{name}: left out, {error}")
    return configs


def seconds_of(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(utterance: float, sampling_rate: int, rounds: int) -> Dict[str, float]:
    """Best time, in seconds, of every backend (filterbank only) and of the pitch tracker."""
    samples = synthetic_speech(utterance, sampling_rate)
    tasks: Dict[str, Callable[[], object]] = {}
    for name, config in installed_backends().items():
        config.sampling_rate, config.pitch = sampling_rate, False
        extractor = FbankPitch(config)
        tasks[name] = lambda extractor=extractor: extractor.extract(samples, sampling_rate)
    tasks["pitch"] = lambda: kaldi_pitch(samples, sampling_rate)
    best = {name: float("inf") for name in tasks}
    for round_number in range(rounds + 1):  # the first is to warm up
        for name, task in tasks.items():
            taken = seconds_of(task)
            best[name] = min(best[name], taken) if round_number else best[name]
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--utterance", type=float, default=5.0, help="seconds (default: 5)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds (default: 15)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'rate':>6} {'backend':<10} {'audio s/s':>10} {'of lhotse':>10} {'with pitch':>11}")
    for rate in (8000, 16000):
        best = measure(args.utterance, rate, args.rounds)
        for name, taken in best.items():
            both = "" if name == "pitch" else f"{args.utterance / (taken + best['pitch']):.0f}"
            ratio = best["lhotse"] / taken
            print(f"{rate:>6} {name:<10} {args.utterance / taken:>10.0f} {ratio:>9.2f}x {both:>11}")


if __name__ == "__main__":
    main()
