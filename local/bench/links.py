#!/usr/bin/env python3
"""Time and memory of linking and indexing a large manifest.

    python local/bench/links.py [--turns 1000000]

A manifest of calls (50 turns each, two channels, shuffled) is written by another process; this
one then opens it lazily, links it, and indexes the result.  Reading, linking and indexing count,
and so does the peak memory of the process, libraries included.  Writing the linked manifest is
timed apart.  All of it runs in one thread: the limit is on processor time, which is the time
that passes on an idle machine; what passed is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

TURNS_PER_CALL = 50
MAX_SECONDS = 60.0
MAX_GIGABYTES = 1.5


def write_calls(path: Path, turns: int) -> None:
    """Plain JSON lines as a corpus reader would write them, in no useful order."""
    calls = [f"call{number:06d}" for number in range(max(1, turns // TURNS_PER_CALL))]
    random.Random(0).shuffle(calls)
    with open(path, "w", encoding="utf-8") as file:
        for number in range(turns):
            call, turn = calls[number // TURNS_PER_CALL % len(calls)], number % TURNS_PER_CALL
            side = turn % 2
            segment = {
                "id": f"{call}-{turn:04d}",
                "recording_id": call,
                "start": round(turn * 3.1, 3),
                "duration": 3.4,
                "channel": side,
                "text": f"turn {turn} of {call} says about forty letters",
                "speaker": f"{call}-{'AB'[side]}",
            }
            print(json.dumps(segment), file=file)


@contextmanager
def timed(name: str, seconds: dict):
    start, passed = time.process_time(), time.perf_counter()
    yield
    seconds[name] = time.process_time() - start
    passed = time.perf_counter() - passed
    print(
        f"{name:<24}{seconds[name]:8.1f} s   ({passed:.1f} s passed)   "
        f"peak {peak_gigabytes():.2f} GB",
        flush=True,
    )


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def run(manifest: Path) -> bool:
    """Link and index ``manifest``; True if both limits hold."""
    seconds: dict = {}
    with timed("import", seconds):
        from icefall_ctx.data.conversation import ConversationIndex, link_conversations
        from icefall_ctx.data.manifests import open_manifest, write_manifest
    with timed("read and link", seconds):
        linked = link_conversations(open_manifest(manifest, "supervisions"), in_place=True)
    with timed("index", seconds):
        index = ConversationIndex.from_supervisions(linked)
    total, peak = sum(seconds.values()), peak_gigabytes()
    print(f"{'total':<24}{total:8.1f} s   limit {MAX_SECONDS:.0f} s, {MAX_GIGABYTES} GB")
    with timed("a history for each", seconds):
        for turn in index:
            index.history(turn.utt_id, 2)
    with timed("write (not counted)", seconds):
        write_manifest(linked, manifest.with_name("linked.jsonl.gz"))
    return total <= MAX_SECONDS and peak <= MAX_GIGABYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=1_000_000, help="turns in the manifest")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        write_calls(args.write, args.turns)
        return
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "supervisions.jsonl"
        # in a process of its own, so that its memory is not counted here
        subprocess.run(
            [sys.executable, __file__, "--write", str(manifest), "--turns", str(args.turns)],
            check=True,
        )
        kept = run(manifest)
    print("within the limits" if kept else "LIMITS EXCEEDED")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
