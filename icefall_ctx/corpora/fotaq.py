"""fotaq: acted dialogue out of the game Flight of the Amazon Queen, 8 kHz.

Conversations: a cutscene is one; a dialogue tree becomes several sampled paths, each a row of
person's line -> Joe's choice -> reply; a solo remark stands for itself.  Every clip is in
exactly one conversation, so the first path of a tree has the opening and the later ones begin
where it still had other choices.  The parts are split by scene (cutscene, whole tree, remark).

Text is in upper case without punctuation, numbers in words; the written line stays in the
custom field ``original``.  A clip is a recording of its own, so ``conv_start`` is its place on
the clock of the conversation, with a fixed pause after every clip.
"""

from __future__ import annotations

import functools
import io
import re
from collections import defaultdict
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import soundfile as sf
import torch
from lhotse import AudioSource, Recording, SupervisionSegment

from icefall_ctx.corpora.calls import resample, write_audio
from icefall_ctx.corpora.fotaq_words import new_word_parts, pick_new_words
from icefall_ctx.corpora.manifests import Manifests, collect, parallel_map, write_manifests
from icefall_ctx.corpora.queen import QueenFile
from icefall_ctx.corpora.queen_text import GameText, Line, Tree, Turn, read_game_text
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.files import write_text

RATE = 8000
PAUSE = 0.3  # seconds between the clips of a conversation
NUMBERS = {
    "1844": "eighteen forty four", "50": "fifty", "1940's": "nineteen forties",
    "1948": "nineteen forty eight", "24": "twenty four", "100": "a hundred",
    "13th": "thirteenth", "1922": "nineteen twenty two", "x7": "x seven", "26": "twenty six",
    "2b": "two b", "19:00": "nineteen hundred",
}  # fmt: skip


class Scene(NamedTuple):
    """A conversation.  ``group`` is what may not be cut when the parts are split."""

    conv_id: str
    group: str
    kind: str
    lines: Tuple[Line, ...]


class ClipTask(NamedTuple):
    queen: Path
    name: str
    target: Path


def plain_text(text: str) -> str:
    """Upper case, words and apostrophes only; ``<gulp>`` and ``(sigh)`` are no words."""
    text = re.sub(r"<[^>]*>|\([^)]*\)", " ", text).lower()
    text = re.sub(r"[\w:']*\d[\w:']*", lambda found: _number(found[0]), text)
    words = re.sub(r"[^a-z' ]", " ", text.replace("&", " and ")).split()
    return " ".join(word.strip("'") for word in words if word.strip("'")).upper()


def _number(text: str) -> str:
    word = text.strip(":'")
    return NUMBERS.get(word, word)


def sample_paths(tree: Tree, rng: np.random.Generator) -> List[List[Turn]]:
    """Walks through the tree that together say every line once.

    A walk begins at the first level that still has an unused choice, says the person's line
    there unless it was said, and then takes unused choices until a reply leads to no level
    that has one.  Lines that no choice leads to, such as the greeting of the second visit,
    come last, as one conversation.
    """
    rows = {row.head: row for row in tree.rows}
    left = {row.head: [o for o in row.options if o in tree.joe] for row in tree.rows}
    said: Dict[Turn, None] = {}
    paths: List[List[Turn]] = []
    opening = list(tree.opening)
    while any(left.values()):
        head: Optional[int] = next(key for key, options in left.items() if options)
        path, opening = opening, []
        while head in rows:
            path.append(tree.person.get(head))
            if not left[head]:
                break
            option = left[head].pop(int(rng.integers(len(left[head]))))
            path += [tree.joe[option], tree.person.get(option)]
            head = option
        fresh = [turn for turn in dict.fromkeys(path) if turn is not None and turn not in said]
        said.update(dict.fromkeys(fresh))
        paths.append(fresh)
    return paths + [[turn for turn in tree.level_order() if turn not in said]]


def scenes_of(text: GameText, seed: int) -> List[Scene]:
    """All conversations, each line in one of them."""
    scenes = [
        Scene(name, name, "cutscene", _lines(turns)) for name, turns in text.cutscenes.items()
    ]
    for number, (name, tree) in enumerate(sorted(text.trees.items())):
        rng = np.random.default_rng((seed, number))
        scenes += [
            Scene(f"{name}-{index:02d}", name, "dialogue_tree", _lines(path))
            for index, path in enumerate(sample_paths(tree, rng))
        ]
    for name, turns in text.remarks.items():
        scenes += [
            Scene(f"{name}-{turn.key}", f"{name}-{turn.key}", "monologue", turn.lines)
            for turn in turns
        ]
    return scenes


def reference_order(text: GameText) -> List[Tuple[str, str, Line]]:
    """(conversation, kind, line) with whole trees, level by level, as conversations."""
    listed = [(name, "cutscene", turns) for name, turns in text.cutscenes.items()]
    listed += [(name, "dialogue_tree", tree.level_order()) for name, tree in text.trees.items()]
    listed += [(name, "monologue", turns) for name, turns in text.remarks.items()]
    return [(name, kind, line) for name, kind, turns in listed for line in _lines(turns)]


def _lines(turns: Iterable[Turn]) -> Tuple[Line, ...]:
    return tuple(line for turn in turns for line in turn.lines)


