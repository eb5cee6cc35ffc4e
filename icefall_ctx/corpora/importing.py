"""Your own calls: what people have on disk -> recordings and turns with speakers and channels.

=============  ====================================================================================
format         what it is
=============  ====================================================================================
``kaldi``      a data directory: ``wav.scp``, ``text``, ``utt2spk``, ``segments``
``stm``        NIST STM files, and audio files named as their first column
``rttm-ctm``   RTTM files for the turns and CTM files for the words, and audio files
``textgrid``   Praat TextGrids, one a call, a tier a speaker, and audio of the same name
``json``       one JSON file a call with segments, and one audio file a side or a call
``calls``      a folder of calls, each with a transcript of the same name beside it
=============  ====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional, Set, Tuple

from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.reading import AUDIO_SUFFIXES, ManifestBuilder, find_files
from icefall_ctx.errors import InputError, Pathlike, ProblemLog


@dataclass
class ImportJob:
    """What a reader of one format works with.

    :param source: the folder, or the file, with the transcripts.
    :param builder: takes recordings and turns.
    :param audio: audio files by name without suffix.
    :param shared_speakers: whether a speaker label means the same person in every call.
    :param run_commands: whether commands in a Kaldi ``wav.scp`` may be run.
    """

    source: Path
    builder: ManifestBuilder
    audio: Dict[str, List[Path]]
    shared_speakers: bool = True
    run_commands: bool = False
    encoding: str = "utf-8"
    missing: Set[str] = field(default_factory=set)  # recordings known not to be usable

    @property
    def problems(self) -> ProblemLog:
        return self.builder.problems

    def files(self, *suffixes: str) -> List[Path]:
        """The source itself, if it is a file, or the files below it with one of the suffixes."""
        return [self.source] if self.source.is_file() else find_files(self.source, suffixes)

    def need_audio(self, name: str) -> bool:
        """Make sure that recording ``name`` is listed; False, and said once, if it cannot be."""
        if name in self.builder.recordings:
            return True
        if name in self.missing:
            return False
        paths = self.audio.get(name, [])
        if len(paths) > 1:
            self.problems.add("two audio files of one name", str(paths[1]), f"kept {paths[0]}")
        found = bool(paths) and self.builder.add_recording(paths[0], name) is not None
        if not found:
            self.missing.add(name)
            if not paths:
                self.problems.add("no audio file", name, f"a file {name}.wav (or .flac, .sph, ...)")
        return found

    def speaker(self, call: str, label: str) -> str:
        return label if self.shared_speakers else f"{call}-{label}"


Reader = Callable[[ImportJob], None]

# format -> (reader, does a speaker label mean the same person in every call)
READERS: Dict[str, Tuple[Reader, bool]] = {}


def reader(name: str, *, shared_speakers: bool) -> Callable[[Reader], Reader]:
    """Register the reader of one format."""

    def register(function: Reader) -> Reader:
        READERS[name] = function, shared_speakers
        return function

    return register


# In this order: a folder may hold several kinds of file.
FORMAT_OF_SUFFIX = {
    ".stm": "stm",
    ".textgrid": "textgrid",
    ".json": "json",
    ".txt": "calls",
    ".rttm": "rttm-ctm",
}


def guess_format(source: Path) -> str:
    """The format of ``source`` by the files in it; an :class:`InputError` if none fits."""
    if source.is_file():
        suffixes = {source.suffix.lower()}
    elif (source / "wav.scp").is_file() or (source / "segments").is_file():
        return "kaldi"
    else:
        suffixes = {path.suffix.lower() for path in source.rglob("*") if path.is_file()}
    if ".rttm" in suffixes and (".ctm" in suffixes or source.is_file()):
        return "rttm-ctm"
    for suffix, name in FORMAT_OF_SUFFIX.items():
        if suffix in suffixes:
            return name
    raise InputError(
        f"{source}: no wav.scp, .stm, .rttm, .TextGrid, .json or .txt file here; give the folder "
        "with the transcripts, and --format if the format is known"
    )


def index_audio(*roots: Optional[Path]) -> Dict[str, List[Path]]:
    """Audio files below ``roots`` by name without suffix."""
    found: Dict[str, List[Path]] = {}
    for root in roots:
        if root is not None and root.is_dir():
            for path in find_files(root, AUDIO_SUFFIXES):
                if path not in found.setdefault(path.stem, []):
                    found[path.stem].append(path)
    return found


def read_calls(
    source: Pathlike,
    format: str = "auto",
    *,
    audio_dir: Optional[Pathlike] = None,
    language: Optional[str] = None,
    shared_speakers: Optional[bool] = None,
    run_commands: bool = False,
    encoding: str = "utf-8",
    problems: Optional[ProblemLog] = None,
) -> Tuple[Manifests, int]:
    """Recordings and supervisions of ``source``, and how many turns were met in all.

    :param source: folder or file with the transcripts, in one of :data:`READERS`, or ``auto``.
    :param audio_dir: where the audio is; the folder of ``source`` if not given.
    :param shared_speakers: whether a label names one person in all calls; the format's habit if
        not given (true for Kaldi and STM).
    :param run_commands: allow commands, such as ``sox ... |``, in a Kaldi ``wav.scp``.
    :raises InputError: if nothing usable is found.
    """
    from icefall_ctx.corpora import import_formats, import_kaldi  # noqa: F401  (fill READERS)

    problems = ProblemLog() if problems is None else problems
    source, audio_dir = Path(source), None if audio_dir is None else Path(audio_dir)
    for path in filter(None, (source, audio_dir)):
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
    format = guess_format(source) if format == "auto" else format
    if format not in READERS:
        raise InputError(f"format {format!r} is not one of {', '.join(READERS)}")
    read, habit = READERS[format]
    root = source if source.is_dir() else source.parent
    job = ImportJob(
        source=source,
        builder=ManifestBuilder(problems, language),
        audio=index_audio(audio_dir or root),
        shared_speakers=habit if shared_speakers is None else shared_speakers,
        run_commands=run_commands,
        encoding=encoding,
    )
    read(job)
    manifests = job.builder.manifests()
    if not len(manifests["supervisions"]):
        raise InputError(
            f"{source}: not one usable turn, read as {format} "
            f"({problems.summary() or 'no transcript found'})"
        )
    return manifests, job.builder.turns_seen
