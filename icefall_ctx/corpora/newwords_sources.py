"""The sources of the new-words mix: English speech and text of six public corpora.

LibriSpeech is read by Lhotse's recipe.  The others have readers here:

- Lhotse's Common Voice recipe wants columns that release 6.1 does not have (``accents``,
  ``variant``), its MuST-C recipe reads the translation instead of the English text, and its
  TED-LIUM recipe stops at the first talk without audio;
- for Europarl-ST and How2 there is none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Dict, List

import yaml
from tqdm import tqdm

from icefall_ctx.corpora.importing import index_audio
from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import (
    ManifestBuilder,
    find_files,
    merge_manifests,
    parse_span,
    read_text,
    report,
)
from icefall_ctx.corpora.tedlium2 import read_tedlium
from icefall_ctx.errors import InputError, ProblemLog, where
from icefall_ctx.formats.kaldi import read_segments, read_table

Parts = Dict[str, Manifests]
Source = Callable[[Path, ProblemLog], Parts]

Audio = Dict[str, List[Path]]  # files by name without suffix

SOURCES: Dict[str, Source] = {}


def source(name: str) -> Callable[[Source], Source]:
    def register(function: Source) -> Source:
        SOURCES[name] = function
        return function

    return register


def _add_audio(builder: ManifestBuilder, name: str, audio: Audio) -> None:
    if name not in builder.recordings and name in audio:
        builder.add_recording(audio[name][0], name)


# Parts of LibriSpeech by their role; those that are missing are left out.
_LIBRISPEECH = {
    "train": ("train-clean-100", "train-clean-360", "train-other-500"),
    "dev": ("dev-clean", "dev-other"),
    "test": ("test-clean", "test-other"),
}


@source("librispeech")
def read_librispeech(root: Path, problems: ProblemLog) -> Parts:
    from lhotse.recipes.librispeech import prepare_librispeech  # imports every recipe: slow

    parts: Parts = {}
    for part, names in _LIBRISPEECH.items():
        present = [name for name in names if (root / name).is_dir()]
        if present:
            found = prepare_librispeech(root, dataset_parts=present)
            parts[part] = merge_manifests(found[name] for name in present)
    if not parts:
        raise InputError(f"{root}: none of the folders of LibriSpeech (train-clean-100, ...)")
    return parts


@source("tedlium3")
def read_tedlium3(root: Path, problems: ProblemLog) -> Parts:
    """Release 3 keeps the official parts in ``legacy/``."""
    return read_tedlium(root / "legacy" if (root / "legacy").is_dir() else root, problems)


@source("commonvoice")
def read_common_voice(root: Path, problems: ProblemLog) -> Parts:
    """``{train,dev,test}.tsv`` and ``clips/`` below ``en/``; other columns are not needed."""
    root = root / "en" if (root / "en").is_dir() else root
    parts: Parts = {}
    for part in ("train", "dev", "test"):
        path = root / f"{part}.tsv"
        if not path.is_file():
            problems.add("part missing", str(path))
            continue
        builder = ManifestBuilder(problems, language="English")
        _add_clips(builder, path, root / "clips")
        parts[part] = builder.manifests()
    return parts


def _add_clips(builder: ManifestBuilder, path: Path, clips: Path) -> None:
    lines = list(read_text(path, builder.problems))
    header = lines[0][1].split("\t") if lines else []
    if not {"client_id", "path", "sentence"} <= set(header):
        raise InputError(f"{path}:1: no columns client_id, path, sentence")
    for number, line in tqdm(lines[1:], desc=path.stem, disable=None):
        row = dict(zip(header, line.split("\t")))  # quotes are text here, often unbalanced
        if not row.get("path") or "sentence" not in row:
            builder.problems.add("line without path or sentence", where(path, number))
            continue
        name = Path(row["path"]).stem
        recording = builder.add_recording(clips / row["path"], name)
        builder.add_turn(
            where(path, number),
            name,
            name,
            0.0,
            recording.duration if recording else 0.0,
            channel=0,
            speaker=row["client_id"] or name,
            text=row["sentence"].strip('" '),
        )


@source("mustc")
def read_must_c(root: Path, problems: ProblemLog) -> Parts:
    """``en-XX/data/{train,dev,tst-COMMON}/{wav,txt}``, the English side; any target language."""
    parts: Parts = {}
    for part, folder in (("train", "train"), ("dev", "dev"), ("test", "tst-COMMON")):
        paths = find_files(root, f"{folder.lower()}.yaml")
        if not paths:
            problems.add("part missing", str(root), folder)
            continue
        builder = ManifestBuilder(problems, language="English")
        _add_must_c(builder, paths[0])
        parts[part] = builder.manifests()
    return parts


def _load_segments(path: Path) -> List[dict]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # 250,000 segments
    try:
        segments = yaml.load(path.read_bytes(), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())[:100]})") from None
    if not isinstance(segments, list):
        raise InputError(f"{path}: no list of segments")
    return segments


def _add_must_c(builder: ManifestBuilder, path: Path) -> None:
    text_path = path.with_suffix(".en")
    try:
        segments = _load_segments(path)
    except InputError as error:
        report(builder.problems, "unreadable file", error, path)
        return
    texts = dict(read_text(text_path, builder.problems))
    audio = index_audio(path.parents[1] / "wav")
    for number, segment in enumerate(segments, start=1):
        place = f"{path}#{number}"
        keys = ("wav", "speaker_id", "offset", "duration")
        values = [segment.get(key) if isinstance(segment, dict) else None for key in keys]
        span = parse_span(str(values[2]), str(values[3]))
        if None in values or span is None:
            builder.problems.add("segment without times or audio", place, str(segment)[:60])
            continue
        talk = Path(str(values[0])).stem
        _add_audio(builder, talk, audio)
        builder.add_turn(
            place,
            f"{talk}-{number:06d}",
            talk,
            span[0],
            round(sum(span), 6),
            channel=0,
            speaker=str(values[1]),
            text=texts.get(number, ""),
        )


@source("europarl_st")
def read_europarl_st(root: Path, problems: ProblemLog) -> Parts:
    """``en/audios/*`` and ``en/XX/{train,dev,test}/{segments.lst,segments.en,speakers.lst}``."""
    audio = index_audio(root / "en" / "audios")
    parts: Parts = {}
    for part in ("train", "dev", "test"):
        builder = ManifestBuilder(problems, language="English")
        done = set()  # a speech is translated into several languages
        for path in find_files(root / "en", "segments.lst"):
            if path.parent.name == part:
                _add_europarl(builder, path, audio, done)
        if builder.turns_seen:
            parts[part] = builder.manifests()
        else:
            problems.add("part missing", str(root), part)
    return parts


def _add_europarl(builder: ManifestBuilder, path: Path, audio: Audio, done: set) -> None:
    texts = dict(read_text(path.with_name("segments.en"), builder.problems))
    for number, line in read_text(path, builder.problems):
        name, *times = line.split()
        span = parse_span(*times) if len(times) == 2 else None
        if span is None:
            builder.problems.add("not 'speech start end'", where(path, number), line[:60])
            continue
        if (name, span) in done:
            continue
        done.add((name, span))
        _add_audio(builder, name, audio)
        turn_id = f"{name}-{round(span[0] * 1000):08d}-{round(span[1] * 1000):08d}"
        text = texts.get(number, "")
        builder.add_turn(
            where(path, number), turn_id, name, *span, channel=0, speaker=name, text=text
        )


# How2 calls its parts otherwise.
_HOW2 = {"train": ("train",), "dev": ("val",), "test": ("dev5", "test")}


@source("how2")
def read_how2(root: Path, problems: ProblemLog) -> Parts:
    """``{train,val,dev5}/{segments,text.id.en,utt2spk}`` as in Kaldi; audio by the video's id."""
    audio = index_audio(root)
    parts: Parts = {}
    for part, names in _HOW2.items():
        paths = find_files(root, "segments")
        folders = [path.parent for path in paths if path.parent.name in names]
        if not folders:
            problems.add("part missing", str(root), "/".join(names))
            continue
        builder = ManifestBuilder(problems, language="English")
        _add_how2(builder, folders[0], audio)
        parts[part] = builder.manifests()
    return parts


def _add_how2(builder: ManifestBuilder, folder: Path, audio: Audio) -> None:
    problems = builder.problems
    text_path = folder / "text.id.en"
    text = read_table(text_path if text_path.is_file() else folder / "text", problems)
    speakers = read_table(folder / "utt2spk", problems)
    for utt_id, segment in read_segments(folder / "segments", problems).items():
        _add_audio(builder, segment.recording, audio)
        builder.add_turn(
            where(folder / "segments", segment.line),
            utt_id,
            segment.recording,
            segment.start,
            segment.end,
            channel=0,
            speaker=speakers.get(utt_id) or segment.recording,
            text=text.get(utt_id, ""),
        )
