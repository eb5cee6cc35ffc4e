"""mini_dialog: two-party dialogues of a small grammar, rendered with espeak-ng into stereo calls.

Two-channel 16 kHz calls with gaps, overlap and noise; the caller is clear, the answers are
faster and noisier and repeat what the caller said.  Voices and invented names are disjoint
between the parts.  Text is in upper case without punctuation.

The part ``newwords`` has single sentences, each with one invented name that no other sentence
of the corpus has, said by voices that no other part has.  ``newwords_dev`` has other ones in the
voices of dev, to choose what is chosen for a word memory.  The part ``names``, where it is asked
for, has such sentences with one or two names in the voices of training, to train a word memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from icefall_ctx.corpora.calls import (
    CallTurn,
    Side,
    Timing,
    call_manifests,
    compose,
    resample,
    write_audio,
)
from icefall_ctx.corpora.dialogue_grammar import (
    DialogueTurn,
    draw_dialogue,
    draw_name_turn,
    draw_new_word_turn,
    vocabulary,
)
from icefall_ctx.corpora.espeak import Espeak, Voice
from icefall_ctx.corpora.invented_names import NameSource
from icefall_ctx.corpora.manifests import (
    CallManifests,
    Manifests,
    collect,
    parallel_map,
    write_manifests,
)
from icefall_ctx.files import write_text

RATE = 16000
SIDES = ("caller", "reply")
SECONDS_PER_LETTER = 0.055  # of speech; how many calls an hour needs
ACCENTS = ("en-us", "en", "en-gb-scotland", "en-gb-x-rp", "en-us-nyc", "en-029", "en-gb-x-gbclan",
           "en-gb-x-gbcwmd")  # fmt: skip
# Variants of espeak-ng that are intelligible and whose samples are the same in every process.
VARIANTS = {
    "newwords": "Alex belinda f1 m4 boris linda paul shelby".split(),
    "test": "Annie david m3 steph iven3 grandma Mike john".split(),
    "dev": "Andy f4 m5 steph2 ed michel".split(),
    "train": (
        "Andrea AnxiousAndy Denis Diogo Gene Gene2 Henrique Hugo Jacky Lee Mario Michael Nguyen "
        "RicishayMax adam anika announcer antonio aunty benjamin edward edward2 grandpa gustave "
        "ian iven iven2 iven4 kaukovalta klatt klatt2 klatt3 klatt4 m1 m2 m6 m7 m8 marcelo max "
        "miguel mike2 norbert pablo pedro quincy rob robert steph3 travis zac"
    ).split(),
}
PART_SEEDS = {"newwords": 3, "test": 2, "dev": 1, "train": 0, "names": 4, "newwords_dev": 5}
SAME_VOICES = {"names": "train", "newwords_dev": "dev"}
TURNS_PER_CALL = 4  # where the turns are single sentences


@dataclass(frozen=True)
class MiniDialogConfig:
    """Hours of speech (about: the length of a text is estimated), SNR ranges in dB.

    name_share of the dialogues have invented names, and spelling_share of those spell one.
    """

    train_hours: float = 1.0
    test_hours: float = 0.15
    new_words: int = 239
    new_words_dev: int = 120
    name_sentences: int = 0
    caller_snr: Tuple[float, float] = (15.0, 25.0)
    reply_snr: Tuple[float, float] = (-2.0, 8.0)
    name_share: float = 0.5
    spelling_share: float = 0.3
    reply_speed: float = 1.15
    seed: int = 0

    def hours(self, part: str) -> float:
        return self.train_hours if part == "train" else self.test_hours


class PlannedCall(NamedTuple):
    call_id: str
    seed: Tuple[int, ...]
    voices: Tuple[Voice, Voice]
    snrs: Tuple[float, float]
    turns: Tuple[DialogueTurn, ...]
    path: Path


def draw_voices(rng: np.random.Generator, part: str, reply_speed: float) -> Tuple[Voice, Voice]:
    """Two different voices of a part; accent, pitch and rate belong to the voice.

    Only the rate varies from call to call, by 8 %.
    """
    variants = VARIANTS[SAME_VOICES.get(part, part)]
    picks = rng.choice(len(variants), 2, replace=False)
    speeds = rng.uniform(0.92, 1.08, 2) * (1.0, reply_speed)
    first, second = (speaker_voice(variants[i], speed) for i, speed in zip(picks, speeds))
    return first, second


def speaker_voice(variant: str, speed: float) -> Voice:
    """The voice of a speaker: the variant's name decides accent, pitch, range and usual rate."""
    rng = np.random.default_rng(list(variant.encode()))
    accent = ACCENTS[int(rng.integers(len(ACCENTS)))]
    pitch, spread = int(rng.integers(35, 70)), int(rng.integers(30, 70))
    rate = round(float(rng.uniform(150, 190)) * speed)
    return Voice(f"{accent}+{variant}", rate, pitch, spread)


def speaker_id(voice: Voice) -> str:
    return "espeak-" + voice.name.partition("+")[2]


def plan_dialogues(
    part: str, names: NameSource, audio_dir: Path, config: MiniDialogConfig
) -> List[PlannedCall]:
    """Calls of ``part`` until their text lasts ``config.hours(part)`` hours."""
    letters_wanted = config.hours(part) * 3600 / SECONDS_PER_LETTER
    calls: List[PlannedCall] = []
    letters = 0
    while letters < letters_wanted:
        seed = (config.seed, PART_SEEDS[part], len(calls))
        rng = np.random.default_rng(seed)
        turns = draw_dialogue(rng, names, config.name_share, config.spelling_share)
        calls.append(_plan_call(rng, part, seed, turns, audio_dir, config))
        letters += sum(len(turn.text) for turn in turns)
    return calls


