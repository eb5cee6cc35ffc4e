#!/usr/bin/env python3
"""Cost of HLG decoding and of whole-lattice rescoring with synthetic network output.

The words are random spellings over random pieces; "peaked" output follows random sentences
with noise, "flat" output has no best token at all.  Prints real-time factors in
processor time, which other load on the machine does not change, and peak memory.
"""

from __future__ import annotations

import argparse
import logging
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import List, Optional, Sequence

import torch

from icefall_ctx.lattice.check import perfect_log_probs
from icefall_ctx.lattice.compile import compile_graphs
from icefall_ctx.lattice.decode import LatticeDecoder
from icefall_ctx.lattice.fsa_files import load_fsa
from icefall_ctx.lattice.lexicon import build_lexicon
from icefall_ctx.text.ngram import estimate, write_arpa
from icefall_ctx.text.tokenizer import train_bpe


def get_args(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=3000, help="lexicon size (default: 3000)")
    parser.add_argument("--tokens", type=int, default=500, help="BPE pieces (default: 500)")
    parser.add_argument("--utterances", type=int, default=8, help="batch size (default: 8)")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each (default: 6)")
    return parser.parse_args(argv)


def make_text(words: int, rng: random.Random) -> List[List[str]]:
    """Sentences over invented words with frequencies falling like 1/rank."""
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    names = sorted({"".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(words * 2)})
    rng.shuffle(names)
    names = names[:words]
    weights = [1 / (i + 1) for i in range(len(names))]
    text = [rng.choices(names, weights, k=rng.randint(3, 12)) for _ in range(10_000)]
    return text + [[name] for name in names]


def peaked(decoder: LatticeDecoder, text: List[List[str]], frames: int, n: int) -> torch.Tensor:
    """(N, T, V) around perfect output of sentences, as peaked as CTC output (about 0.95)."""
    rows = []
    for sentence in text[:n]:
        ids = [decoder.lexicon.ids[word] for word in sentence * 4]
        perfect = perfect_log_probs(decoder.lexicon.spell(ids), decoder.lexicon.vocab_size)[0]
        rows.append(perfect[torch.arange(frames) % len(perfect)] / 3)
    scores = torch.stack(rows)
    return (scores + torch.randn(scores.shape)).log_softmax(dim=-1)


def measure(name: str, decoder: LatticeDecoder, log_probs, method: str, seconds: float) -> None:
    n, frames, _ = log_probs.shape
    lens = torch.full((n,), frames)
    start = time.process_time()
    results = decoder.decode(log_probs, lens, [f"{name}-{i}" for i in range(n)], method)
    took = time.process_time() - start
    arcs = sum(r.lattice.num_arcs for r in results if r.lattice is not None)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name:7} {method:24} RTF {took / (n * seconds):.4f}  {took:6.2f} s  "
          f"{arcs:8d} arcs  peak {peak:.2f} GB")


def main(argv: Optional[Sequence[str]] = None) -> None:
    args = get_args(argv)
    rng = random.Random(0)
    torch.manual_seed(0)
    logging.getLogger().setLevel(logging.ERROR)
    text = make_text(args.words, rng)
    tokenizer = train_bpe((" ".join(s) for s in text), args.tokens)
    lexicon = build_lexicon({word for sentence in text for word in sentence}, tokenizer)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lexicon.save(folder, tokenizer)
        for order in (3, 4):
            write_arpa(estimate(text, order, lexicon.words[1:-3]), folder / f"{order}.arpa")
        start = time.process_time()
        compile_graphs(folder, lexicon, folder / "3.arpa", folder / "4.arpa")
        print(f"{len(lexicon.words)} words, compiled and checked in "
              f"{time.process_time() - start:.1f} s")
        decoder = LatticeDecoder(
            load_fsa(folder / "HLG.pt"), tokenizer, lexicon, g=load_fsa(folder / "G_4_gram.pt")
        )
    frames = int(args.seconds / decoder.options.subsampling_seconds)
    clear = peaked(decoder, text, frames, args.utterances)
    flat = (torch.randn(args.utterances, frames, tokenizer.vocab_size) * 0.1).log_softmax(-1)
    for method in ("1best", "nbest-rescoring", "whole-lattice-rescoring"):
        measure("peaked", decoder, clear, method, args.seconds)
    measure("flat", decoder, flat, "1best", args.seconds)
    measure("flat", decoder, flat, "whole-lattice-rescoring", args.seconds)


if __name__ == "__main__":
    main()
