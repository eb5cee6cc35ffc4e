"""digits_dialog: two-channel telephone calls out of recorded digits.

The caller reads a number in groups, the other side reads each group back; sometimes it reads
one digit wrongly and the caller repeats the group, and sometimes the caller changes a digit.
The recordings are those of the Free Spoken Digit Dataset, ``{digit}_{speaker}_{index}.wav`` at
8 kHz.  No recording is in two parts: of each speaker and digit, indices 0-9 are test, 10-14
dev, the rest train.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import soundfile as sf

from icefall_ctx.corpora.calls import (
    CallTurn,
    Side,
    call_manifests,
    compose,
    write_audio,
)
from icefall_ctx.corpora.manifests import (
    CallManifests,
    Manifests,
    collect,
    parallel_map,
    write_manifests,
)
from icefall_ctx.errors import InputError, ProblemLog

RATE = 8000
WORDS = ("ZERO", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX", "SEVEN", "EIGHT", "NINE")
SIDES = ("caller", "readback")
FILE_NAME = re.compile(r"(?P<digit>\d)_(?P<speaker>[^_]+)_(?P<index>\d+)\.wav")
PART_SEEDS = {"train": 0, "dev": 1, "test": 2, "test_unseen": 3}


@dataclass(frozen=True)
class DigitsConfig:
    """Sizes are hours of speech (the sum of the turns), SNR ranges are in dB."""

    hours: Dict[str, float] = field(
        default_factory=lambda: {"train": 2.5, "dev": 0.4, "test": 0.4, "test_unseen": 0.4}
    )
    caller_snr: Tuple[float, float] = (15.0, 25.0)
    readback_snr: Tuple[float, float] = (-10.0, -2.0)
    group_sizes: Tuple[int, int] = (3, 4)
    groups_per_call: Tuple[int, int] = (3, 6)
    misread: float = 0.12  # probability that a group is read back with one wrong digit
    change: float = 0.05  # probability that the caller changes a digit afterwards
    seed: int = 0


class DigitRecording(NamedTuple):
    digit: int
    speaker: str
    index: int
    path: Path
    num_samples: int


class PlannedTurn(NamedTuple):
    channel: int
    recordings: Tuple[DigitRecording, ...]
    pauses: Tuple[int, ...]  # samples of silence after each digit but the last

    @property
    def num_samples(self) -> int:
        return sum(recording.num_samples for recording in self.recordings) + sum(self.pauses)

    @property
    def text(self) -> str:
        return " ".join(WORDS[recording.digit] for recording in self.recordings)


class PlannedCall(NamedTuple):
    call_id: str
    seed: Tuple[int, ...]
    speakers: Tuple[str, str]
    snrs: Tuple[float, float]
    turns: Tuple[PlannedTurn, ...]
    babble: Tuple[DigitRecording, ...]  # recordings of the same part
    path: Path


Bank = Dict[Tuple[str, int], List[DigitRecording]]  # (speaker, digit) -> recordings


def part_of(index: int) -> str:
    """The part that recording number ``index`` of a speaker and digit belongs to."""
    if index < 10:
        return "test"
    return "dev" if index < 15 else "train"


def find_recordings(corpus_dir: Path, problems: ProblemLog) -> List[DigitRecording]:
    """All usable recordings, sorted; the others go to ``problems``.

    ``corpus_dir`` is the folder with the files or the one above its ``recordings``.
    """
    folder = corpus_dir / "recordings" if (corpus_dir / "recordings").is_dir() else corpus_dir
    if not folder.is_dir():
        raise InputError(f"{corpus_dir}: no such folder; give the digit recordings by --fsdd-dir")
    found = []
    for path in sorted(folder.glob("*.wav")):
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            problems.add("name", str(path), "expected {digit}_{speaker}_{index}.wav")
            continue
        length = _usable_length(path, problems)
        if length:
            digit, speaker, index = match["digit"], match["speaker"], match["index"]
            found.append(DigitRecording(int(digit), speaker, int(index), path, length))
    if not found:
        raise InputError(f"{folder}: no {{digit}}_{{speaker}}_{{index}}.wav at {RATE} Hz in it")
    return found


def _usable_length(path: Path, problems: ProblemLog) -> int:
    """Samples in the file; 0, and an entry in ``problems``, if it cannot be used."""
    try:
        samples, rate = sf.read(str(path), dtype="float32")
    except sf.LibsndfileError as error:
        problems.add("unreadable", str(path), str(error))
        return 0
    if rate != RATE or samples.ndim != 1:
        problems.add("format", str(path), f"expected one channel at {RATE} Hz, found {rate} Hz")
        return 0
    if len(samples) < RATE // 100 or not np.any(samples):
        problems.add("silent", str(path), f"{len(samples)} samples")
        return 0
    return len(samples)


def split_recordings(
    recordings: Sequence[DigitRecording], test_speakers: Sequence[str] = ()
) -> Dict[str, Bank]:
    """Recordings of each part by speaker and digit; ``test_speakers`` make up ``test_unseen``.

    Only the test indices (0-9) of the unseen speakers are used, as for the others.
    """
    speakers = sorted({recording.speaker for recording in recordings})
    unknown = sorted(set(test_speakers) - set(speakers))
    if unknown:
        raise InputError(f"--test-speakers {','.join(unknown)}: choose from {','.join(speakers)}")
    seen = [speaker for speaker in speakers if speaker not in test_speakers]
    _need_two(seen, "train")
    parts: Dict[str, Bank] = {"train": {}, "dev": {}, "test": {}}
    if test_speakers:
        _need_two(sorted(set(test_speakers)), "test_unseen")
        parts["test_unseen"] = {}
    for recording in recordings:
        part = part_of(recording.index)
        if recording.speaker in test_speakers:
            if part != "test":
                continue
            part = "test_unseen"
        parts[part].setdefault((recording.speaker, recording.digit), []).append(recording)
    for part, bank in parts.items():
        _check_complete(part, bank, seen if part != "test_unseen" else sorted(set(test_speakers)))
    return parts


def _need_two(speakers: Sequence[str], part: str) -> None:
    if len(speakers) < 2:
        raise InputError(
            f"{part}: a call needs two different speakers, found {','.join(speakers) or 'none'}"
        )


def _check_complete(part: str, bank: Bank, speakers: Sequence[str]) -> None:
    missing = [f"{d}_{s}" for s in speakers for d in range(10) if (s, d) not in bank]
    if missing:
        raise InputError(
            f"{part}: no usable recording of {', '.join(missing[:5])}; of each speaker and digit "
            "indices 0-9 are test, 10-14 dev, the rest train"
        )


def draw_exchanges(rng: np.random.Generator, config: DigitsConfig) -> List[Tuple[int, List[int]]]:
    """The turns of one call as (channel, digits): group, read-back, corrections."""
    turns = []
    low, high = config.groups_per_call
    for _ in range(int(rng.integers(low, high + 1))):
        size = int(rng.integers(config.group_sizes[0], config.group_sizes[1] + 1))
        group = rng.integers(0, 10, size).tolist()
        turns.append((0, group))
        if rng.random() < config.misread:
            turns += [(1, _one_changed(rng, group)), (0, group)]
        turns.append((1, group))
        if rng.random() < config.change:
            group = _one_changed(rng, group)
            turns += [(0, group), (1, group)]
    return turns


def _one_changed(rng: np.random.Generator, group: Sequence[int]) -> List[int]:
    changed = list(group)
    position = int(rng.integers(len(changed)))
    changed[position] = (changed[position] + int(rng.integers(1, 10))) % 10
    return changed


def plan_part(part: str, bank: Bank, audio_dir: Path, config: DigitsConfig) -> List[PlannedCall]:
    """Calls until their turns last ``config.hours[part]`` hours."""
    speakers = sorted({speaker for speaker, _ in bank})
    everything = [recording for key in sorted(bank) for recording in bank[key]]
    wanted = config.hours[part] * 3600 * RATE
    calls: List[PlannedCall] = []
    total = 0
    while total < wanted:
        seed = (config.seed, PART_SEEDS[part], len(calls))
        rng = np.random.default_rng(seed)
        pair = tuple(speakers[i] for i in rng.choice(len(speakers), 2, replace=False))
        turns = tuple(
            _plan_turn(rng, channel, digits, bank, pair[channel])
            for channel, digits in draw_exchanges(rng, config)
        )
        snrs = (float(rng.uniform(*config.caller_snr)), float(rng.uniform(*config.readback_snr)))
        picks = rng.integers(0, len(everything), 40)
        call_id = f"digits-{part}-{len(calls):05d}"
        path = audio_dir / part / f"{call_id}.flac"
        babble = tuple(everything[i] for i in picks)
        calls.append(PlannedCall(call_id, seed, pair, snrs, turns, babble, path))
        total += sum(turn.num_samples for turn in turns)
    return calls


def _plan_turn(
    rng: np.random.Generator, channel: int, digits: Sequence[int], bank: Bank, speaker: str
) -> PlannedTurn:
    choices = [bank[speaker, digit] for digit in digits]
    recordings = tuple(choice[int(rng.integers(len(choice)))] for choice in choices)
    pauses = rng.integers(RATE // 50, RATE // 8, len(digits) - 1)
    return PlannedTurn(channel, recordings, tuple(int(pause) for pause in pauses))


@functools.lru_cache(maxsize=8192)  # all of the corpus: ten minutes of speech
def _load(path: Path) -> np.ndarray:
    return sf.read(str(path), dtype="float32")[0]


def turn_samples(turn: PlannedTurn) -> np.ndarray:
    """The digits of a turn one after the other, (T,) float32 with T = ``turn.num_samples``.

    Each digit is brought to the same level first: recordings of one person differ by 20 dB.
    """
    out = np.zeros(turn.num_samples, dtype=np.float32)
    position = 0
    for recording, pause in zip(turn.recordings, turn.pauses + (0,)):
        samples = _load(recording.path)
        end = position + len(samples)
        out[position:end] = samples / np.sqrt(np.mean(samples**2))
        position = end + pause
    return out


def render_call(plan: PlannedCall) -> CallManifests:
    """Compose and write one call; returns its recording and supervisions."""
    rng = np.random.default_rng(plan.seed + (1,))
    turns = [CallTurn(turn.channel, turn.text, turn_samples(turn)) for turn in plan.turns]
    sides = [
        Side(name, speaker, snr, float(rng.uniform(-4, 4)))
        for name, speaker, snr in zip(SIDES, plan.speakers, plan.snrs)
    ]
    bank = [_load(recording.path) for recording in plan.babble]
    call = compose(rng, turns, sides, RATE, bank)
    write_audio(plan.path, call.audio, RATE)
    return call_manifests(plan.call_id, plan.path, call, turns, sides, RATE)


def prepare_digits_dialog(
    corpus_dir: Path,
    output_dir: Optional[Path] = None,
    *,
    audio_dir: Path,
    test_speakers: Sequence[str] = (),
    config: DigitsConfig = DigitsConfig(),
    jobs: int = 1,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Compose the calls of all parts.

    Args:
      corpus_dir: folder of the digit recordings.
      output_dir: where the manifests go; None writes none.
      audio_dir: where the calls go, ``<audio_dir>/<part>/<call>.flac``.
      test_speakers: two or more speakers kept for the part ``test_unseen``.
      problems: gets the recordings that cannot be used.
    Returns:
      part -> {"recordings": ..., "supervisions": ...}.
    Raises:
      InputError: no folder, too few speakers, a speaker without one of the digits.
    """
    problems = ProblemLog() if problems is None else problems
    banks = split_recordings(find_recordings(Path(corpus_dir), problems), test_speakers)
    folder = Path(audio_dir).resolve()
    plans = {part: plan_part(part, bank, folder, config) for part, bank in banks.items()}
    everything = [plan for part in plans.values() for plan in part]
    rendered = iter(parallel_map(render_call, everything, jobs, "digits_dialog calls"))
    parts = {part: collect([next(rendered) for _ in plans[part]]) for part in plans}
    if output_dir is not None:
        write_manifests(parts, Path(output_dir), "digits_dialog")
    return parts