def plan_new_words(
    part: str, count: int, names: NameSource, audio_dir: Path, config: MiniDialogConfig
) -> Tuple[List[PlannedCall], List[str]]:
    """Short calls of which every turn has a name of its own, and the list of these names."""
    words = names.take(count)
    calls = []
    for begin in range(0, len(words), TURNS_PER_CALL):
        seed = (config.seed, PART_SEEDS[part], len(calls))
        rng = np.random.default_rng(seed)
        turns = [
            draw_new_word_turn(rng, name, channel=position % 2)
            for position, name in enumerate(words[begin : begin + TURNS_PER_CALL])
        ]
        clear = (config.caller_snr, config.caller_snr)
        calls.append(_plan_call(rng, part, seed, turns, audio_dir, config, clear))
    return calls, [name.spelling.upper() for name in words]


def plan_names(names: NameSource, audio_dir: Path, config: MiniDialogConfig) -> List[PlannedCall]:
    """Short calls of ``config.name_sentences`` turns in all, with one or two new names each."""
    calls = []
    for begin in range(0, config.name_sentences, TURNS_PER_CALL):
        seed = (config.seed, PART_SEEDS["names"], len(calls))
        rng = np.random.default_rng(seed)
        count = min(TURNS_PER_CALL, config.name_sentences - begin)
        turns = [draw_name_turn(rng, names, position % 2) for position in range(count)]
        calls.append(_plan_call(rng, "names", seed, turns, audio_dir, config))
    return calls


def _plan_call(
    rng: np.random.Generator,
    part: str,
    seed: Tuple[int, ...],
    turns: Sequence[DialogueTurn],
    audio_dir: Path,
    config: MiniDialogConfig,
    snr_ranges: Optional[Tuple[Tuple[float, float], Tuple[float, float]]] = None,
) -> PlannedCall:
    ranges = snr_ranges or (config.caller_snr, config.reply_snr)
    first, second = (float(rng.uniform(*limits)) for limits in ranges)
    voices = draw_voices(rng, part, config.reply_speed if snr_ranges is None else 1.0)
    call_id = f"mini-{part}-{seed[2]:05d}"
    path = audio_dir / part / f"{call_id}.flac"
    return PlannedCall(call_id, seed, voices, (first, second), tuple(turns), path)


def render_call(plan: PlannedCall) -> CallManifests:
    """Synthesise, compose and write one call; returns its recording and supervisions."""
    with Espeak() as espeak:
        spoken = [espeak(turn.spoken, plan.voices[turn.channel]) for turn in plan.turns]
        source_rate = espeak.sampling_rate
    turns = [
        CallTurn(turn.channel, turn.text.upper(), resample(samples, source_rate, RATE))
        for turn, samples in zip(plan.turns, spoken)
    ]
    rng = np.random.default_rng(plan.seed + (1,))
    sides = [
        Side(name, speaker_id(voice), snr, float(rng.uniform(-4, 4)))
        for name, voice, snr in zip(SIDES, plan.voices, plan.snrs)
    ]
    call = compose(rng, turns, sides, RATE, [turn.samples for turn in turns], Timing())
    write_audio(plan.path, call.audio, RATE)
    return call_manifests(plan.call_id, plan.path, call, turns, sides, RATE)


def prepare_mini_dialog(
    output_dir: Optional[Path] = None,
    *,
    audio_dir: Path,
    config: MiniDialogConfig = MiniDialogConfig(),
    jobs: int = 1,
) -> Dict[str, Manifests]:
    """Render the calls of the parts train, dev, test, newwords and newwords_dev.

    Args:
      output_dir: where the manifests, ``newwords_words.txt`` and ``newwords_dev_words.txt`` go;
        None writes none.
      audio_dir: where the calls go, ``<audio_dir>/<part>/<call>.flac``.
    Returns:
      part -> {"recordings": ..., "supervisions": ...}; ``names`` with ``name_sentences`` only.
    Raises:
      InputError: espeak-ng is not installed.
    """
    folder = Path(audio_dir).resolve()
    names = NameSource(config.seed, vocabulary())
    # Small parts first: they stay the same whatever the size of the training part.
    plans: Dict[str, List[PlannedCall]] = {}
    words: Dict[str, List[str]] = {}
    plans["newwords"], words["newwords"] = plan_new_words(
        "newwords", config.new_words, names, folder, config
    )
    for part in ("test", "dev", "train"):
        plans[part] = plan_dialogues(part, names, folder, config)
    if config.name_sentences:
        plans["names"] = plan_names(names, folder, config)
    # Last, so that the other parts have the names that they had before there was this one.
    plans["newwords_dev"], words["newwords_dev"] = plan_new_words(
        "newwords_dev", config.new_words_dev, names, folder, config
    )
    everything = [plan for part in plans.values() for plan in part]
    rendered = iter(parallel_map(render_call, everything, jobs, "mini_dialog calls"))
    parts = {part: collect([next(rendered) for _ in plans[part]]) for part in plans}
    order = ("train", "dev", "test", "newwords", "newwords_dev", "names")
    parts = {part: parts[part] for part in order if part in parts}
    if output_dir is not None:
        write_manifests(parts, Path(output_dir), "mini_dialog")
        for part, listed in words.items():
            write_text(Path(output_dir) / f"{part}_words.txt", "\n".join(listed) + "\n")
    return parts
