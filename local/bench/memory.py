#!/usr/bin/env python3
"""Cost of the word memory in decoding, with random parameters and random sound.

    python local/bench/memory.py [--size tiny|paper-a] [--kind 2mem|mem] [--half]

Prints, as ratios of one run: decoding with 200 entries against none, with 10,000 against 200,
exactly and with pre-selection; the time to add one word to a session with 10,000; and the memory
an entry takes.  The times of decoding go from features to text; the first encoding of the entries
is timed apart.  The dummy is given a head start, so that entries are chosen for the share of
tokens printed; a trained model chooses one inside list words only.  What
pre-selection does to the text is told by decoding a test set with and without --memory-preselect.

All of it runs in one thread and counts processor time, which is the time that passes on an idle
machine.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Callable, List, Optional, Tuple

import torch

from icefall_ctx.config import ModelConfig
from icefall_ctx.decode.beam import SOS_EOS, BeamOptions, BeamSearch
from icefall_ctx.models.asr import build_model
from icefall_ctx.models.memory_bank import EntryList, MemoryBank

HEAD_START = 3.5
SIZES = {
    "tiny": dict(dim=96, ff_dim=384, decoder_layers=2, memory_decoder_layers=2, vocab_size=200,
                 memory_encoder_layers=2, encoder_layers=4, encoder="conformer"),
    "paper-a": dict(dim=256, ff_dim=2048, decoder_layers=6, memory_decoder_layers=4,
                    vocab_size=2000, memory_encoder_layers=8, encoder_layers=12),
}  # fmt: skip


def random_entries(count: int, vocab: int, seed: int) -> EntryList:
    rng = random.Random(seed)
    entries = EntryList()
    while len(entries) < count:
        entries.add([rng.randrange(3, vocab) for _ in range(rng.randint(2, 6))])
    return entries


class Bench:
    """Search over one batch of sound, with a memory or without."""

    def __init__(self, config: ModelConfig, utterances: int, frames: int, beam: int) -> None:
        torch.manual_seed(0)
        self.model = build_model(config).eval()
        self.features = torch.randn(utterances, 4 * frames + 3, config.feature_dim)
        self.encoder_out, self.lens = self.encode()
        self._head_start()
        # no end before the limit: every search runs to the same length, 0.25 tokens a frame
        for out in (self.model.decoder.out, self.model.decoder.baseline.out):
            out.bias.data[SOS_EOS] = -1e4
        options = BeamOptions(beam=beam, ctc_weight=0.3, max_len_ratio=0.25)
        self.search = BeamSearch(self.model.decoder, options)

    @torch.no_grad()
    def encode(self) -> Tuple[torch.Tensor, torch.Tensor]:
        """Encoder output (N, frames, d) and its lengths."""
        lens = torch.full((self.features.size(0),), self.features.size(1))
        encoded = self.model.encoder(self.features, lens)
        return encoded.out, encoded.lens

    @torch.no_grad()
    def _head_start(self) -> None:
        """Raise the dummy's score by HEAD_START standard deviations of a score."""
        decoder = self.model.decoder
        for block in decoder.blocks:
            attention = block.memory
            key = attention.key_norm(attention.key(decoder.dummy))
            attention.query_norm.bias.copy_(HEAD_START / key.numel() ** 0.5 * key)

    @torch.no_grad()
    def share_of_hits(self, memory: Callable) -> float:
        """How often an entry is chosen while random tokens are scored."""
        decoder = self.model.decoder
        state = decoder.prepare(self.encoder_out, self.lens, None, memory())
        tokens = torch.randint(3, decoder.vocab_size, (self.lens.numel(), 20))
        scores = decoder.mixture(tokens, state).scores
        return float(torch.stack([(s.choice() > 0).float().mean() for s in scores]).mean())

    @torch.no_grad()
    def decode(self, memory: Optional[Callable]) -> List[List[int]]:
        read = None if memory is None else memory()
        out, lens = self.encode()
        state = self.model.decoder.prepare(out, lens, None, read)
        found = self.search.search(state, self.model.ctc_log_probs(out), lens)
        return [nbest[0].tokens for nbest in found]

    def steps(self, memory: Optional[Callable], count: int = 15) -> float:
        """Seconds of ``count`` steps of all hypotheses: the part of the search that differs."""
        with torch.no_grad():
            read = None if memory is None else memory()
            start = time.process_time()
            state = self.model.decoder.prepare(self.encoder_out, self.lens, None, read)
            tokens = torch.full((self.lens.numel(),), SOS_EOS)
            rows = torch.arange(self.lens.numel()).repeat_interleave(self.search.options.beam)
            for step in range(count):
                log_probs, state = self.model.decoder.step(tokens, state)
                if step == 0:
                    state, log_probs = state.select(rows), log_probs[rows]
                tokens = log_probs.argmax(dim=-1)
            return time.process_time() - start


