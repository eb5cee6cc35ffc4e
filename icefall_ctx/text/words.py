"""Word lists for the memory: read, turned into tokens, and reported entry by entry.

A list is a text file with one word or phrase a line.  Every character of a line is data; there
are no comments.  A file whose name ends in ``.jsonl`` has one object a line instead::

    {"text": "MACLEOD", "display": "MacLeod", "variants": ["MCCLOUD"], "weight": 1.0}

``variants`` are other spellings that stand for the same entry; the output has ``display``
wherever ``text`` or a variant came out.  ``weight`` multiplies the entry's attention.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.formats.lines import read_lines
from icefall_ctx.text.normalize import change_case, squeeze
from icefall_ctx.text.tokenizer import Tokenizer

Ids = Tuple[int, ...]
MAX_TOKENS = 64  # of an entry; the memory is made for words and short phrases
KEYS = ("text", "display", "variants", "weight")


@dataclass(frozen=True)
class WordEntry:
    """Attributes:
    text: as it is spoken and recognised.
    display: what the output shows instead; empty: the recognised text itself.
    variants: other spellings of the same entry.
    weight: factor on the entry's attention, above 0.
    place: file and line, for messages.
    """

    text: str
    display: str = ""
    variants: Tuple[str, ...] = ()
    weight: float = 1.0
    place: str = ""


def read_words(path: Pathlike) -> List[WordEntry]:
    """The entries of a file, in its order; blank lines are none.

    Raises:
      InputError: no such file, not text, or an object that is not an entry.
    """
    lines = read_lines(path, ProblemLog(strict=True))
    if str(path).removesuffix(".gz").endswith(".jsonl"):
        return [_from_json(line, where(path, number)) for number, line in lines]
    return [WordEntry(squeeze(line), place=where(path, number)) for number, line in lines]


def _from_json(line: str, place: str) -> WordEntry:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not a JSON object: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        raise InputError(f'{place}: expected an object with "text", not {line[:60]}')
    unknown = [key for key in value if key not in KEYS]
    if unknown:
        raise InputError(f"{place}: no key '{unknown[0]}' in an entry; there are {', '.join(KEYS)}")
    display, variants = value.get("display", ""), value.get("variants", [])
    if not isinstance(display, str) or not _is_texts(variants):
        raise InputError(f'{place}: "display" is a text and "variants" a list of texts')
    weight = _weight(value.get("weight", 1.0), place)
    texts = tuple(squeeze(variant) for variant in variants)
    return WordEntry(squeeze(value["text"]), squeeze(display), texts, weight, place)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _weight(value: Any, place: str) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= 0:
        raise InputError(f'{place}: "weight" is {value!r}; expected a number above 0')
    return float(value)


@dataclass
class LoadedSpelling:
    """What became of one spelling of an entry.

    Attributes:
      text: as the model spells it.
      ids, pieces: its tokens.
      problem: why it cannot be used; empty if it can.
      duplicate_of: place of the earlier entry with the same tokens.
      prefix_of: an entry that begins with this one; harmless, and worth knowing.
    """

    entry: WordEntry
    text: str
    ids: Ids
    pieces: List[str]
    problem: str = ""
    duplicate_of: str = ""
    prefix_of: str = ""

    @property
    def usable(self) -> bool:
        return not self.problem and not self.duplicate_of


@dataclass
class WordList:
    """A list as the memory uses it, and the report of how it was loaded.

    Attributes:
      spellings: every spelling of every entry, in order.
    """

    spellings: List[LoadedSpelling] = field(default_factory=list)

    @property
    def weights(self) -> Dict[Ids, float]:
        """Token ids -> weight, of what can be used."""
        return {s.ids: s.entry.weight for s in self.spellings if s.usable}

    @property
    def texts(self) -> List[str]:
        """What can be used, as the model spells it."""
        return [s.text for s in self.spellings if s.usable]

    @property
    def displays(self) -> Dict[str, str]:
        """Recognised text -> what the output shows, where that differs."""
        usable = (s for s in self.spellings if s.usable)
        return {s.text: s.entry.display for s in usable if s.entry.display not in ("", s.text)}

    def summary(self) -> str:
        """One line of counts."""
        usable = sum(s.usable for s in self.spellings)
        duplicates = sum(bool(s.duplicate_of) for s in self.spellings)
        unusable = sum(bool(s.problem) for s in self.spellings)
        prefixes = sum(bool(s.prefix_of) for s in self.spellings)
        return (
            f"{usable} entries used, {duplicates} duplicates, {unusable} cannot be used, "
            f"{prefixes} begin another entry"
        )


class WordLoader:
    """Turns entries into tokens of one model.

    Args:
      tokenizer: of the model.
      normalize: the rules that the training transcripts went through.
    """

    def __init__(self, tokenizer: Tokenizer, normalize: Callable[[str], str] = str) -> None:
        self.tokenizer = tokenizer
        self.normalize = normalize
        letters = "".join(tokenizer.pieces[tokenizer.unk_id + 1 :])
        self._cases = [case for case in (str.upper, str.lower) if _covers(letters, case)]

    def spell(self, text: str) -> str:
        """``text`` in the case and under the rules of the training text."""
        text = self.normalize(text)
        if len(self._cases) == 1:  # the vocabulary has letters, all of one case
            text = change_case(text, self._cases[0])
        return self.tokenizer.canonical(text)

    def load(self, entries: Iterable[WordEntry]) -> WordList:
        """Load entries; what cannot be used, and why, is in the result."""
        words = WordList()
        first: Dict[Ids, LoadedSpelling] = {}
        for entry in entries:
            for text in (entry.text, *entry.variants):
                spelling = self._load_one(entry, text)
                words.spellings.append(spelling)
                if spelling.problem:
                    continue
                earlier = first.setdefault(spelling.ids, spelling)
                if earlier is not spelling:
                    spelling.duplicate_of = earlier.entry.place or earlier.text
        _mark_prefixes(first)
        return words

    def _load_one(self, entry: WordEntry, text: str) -> LoadedSpelling:
        spelled = self.spell(text)
        ids = tuple(self.tokenizer.encode(spelled))
        pieces = [self.tokenizer.pieces[i] for i in ids]
        spelling = LoadedSpelling(entry, spelled, ids, pieces)
        if not ids:
            spelling.problem = "nothing is left of it under the model's text rules"
        elif self.tokenizer.unk_id in ids:
            unknown = "".join(sorted(self.tokenizer.coverage([spelled])))
            spelling.problem = f"the model cannot spell '{unknown or text}'"
        elif len(ids) > MAX_TOKENS:
            spelling.problem = f"{len(ids)} tokens; an entry has at most {MAX_TOKENS}"
        return spelling

    def load_usable(self, entries: Sequence[WordEntry], source: str) -> WordList:
        """The same for a list that is going to be used.

        Raises:
          InputError: none of the entries can be used.
        """
        words = self.load(entries)
        if not words.weights:
            reason = next((s.problem for s in words.spellings), "it has no entry")
            raise InputError(f"{source}: no entry can be used by this model: {reason}")
        return words


def _covers(letters: str, case: Callable[[str], str]) -> bool:
    """Whether ``letters`` has cased letters, and none that ``case`` would change."""
    return letters.upper() != letters.lower() and case(letters) == letters


def _mark_prefixes(first: Dict[Ids, LoadedSpelling]) -> None:
    """Sorted, an entry stands directly before those that begin with it."""
    ordered = sorted(first)
    for ids, after in zip(ordered, ordered[1:]):
        if after[: len(ids)] == ids:
            first[ids].prefix_of = first[after].text


def report_lines(words: WordList, log_limit: Optional[int] = None) -> List[str]:
    """One line a spelling: place, text, tokens and what is to be said about it; then the counts."""
    lines = []
    for spelling in words.spellings[:log_limit]:
        notes = [
            f"CANNOT BE USED: {spelling.problem}" if spelling.problem else "",
            f"same as {spelling.duplicate_of}" if spelling.duplicate_of else "",
            f"begins {spelling.prefix_of}" if spelling.prefix_of else "",
        ]
        place = f"{spelling.entry.place}: " if spelling.entry.place else ""
        parts = [f"{place}{spelling.text or spelling.entry.text}", " ".join(spelling.pieces)]
        lines.append("\t".join(parts + [note for note in notes if note]))
    return lines + [words.summary()]


def show(words: Sequence[str], displays: Dict[str, str]) -> List[str]:
    """Output words with the display form of every entry in them; the longest entry wins."""
    by_words = {tuple(text.split()): display for text, display in displays.items()}
    longest = max((len(key) for key in by_words), default=0)
    shown: List[str] = []
    position = 0
    while position < len(words):
        sizes = range(min(longest, len(words) - position), 0, -1)
        size = next((n for n in sizes if tuple(words[position : position + n]) in by_words), 0)
        if size:
            shown += by_words[tuple(words[position : position + size])].split()
        else:
            shown.append(words[position])
        position += max(1, size)
    return shown
