"""Timing that a busy machine does not spoil: processor time, in turns, and medians."""

from __future__ import annotations

import statistics
import time
from typing import Callable, Dict, List

import torch

from icefall_ctx.data.batch import Batch

FEATURES = 83


def in_turns(tasks: Dict[str, Callable[[], object]], repeats: int) -> Dict[str, float]:
    """Median seconds of processor time of each task, after one run of each that does not count."""
    for task in tasks.values():
        task()
    seconds: Dict[str, List[float]] = {name: [] for name in tasks}
    for _ in range(repeats):
        for name, task in tasks.items():
            start = time.process_time()
            task()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def print_ratios(seconds: Dict[str, float], base: str, limits: Dict[str, float]) -> bool:
    """A line a task with its ratio to ``base``.  Returns whether all are within their limits."""
    good = True
    for name, value in seconds.items():
        ratio, limit = value / seconds[base], limits.get(name)
        met = limit is None or ratio <= limit
        verdict = "" if limit is None else f"  (limit {limit:.3g}: {'met' if met else 'NOT MET'})"
        good = good and met
        print(f"{name:<44} {1000 * value:9.1f} ms   {ratio:5.2f} x{verdict}", flush=True)
    return good


def random_batch(utterances: int, seconds: float, tokens: int, vocab: int, seed: int = 0) -> Batch:
    """Utterances of the same length, 100 frames a second."""
    generator = torch.Generator().manual_seed(seed)
    frames = int(100 * seconds)
    names = [f"utt{i}" for i in range(utterances)]
    return Batch(
        utt_ids=names,
        cut_ids=names,
        conv_ids=names,
        turns=[0] * utterances,
        speakers=["A"] * utterances,
        sides=[""] * utterances,
        texts=[""] * utterances,
        features=torch.randn(utterances, frames, FEATURES, generator=generator),
        feature_lens=torch.full((utterances,), frames),
        tokens=torch.randint(3, vocab, (utterances, tokens), generator=generator),
        token_lens=torch.full((utterances,), tokens),
        durations=[seconds] * utterances,
    )