def fastest(run: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of some runs, which other programs disturbed least."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def adding_a_word(bank: MemoryBank, entries: EntryList, vocab: int) -> float:
    """Milliseconds until the memory with one more word is ready, the median of ten."""
    times = []
    for number in range(10):
        start = time.process_time()
        entries.add([3 + number, vocab - 1, 4, 3 + number])
        bank.memory([(entries,)])
        times.append(1000 * (time.process_time() - start))
    return sorted(times)[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=list(SIZES), default="tiny")
    parser.add_argument("--kind", choices=["2mem", "mem"], default="2mem")
    parser.add_argument("--half", action="store_true", help="encoded memory in float16")
    parser.add_argument("--utterances", type=int, default=8)
    parser.add_argument("--frames", type=int, default=100, help="encoder frames, 40 ms each")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--preselect", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = ModelConfig(memory=args.kind, subsampling_channels=32, **SIZES[args.size])
    bench = Bench(config, args.utterances, args.frames, args.beam)
    decoder = bench.model.decoder

    few = random_entries(200, config.vocab_size, 1)
    many = random_entries(10_000, config.vocab_size, 2)

    def source(entries: EntryList, preselect: int = 0) -> Tuple[MemoryBank, Callable]:
        bank = MemoryBank(decoder, args.half, preselect)
        bank.memory([(entries,)])
        return bank, lambda: bank.memory([(entries,)] * args.utterances)

    runs = {"none": None, "200": source(few)[1]}
    start = time.process_time()
    bank, runs["10,000"] = source(many)
    encoding = time.process_time() - start
    runs["10,000 pre-selected"] = source(many, args.preselect)[1]
    seconds = {n: fastest(lambda: bench.decode(m), args.repeats) for n, m in runs.items()}
    steps = {n: min(bench.steps(m) for _ in range(args.repeats)) for n, m in runs.items()}
    hits = {n: bench.share_of_hits(m) for n, m in runs.items() if m is not None}

    print(f"{args.kind}, {args.size}, beam {args.beam}, {args.utterances} utterances of "
          f"{args.frames} encoder frames{', float16' if args.half else ''}")  # fmt: skip
    for name in runs:
        chosen = f", an entry chosen for {100 * hits[name]:.0f} %" if name in hits else ""
        print(f"  {name:>20} entries: decoding {seconds[name]:.3f} s, "
              f"decoder alone {steps[name]:.3f} s{chosen}")  # fmt: skip
    for name, base in (("200", "none"), ("10,000", "200"), ("10,000 pre-selected", "200")):
        print(f"  {name} / {base}: decoding {seconds[name] / seconds[base]:.2f}, "
              f"decoder alone {steps[name] / steps[base]:.2f}")  # fmt: skip
    print(f"  first use of 10,000 entries: {encoding:.1f} s")
    print(f"  adding a word to 10,000: {adding_a_word(bank, many, config.vocab_size):.2f} ms")
    print(f"  memory an entry: {bank.bytes_per_entry / 1024:.2f} KiB")


if __name__ == "__main__":
    main()
