"""Invented names whose spelling cannot be told from their sound.

A name is a row of sounds, each of which English spells in several ways (f or ph, c or k or ck,
ee or ea or ie, silent letters).  One spelling of each sound is drawn at random, and the
synthesiser is given the sounds, not the spelling.
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple, Set

import numpy as np

# espeak's phoneme names -> spellings; nothing in the sound says which one it is
ONSETS = {
    "f": ("f", "ph", "ff"), "k": ("k", "c", "ch", "q"), "kr": ("kr", "cr", "chr"),
    "kl": ("kl", "cl", "chl"), "fl": ("fl", "phl"), "fr": ("fr", "phr"), "s": ("s", "c", "ps"),
    "r": ("r", "rh", "wr"), "n": ("n", "kn", "gn"), "z": ("z", "x"), "dZ": ("j", "g"),
    "S": ("sh", "sch"), "g": ("g", "gh", "gu"), "t": ("t", "pt", "th"), "v": ("v", "vh"),
    "m": ("m", "mh"), "l": ("l", "ll"), "sk": ("sk", "sc", "sch"), "w": ("w", "wh"),
    "h": ("h", "wh"), "j": ("y", "j"), "b": ("b", "bh"), "d": ("d", "dh"), "tr": ("tr", "thr"),
}  # fmt: skip
VOWELS = {
    "i:": ("ee", "ea", "ie", "ei"), "eI": ("ai", "ay", "ei", "ey"), "oU": ("oa", "ow", "oe"),
    "u:": ("oo", "ou", "ew", "ue"), "aI": ("y", "ie", "igh", "ai"), "I": ("i", "y"),
    "E": ("e", "ea"), "3:": ("er", "ir", "ur", "ear"), "O:": ("aw", "au", "or", "oar"),
}  # fmt: skip
CODAS = {
    "k": ("k", "ck", "c", "que"), "ks": ("x", "cks", "ks", "cs"), "f": ("f", "ff", "ph", "gh"),
    "l": ("l", "ll", "le"), "n": ("n", "nn", "ne", "gn"), "m": ("m", "mm", "mb", "me"),
    "s": ("s", "ss", "ce", "se"), "t": ("t", "tt", "te", "th"), "z": ("z", "zz", "se"),
    "lt": ("lt", "llt"), "nt": ("nt", "nnt"), "kt": ("ct", "cked", "kt"), "d": ("d", "dd", "de"),
    "": ("",),
}  # fmt: skip


class Name(NamedTuple):
    """``spelling`` in lower case, ``sound`` in espeak's phoneme names."""

    spelling: str
    sound: str

    @property
    def spoken(self) -> str:
        """What :class:`~icefall_ctx.corpora.espeak.Espeak` is given."""
        return f"[[{self.sound}]]"


def draw_name(rng: np.random.Generator) -> Name:
    """Two syllables, a third of the time three; the first one is stressed."""
    spelling, sound = "", "'"
    count = 3 if rng.random() < 0.33 else 2
    for syllable in range(count):
        tables = (ONSETS, VOWELS) + ((CODAS,) if syllable == count - 1 else ())
        for table in tables:
            key = list(table)[int(rng.integers(len(table)))]
            sound += key
            spelling += table[key][int(rng.integers(len(table[key])))]
    return Name(spelling, sound)


class NameSource:
    """Names that were never given before, neither the spelling nor the sound.

    Args:
      seed: decides the names.
      taken: words that may not come out as a name.
    """

    def __init__(self, seed: int, taken: Iterable[str] = ()) -> None:
        self._rng = np.random.default_rng((seed, 77))
        self._spellings: Set[str] = {word.lower() for word in taken}
        self._sounds: Set[str] = set()

    def draw(self) -> Name:
        while True:
            name = draw_name(self._rng)
            if name.spelling in self._spellings or name.sound in self._sounds:
                continue
            if 4 <= len(name.spelling) <= 11:
                self._spellings.add(name.spelling)
                self._sounds.add(name.sound)
                return name

    def take(self, count: int) -> List[Name]:
        return [self.draw() for _ in range(count)]
