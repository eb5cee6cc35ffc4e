"""Writing the manifests of a corpus, counting what is in them, and the frame of a stage script."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import sys
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet
from tqdm import tqdm

from icefall_ctx.command_line import OneLineParser, number, one_line_errors
from icefall_ctx.data.manifests import write_manifest

Manifests = Dict[str, Union[RecordingSet, SupervisionSet]]
CallManifests = Tuple[Recording, List[SupervisionSegment]]
Task = TypeVar("Task")
Result = TypeVar("Result")


def collect(calls: Sequence[CallManifests]) -> Manifests:
    """One part out of its calls, in the order given."""
    return {
        "recordings": RecordingSet.from_recordings(recording for recording, _ in calls),
        "supervisions": SupervisionSet.from_segments(
            supervision for _, supervisions in calls for supervision in supervisions
        ),
    }


def write_manifests(parts: Dict[str, Manifests], folder: Path, corpus: str) -> None:
    """``<folder>/<corpus>_{recordings,supervisions}_<part>.jsonl.gz``, each written atomically."""
    for part, manifests in parts.items():
        for kind, manifest in manifests.items():
            write_manifest(manifest, folder / f"{corpus}_{kind}_{part}.jsonl.gz")


def parallel_map(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int, title: str
) -> List[Result]:
    """Results in the order of ``tasks`` whatever the number of processes, with a progress bar."""
    return list(tqdm(_results(function, tasks, jobs), desc=title, total=len(tasks), disable=None))


def _results(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int
) -> Iterator[Result]:
    if jobs <= 1:
        yield from map(function, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(function, tasks, chunksize=max(1, min(8, len(tasks) // (4 * jobs))))


def describe(parts: Dict[str, Manifests]) -> str:
    """A table: hours of speech, conversations, turns, speakers, running and distinct words."""
    titles = f"{'convs':>8}{'turns':>8}{'speakers':>10}{'words':>9}{'vocab':>8}"
    lines = [f"{'part':<14}{'hours':>8}{titles}"]
    for part, manifests in parts.items():
        supervisions = list(manifests["supervisions"])
        words = [word for supervision in supervisions for word in supervision.text.split()]
        hours = sum(supervision.duration for supervision in supervisions) / 3600
        conversations = {(s.custom or {}).get("conv_id", s.recording_id) for s in supervisions}
        speakers = {supervision.speaker for supervision in supervisions}
        lines.append(
            f"{part:<14}{hours:>8.2f}{len(conversations):>8}{len(supervisions):>8}"
            f"{len(speakers):>10}{len(words):>9}{len(set(words)):>8}"
        )
    return "\n".join(lines)


def stage_parser(description: str, corpus: str) -> argparse.ArgumentParser:
    """The options that every stage script has."""
    parser = OneLineParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--manifest-dir", type=Path, default=Path("data/manifests"),
                        help="where the manifests go")  # fmt: skip
    parser.add_argument("--audio-dir", type=Path, default=Path(f"data/audio/{corpus}"),
                        help="where the audio goes")  # fmt: skip
    parser.add_argument("--seed", type=number(int, 0), default=0, help="same seed, same bytes")
    parser.add_argument("--jobs", type=number(int, 1), default=2, help="processes")
    return parser


def number_range(text: str) -> Tuple[float, float]:
    """``LOW,HIGH`` on the command line."""
    try:
        low, high = (float(value) for value in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not LOW,HIGH, such as 15,25")
    if not low <= high:
        raise argparse.ArgumentTypeError(f"{text!r}: the lower limit comes first")
    return low, high


def positive(text: str) -> float:
    """A finite number above zero on the command line."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return value


def share(text: str) -> float:
    """A number from 0 to 1 on the command line."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def run_stage(main: Callable[[Optional[Sequence[str]]], None]) -> None:
    """Run a stage script: what a user can put right ends with one line and status 2."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    with one_line_errors(Path(sys.argv[0]).name):
        main(None)
