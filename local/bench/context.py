#!/usr/bin/env python3
"""What context costs: training steps, memory and decoding, beside the model without context.

    local/bench/context.py [--preset tiny|paper] [--encoder transformer|conformer] [--repeats 5]

The turns of the batch follow each other, so the past of most is in it too and is encoded once for
all; with ``--strangers`` no two share a turn, as is likely in a large shuffled corpus.  "previous
audio in front" is the naive alternative: the turn before, concatenated to the features.  Memory is
what autograd keeps for the backward pass.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

import torch
from presets import VOCAB, preset
from timing import in_turns, print_ratios, random_batch
from training import training_step

from icefall_ctx.data.batch import AudioHistory, Batch, TokenHistory
from icefall_ctx.decode.beam import BeamOptions
from icefall_ctx.decode.recogniser import Recogniser, RecogniserOptions
from icefall_ctx.decode.session import ConversationSession
from icefall_ctx.models.asr import build_model

LIMITS = {
    "CtxResMHA, depth 1": 1.45,
    "CtxResMHA, depth 2": 1.8,
    "conditional, n = 2": 1.10,
}
MEMORY_LIMITS = dict.fromkeys(LIMITS, 1.25)


def with_audio(batch: Batch, depth: int, strangers: bool) -> Batch:
    """Each utterance with the turns before it; strangers share none with each other."""
    n = len(batch)
    if strangers:
        features = [f for f in batch.features for _ in range(depth)]
        chains = [list(range(i * depth, (i + 1) * depth)) for i in range(n)]
    else:
        features = list(batch.features)
        chains = [[i - d if i >= d else -1 for d in range(depth, 0, -1)] for i in range(n)]
    return replace(batch, audio_history=AudioHistory.from_chains(features, chains))


def with_text(batch: Batch) -> Batch:
    sentences = [[ids.tolist()] * 2 for ids in batch.tokens]
    return replace(batch, history=TokenHistory.from_lists(sentences))


def in_front(batch: Batch) -> Batch:
    """The features of the turn before and this turn's as one utterance."""
    features = torch.cat([batch.features.roll(1, 0), batch.features], dim=1)
    return replace(batch, features=features, feature_lens=2 * batch.feature_lens)


def kept_bytes(model, batch) -> float:
    """MiB that autograd keeps of one forward pass, parameters left out."""
    parameters = {p.storage().data_ptr() for p in model.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model.train()(batch)
    del output
    return sum(kept.values()) / 2**20


def training_cases(options):
    """name -> (model, batch)."""
    utterances = max(1, int(options.batch_seconds / options.seconds))
    batch = random_batch(utterances, options.seconds, 10, VOCAB[options.preset])

    def model(**context):
        torch.manual_seed(0)
        return build_model(preset(options.preset, encoder=options.encoder, **context))

    def audio(depth):
        context = model(attention="context", ctx_depth=depth)
        return context, with_audio(batch, depth, options.strangers)

    return {
        "baseline": (model(), batch),
        "ResMHA": (model(attention="residual"), batch),
        "CtxResMHA, depth 1": audio(1),
        "CtxResMHA, depth 2": audio(2),
        "conditional, n = 2": (model(text_context="conditional"), with_text(batch)),
        "history attention, n = 2": (model(text_context="attention"), with_text(batch)),
        "previous audio in front": (model(), in_front(batch)),
    }


def decoding_tasks(options, turns: int = 2):
    """Eight conversations of a few turns each, decoded from the start."""
    batch = random_batch(8, options.seconds, 10, VOCAB[options.preset])
    contexts = {
        "decoding without context": dict(),
        "decoding with CtxResMHA": dict(attention="context"),
        "decoding with conditional, n = 2": dict(text_context="conditional"),
        "decoding with history attention": dict(text_context="attention"),
    }

    def task(context):
        torch.manual_seed(0)
        model = build_model(preset(options.preset, encoder=options.encoder, **context)).eval()
        search = RecogniserOptions("beam", BeamOptions(5, max_len_ratio=0.3))
        recogniser = Recogniser(model, search)

        def run():
            sessions = [ConversationSession(name) for name in batch.conv_ids]
            for _ in range(turns):
                recogniser.recognise(batch, sessions)

        return run

    return {name: task(context) for name, context in contexts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=("tiny", "paper"), default="tiny")
    parser.add_argument("--encoder", choices=("transformer", "conformer"), default="transformer")
    parser.add_argument("--seconds", type=float, default=2.5, help="of each utterance")
    parser.add_argument("--batch-seconds", type=float, default=60.0)
    parser.add_argument("--strangers", action="store_true", help="no turn is shared as history")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cases = training_cases(options)
    print("training step")
    steps = {name: training_step(model, batch) for name, (model, batch) in cases.items()}
    good = print_ratios(in_turns(steps, options.repeats), "baseline", LIMITS)
    print("memory kept for the backward pass")
    sizes = {name: kept_bytes(model, batch) for name, (model, batch) in cases.items()}
    for name, size in sizes.items():
        ratio, limit = size / sizes["baseline"], MEMORY_LIMITS.get(name)
        good = good and (limit is None or ratio <= limit)
        verdict = "" if limit is None else f"  (limit {limit:g})"
        print(f"{name:<44} {size:9.1f} MiB  {ratio:5.2f} x{verdict}")
    print("decoding, two turns of eight conversations, beam 5")
    seconds = in_turns(decoding_tasks(options), max(2, options.repeats // 2))
    limits = {name: 1.3 for name in seconds if "with " in name}
    return 0 if print_ratios(seconds, "decoding without context", limits) and good else 1


if __name__ == "__main__":
    sys.exit(main())
