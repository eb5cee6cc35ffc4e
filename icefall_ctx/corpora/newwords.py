"""The mix of corpora for learning new words in one shot, and its test set of new words.

Training: Common Voice 6.1, Europarl-ST, How2, LibriSpeech, MuST-C 1 or 2, TED-LIUM 3, the English
side of each.  General test set: that of TED-LIUM 3.

New-words test set, by rule (:func:`choose_new_words`): utterances of the dev and test parts, other
than TED-LIUM's test, in which exactly one word occurs in no training utterance.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set

from lhotse import RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.utils import fastcopy

from icefall_ctx.corpora.manifests import Manifests
from icefall_ctx.corpora.newwords_sources import SOURCES
from icefall_ctx.corpora.reading import finish, merge_manifests, require_dir
from icefall_ctx.errors import InputError, Pathlike, ProblemLog
from icefall_ctx.files import write_text

NUM_NEW_WORDS = 239  # as in the paper: 239 utterances, one new word in each
MIN_LETTERS = 4
MAX_SECONDS = 20.0
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")


class NewWord(NamedTuple):
    word: str  # in small letters
    supervision: SupervisionSegment


def words_of(text: str) -> List[str]:
    """Words in small letters, without punctuation and digits."""
    return _WORD.findall(text.lower())


def _order(supervision: SupervisionSegment) -> bytes:
    """A random order that is the same in every run."""
    return hashlib.md5(supervision.id.encode()).digest()


def choose_new_words(
    candidates: Iterable[SupervisionSegment],
    known: Set[str],
    num_words: int = NUM_NEW_WORDS,
    min_letters: int = MIN_LETTERS,
) -> List[NewWord]:
    """Utterances with one new word each, no word twice.

    The rule: of a candidate's words exactly one is not in ``known``; it has at least
    ``min_letters`` letters, no apostrophe or hyphen, and occurs once; the utterance lasts at most
    :data:`MAX_SECONDS`.  Candidates are taken in the order of a hash of their ids until there
    are ``num_words``.
    """
    chosen: Dict[str, NewWord] = {}
    for supervision in sorted(candidates, key=_order):
        if len(chosen) == num_words:
            break
        words = words_of(supervision.text or "")
        new = [word for word in words if word not in known]
        if len(new) != 1 or supervision.duration > MAX_SECONDS:
            continue
        word = new[0]
        if word.isalpha() and len(word) >= min_letters and word not in chosen:
            chosen[word] = NewWord(word, supervision)
    return list(chosen.values())


def remove_utterances_with(
    supervisions: Iterable[SupervisionSegment], words: Set[str]
) -> List[SupervisionSegment]:
    """The utterances without any of ``words``: makes words new that a corpus has."""
    return [s for s in supervisions if words.isdisjoint(words_of(s.text or ""))]


def held_out_words(
    supervisions: Iterable[SupervisionSegment],
    min_count: int = 3,
    max_count: int = 30,
    min_speakers: int = 2,
) -> Set[str]:
    """Words that a corpus may hold out as new: not too rare to test, not too frequent to lose."""
    counts: Counter = Counter()
    speakers: Dict[str, Set[str]] = {}
    for supervision in supervisions:
        for word in words_of(supervision.text or ""):
            counts[word] += 1
            speakers.setdefault(word, set()).add(supervision.speaker or supervision.id)
    return {
        word
        for word, count in counts.items()
        if min_count <= count <= max_count and len(speakers[word]) >= min_speakers
    }


def _new_words_part(held_out: Manifests, train: Manifests, num_words: int) -> Manifests:
    known = {word for s in train["supervisions"] for word in words_of(s.text or "")}
    chosen = choose_new_words(held_out["supervisions"], known, num_words)
    if len(chosen) < num_words:
        logging.warning("newwords: %d of %d new words were found", len(chosen), num_words)
    supervisions = [
        fastcopy(turn, custom={**(turn.custom or {}), "new_word": word}) for word, turn in chosen
    ]
    return _with_turns(held_out, supervisions)


def _with_turns(part: Manifests, supervisions: List[SupervisionSegment]) -> Manifests:
    """``supervisions`` and those recordings of ``part`` that they need."""
    used = {supervision.recording_id for supervision in supervisions}
    return {
        "recordings": RecordingSet.from_recordings(
            recording for recording in part["recordings"] if recording.id in used
        ),
        "supervisions": SupervisionSet.from_segments(supervisions),
    }


def _without(part: Manifests, other: Manifests) -> Manifests:
    """``part`` without the turns of ``other``: a test utterance is not for choosing checkpoints."""
    taken = {supervision.id for supervision in other["supervisions"]}
    return _with_turns(part, [s for s in part["supervisions"] if s.id not in taken])


def prepare_newwords(
    corpus_dirs: Dict[str, Pathlike],
    output_dir: Optional[Pathlike] = None,
    num_words: int = NUM_NEW_WORDS,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Manifests]:
    """Read the corpora that are there.

    Parts: ``train``, ``dev``, ``test`` (TED-LIUM 3's, if it is given) and ``new_words``, whose
    turns have ``custom["new_word"]``.

    :param corpus_dirs: folder of each source, by its name in
        :data:`~icefall_ctx.corpora.newwords_sources.SOURCES`.
    :param output_dir: where to write the manifests, and the words as ``new_words.txt``, if
        anywhere.
    :param problems: collects what was skipped; strict logs stop at the first.
    """
    problems = ProblemLog() if problems is None else problems
    parts: Dict[str, List[Manifests]] = {}
    for name, folder in corpus_dirs.items():
        if name not in SOURCES:
            raise InputError(f"source {name!r} is not one of {', '.join(SOURCES)}")
        for part, manifests in _read(SOURCES[name], name, folder, problems).items():
            general_test = part == "test" and name == "tedlium3"
            group = "test" if general_test else part if part in ("train", "dev") else "other"
            parts.setdefault(group, []).append(manifests)
    if "train" not in parts:
        raise InputError("newwords: none of the sources has a part for training")
    merged = {part: merge_manifests(found) for part, found in parts.items() if part != "other"}
    held_out = merge_manifests(parts.get("dev", []) + parts.get("other", []))
    new_words = _new_words_part(held_out, merged["train"], num_words)
    if len(new_words["supervisions"]):
        merged["new_words"] = new_words
        if "dev" in merged:
            merged["dev"] = _without(merged["dev"], new_words)
    if output_dir is not None:
        words = sorted(s.custom["new_word"] for s in new_words["supervisions"])
        write_text(Path(output_dir) / "new_words.txt", "".join(f"{word}\n" for word in words))
    return finish("newwords", merged, problems, output_dir)


def _read(
    read: Callable, name: str, folder: Pathlike, problems: ProblemLog
) -> Dict[str, Manifests]:
    """The parts of one source, with its name before every id."""
    prefix = f"{name}-"
    return {
        part: {
            "recordings": RecordingSet.from_recordings(
                fastcopy(r, id=prefix + r.id) for r in manifests["recordings"]
            ),
            "supervisions": SupervisionSet.from_segments(
                fastcopy(s, id=prefix + s.id, recording_id=prefix + s.recording_id)
                for s in manifests["supervisions"]
            ),
        }
        for part, manifests in read(require_dir(folder, name), problems).items()
    }