def usable_scenes(
    scenes: Sequence[Scene], has_clip: Callable[[str], bool], problems: ProblemLog
) -> List[Scene]:
    """Without lines that have no clip (as most written but unspoken ones) or no words."""
    kept = []
    for scene in scenes:
        spoken = [line for line in scene.lines if has_clip(line.clip + ".SB")]
        for line in spoken:
            if not plain_text(line.text):
                problems.add("no words", line.clip, line.text)
        lines = tuple(line for line in spoken if plain_text(line.text))
        if lines:
            kept.append(scene._replace(lines=lines))
    return kept


def split_scenes(scenes: Sequence[Scene], seed: int) -> Dict[str, List[Scene]]:
    """About 80, 10 and 10 % of the clips as train, dev and test; no group is cut."""
    groups: Dict[str, List[Scene]] = defaultdict(list)
    for scene in scenes:
        groups[scene.group].append(scene)
    names = sorted(groups)
    wanted = 0.1 * sum(len(scene.lines) for scene in scenes)
    parts: Dict[str, List[Scene]] = {"train": [], "dev": [], "test": []}
    filled = {"dev": 0, "test": 0}
    for position in np.random.default_rng((seed, 1)).permutation(len(names)):
        group = groups[names[position]]
        size = sum(len(scene.lines) for scene in group)
        part = next((p for p in ("test", "dev") if filled[p] + size <= wanted * 1.05), "train")
        if part != "train":
            filled[part] += size
        parts[part] += group
    return parts


@functools.lru_cache(maxsize=2)  # its table of 7,671 entries takes longer than a clip
def _open(path: Path) -> QueenFile:
    return QueenFile(path)


def decode_clip(task: ClipTask) -> int:
    """Write a clip as 8 kHz FLAC unless it is there; returns its samples, 0 if it is damaged."""
    if task.target.is_file():
        return sf.info(str(task.target)).frames
    torch.set_num_threads(1)  # the processes share the cores
    try:
        data = io.BytesIO(_open(task.queen)[task.name])
        samples, rate = sf.read(data, dtype="float32")
    except sf.LibsndfileError:
        return 0
    if samples.ndim != 1 or len(samples) < rate // 20:
        return 0
    samples = resample(samples, rate, RATE)
    audio = np.round(np.clip(samples, -1, 1) * 32767).astype(np.int16)
    write_audio(task.target, audio[np.newaxis], RATE)
    return len(audio)


def scene_manifests(
    scene: Scene, paths: Dict[str, Path], lengths: Dict[str, int]
) -> List[Tuple[Recording, List[SupervisionSegment]]]:
    """A recording and a supervision for each clip of the scene, on one common clock."""
    clock, manifests = 0.0, []
    for line in scene.lines:
        utterance, samples = f"fotaq-{line.clip}", lengths[line.clip]
        source = AudioSource(type="file", channels=[0], source=str(paths[line.clip]))
        supervision = SupervisionSegment(
            id=utterance,
            recording_id=utterance,
            start=0.0,
            duration=samples / RATE,
            channel=0,
            text=plain_text(line.text),
            language="English",
            speaker=line.speaker,
            custom={
                "conv_id": scene.conv_id,
                "conv_start": round(clock, 3),
                "kind": scene.kind,
                "original": line.text,
            },
        )
        recording = Recording(utterance, [source], RATE, samples, samples / RATE)
        manifests.append((recording, [supervision]))
        clock += samples / RATE + PAUSE
    return manifests


def prepare_fotaq(
    queen_path: Path,
    output_dir: Optional[Path] = None,
    *,
    audio_dir: Path,
    seed: int = 0,
    new_words: int = 100,
    jobs: int = 1,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Decode the clips and split the conversations.

    Args:
      queen_path: the file ``queen.1c``.
      output_dir: where the manifests and ``newwords_words.txt`` go; None writes none.
      audio_dir: where the clips go; those already there are kept.
      new_words: names for the one-shot test: the part ``newwords`` has the sentences with
        them, ``train_nonew`` is ``train`` without those.
      problems: gets the clips that are left out.
    Returns:
      train, dev, test, train_nonew, newwords -> {"recordings": ..., "supervisions": ...}.
    """
    problems = ProblemLog() if problems is None else problems
    queen, folder = QueenFile(queen_path), Path(audio_dir).resolve()
    scenes = usable_scenes(
        scenes_of(read_game_text(queen), seed), lambda name: name in queen, problems
    )
    clips = [line.clip for scene in scenes for line in scene.lines]
    if not clips:
        raise InputError(f"{queen_path}: no clip in it has a text")
    paths = {clip: folder / f"{clip}.flac" for clip in clips}
    tasks = [ClipTask(queen.path.resolve(), clip + ".SB", paths[clip]) for clip in clips]
    lengths = dict(zip(clips, parallel_map(decode_clip, tasks, jobs, "fotaq clips")))
    for clip in clips:
        if lengths[clip] == 0:
            problems.add("damaged", f"{queen_path}:{clip}.SB", "cannot be decoded")
    scenes = [
        scene._replace(lines=tuple(line for line in scene.lines if lengths[line.clip]))
        for scene in scenes
    ]
    parts = {}
    for part, chosen in split_scenes(scenes, seed).items():
        parts[part] = collect([m for s in chosen for m in scene_manifests(s, paths, lengths)])
    words = pick_new_words(parts, new_words, seed)
    parts.update(new_word_parts(parts, words))
    if output_dir is not None:
        write_manifests(parts, Path(output_dir), "fotaq")
        write_text(Path(output_dir) / "newwords_words.txt", "".join(f"{w}\n" for w in words))
    return parts
