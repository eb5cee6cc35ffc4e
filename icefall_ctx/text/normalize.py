"""Named text normalisers, used on reference and hypothesis alike.

Each rule set changes only what its description names.  Rules work on whole words (or on marked
tokens such as ``[noise]``), never inside a word and never across words: "THE DAY BEFORE
YESTERDAY" and "DAY CARE" pass through all of them word for word.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Callable, Dict, List, NamedTuple

from icefall_ctx.errors import InputError

UNK = "<unk>"


class Normalizer(NamedTuple):
    """A named rule set; call it with a text."""

    name: str
    description: str
    function: Callable[[str], str]

    def __call__(self, text: str) -> str:
        return self.function(text)


NORMALIZERS: Dict[str, Normalizer] = {}


def register_normalizer(name: str, description: str):
    """Decorator: make ``text -> text`` available as ``get_normalizer(name)``."""

    def register(function: Callable[[str], str]) -> Callable[[str], str]:
        if name in NORMALIZERS:
            raise ValueError(f"there is already a normaliser '{name}'")
        NORMALIZERS[name] = Normalizer(name, description, function)
        return function

    return register


def get_normalizer(name: str) -> Normalizer:
    """The rule set ``name``; :class:`InputError` names the known ones."""
    if name not in NORMALIZERS:
        raise InputError(f"unknown normaliser '{name}'; one of: {', '.join(NORMALIZERS)}")
    return NORMALIZERS[name]


# ---- building blocks: each text -> text, or words -> words ------------------------------------

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
_HAN_GAP = re.compile(rf"(?<=[{HAN}])\s+(?=[{HAN}])")
# [noise], (%hesitation), {laugh}, <sil>, </foreign>; never the word <unk>
_MARK = re.compile(r"\[[^\[\]]*\]|\(%[^()]*\)|\{[^{}]*\}|<(?!unk>)[^<>]*>", re.IGNORECASE)
_HESITATIONS = frozenset("uh um eh er mm hm ah huh ha".split())
_SMALL_NUMBERS = "zero one two three four five six seven eight nine".split()


def squeeze(text: str) -> str:
    """Single blanks between words, none at the ends."""
    return " ".join(text.split())


def join_han(text: str) -> str:
    """No blanks between two Han characters, where they carry no information."""
    return _HAN_GAP.sub("", text)


def drop_marks(text: str) -> str:
    """Without the marks of sounds that are not speech; ``<unk>`` stays, it stands for a word."""
    return _MARK.sub(" ", text)


def change_case(text: str, change: Callable[[str], str]) -> str:
    """``change`` applied to every word but ``<unk>``, which is a symbol and not a spelling."""
    return " ".join(UNK if w.lower() == UNK else change(w) for w in text.split())


def drop_hesitations(words: List[str]) -> List[str]:
    """Without "uh", "um", ...; after a number ("20 mm") the same letters are a unit."""
    kept: List[str] = []
    for word in words:
        after_number = bool(kept) and kept[-1][-1].isdigit()
        if word.lower() not in _HESITATIONS or after_number:
            kept.append(word)
    return kept


def _is_inside_word(mark: str, before: str, after: str) -> bool:
    """``it's``, ``uh-huh``, ``a.m``, ``R&D``; in numbers also ``10,000``, ``10:30``, ``5%``."""
    if mark == "%":
        return before.isdigit()
    if mark in ",:":
        return before.isdigit() and after.isdigit()
    return mark in "'’-.&" and before.isalnum() and after.isalnum()


def drop_punctuation(text: str) -> str:
    """Without punctuation, but for apostrophes, hyphens and points inside a word or number."""
    kept = []
    for i, c in enumerate(text):
        if not unicodedata.category(c).startswith("P"):
            kept.append(c)
        elif _is_inside_word(c, text[i - 1 : i], text[i + 1 : i + 2]):
            kept.append("'" if c == "’" else c)
        else:
            kept.append(" ")
    return "".join(kept)


def _keep_unk(text: str, change: Callable[[str], str]) -> str:
    """``change`` applied around the words ``<unk>``, whose brackets are not punctuation."""
    return f" {UNK} ".join(change(part) for part in re.split(UNK, text, flags=re.IGNORECASE))


# ---- rule sets --------------------------------------------------------------------------------


@register_normalizer("none", "blanks only: single between words, none at the ends")
def none(text: str) -> str:
    return squeeze(text)


@register_normalizer("lower", "lower case")
def lower(text: str) -> str:
    return change_case(text, str.lower)


@register_normalizer("upper", "upper case")
def upper(text: str) -> str:
    return change_case(text, str.upper)


@register_normalizer("english", "lower case; no [noise] marks; no punctuation outside words")
def english(text: str) -> str:
    return lower(_keep_unk(drop_marks(text), drop_punctuation))


@register_normalizer(
    "digits", "lower case; 'oh' and 'o' are 'zero'; numbers in figures are read digit by digit"
)
def digits(text: str) -> str:
    words: List[str] = []
    for word in lower(text).split():
        if word in ("oh", "o"):
            words.append("zero")
        elif word.isascii() and word.isdigit():
            words.extend(_SMALL_NUMBERS[int(figure)] for figure in word)
        else:
            words.append(word)
    return " ".join(words)


def _swbd_word(word: str) -> str:
    """One word of the Switchboard transcripts as it was spoken."""
    word = re.sub(r"^\[laughter-(.*)\]$", r"\1", word)  # a word spoken laughing
    word = re.sub(r"^\[([^/\]]*)/([^\]]*)\]$", r"\2", word)  # [intended/spoken]
    word = re.sub(r"^\{([^{}]*)\}$", r"\1", word)  # a made-up word
    return re.sub(r"(?<=[a-z'])_\d+$", "", word)  # a pronunciation variant, about_1


@register_normalizer(
    "swbd",
    "lower case; no [noise] marks, no hesitations (uh um eh er mm hm ah huh ha, unless they follow "
    "a number); [laughter-word], [intended/spoken], {made-up}, word_1 as the words spoken",
)
def swbd(text: str) -> str:
    words = [_swbd_word(word) for word in lower(text).split()]
    return " ".join(drop_hesitations(drop_marks(" ".join(words)).split()))


@register_normalizer(
    "tedlium", "lower case; no <sil>, {noise} marks; no variant numbers; it 's is it's"
)
def tedlium(text: str) -> str:
    text = re.sub(r"(?<=\w)\(\d+\)(?=\s|$)", "", drop_marks(lower(text)))
    return squeeze(re.sub(r"(?<=\w) '(?=(?:s|re|ve|ll|d|m|t)(?:\s|$))", "'", squeeze(text)))


def _mandarin(text: str) -> str:
    text = unicodedata.normalize("NFKC", text)  # full-width letters and figures
    return join_han(upper(_keep_unk(text, drop_punctuation)))


@register_normalizer(
    "mandarin-cer",
    "full-width letters are ASCII; no punctuation; no blanks between Han; Latin in upper case",
)
def mandarin_cer(text: str) -> str:
    return _mandarin(text)


@register_normalizer(
    "hkust", "as mandarin-cer, and no <noise>, {laugh} marks; words inside ((..)) and after % stay"
)
def hkust(text: str) -> str:
    return _mandarin(drop_marks(text))
