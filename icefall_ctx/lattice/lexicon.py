"""Words and how the model's tokens spell them: ``words.txt`` and ``lexicon.txt``.

Word ids as in icefall: ``<eps>`` = 0, ``<UNK>`` = 1, the words, then ``#0``, ``<s>``, ``</s>``.
``lexicon.txt`` has one line a spelling, the word and then its pieces:  ``HELLO \u2581HE L LO``.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import read_lines
from icefall_ctx.text.tokenizer import UNK_ID, WORD_BOUNDARY, Tokenizer

EPSILON, UNK_WORD, BACKOFF, SENTENCE_START, SENTENCE_END = "<eps>", "<UNK>", "#0", "<s>", "</s>"
_RESERVED = {EPSILON, UNK_WORD, BACKOFF, SENTENCE_START, SENTENCE_END, "<unk>"}


class Spelling(NamedTuple):
    word: int
    tokens: Tuple[int, ...]
    disambiguation: int = 0  # k of the symbol #k appended in L_disambig; 0 is none


@dataclass(frozen=True)
class Lexicon:
    """Every word with its spellings in the tokens of one vocabulary.

    Attributes:
      words: word of every id, reserved ones included.
      spellings: pairs of word id and token ids, none empty.
      vocab_size: number of tokens; disambiguation symbol ``#k`` has id ``vocab_size + k``.
      token_fingerprint: of the tokenizer the spellings come from.
      separator: token between words (characters with a boundary piece), or None (BPE).
      separator_optional: true where Han words, which have no boundary, may be neighbours.
    """

    words: List[str]
    spellings: List[Spelling]
    vocab_size: int
    token_fingerprint: str
    separator: Optional[int] = None
    separator_optional: bool = False

    @cached_property
    def ids(self) -> Dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def word_fingerprint(self) -> str:
        """16 hex digits over the word list: G and L of one fingerprint may be composed."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()[:16]

    @property
    def backoff_id(self) -> int:
        return self.ids[BACKOFF]

    @cached_property
    def first_spelling(self) -> Dict[int, Tuple[int, ...]]:
        """One spelling of every word id."""
        return {word: spellings[0] for word, spellings in self.all_spellings.items()}

    def spell(self, word_ids: Iterable[int]) -> List[int]:
        """Tokens of a sentence of words, separators included."""
        separator = [] if self.separator is None or self.separator_optional else [self.separator]
        tokens: List[int] = []
        for word in word_ids:
            tokens += separator if tokens else []
            tokens += self.first_spelling[word]
        return tokens

    def token_spans(self, words: Iterable[int], tokens: Sequence[int]) -> List[Tuple[int, int]]:
        """Where the tokens of each word lie in those of the sentence: (first, last + 1)."""
        spans, position = [], 0
        for word in words:
            if self.separator is not None and tuple(tokens[position:][:1]) == (self.separator,):
                position += 1
            fitting = (
                spelling
                for spelling in self.all_spellings[word]
                if tuple(tokens[position : position + len(spelling)]) == spelling
            )
            count = len(max(fitting, key=len, default=self.first_spelling[word]))
            spans.append((position, min(position + count, len(tokens))))
            position = spans[-1][1]
        return spans

    @cached_property
    def all_spellings(self) -> Dict[int, List[Tuple[int, ...]]]:
        """The spellings of every word id."""
        result: Dict[int, List[Tuple[int, ...]]] = {}
        for spelling in self.spellings:
            result.setdefault(spelling.word, []).append(spelling.tokens)
        return result

    def disambiguated(self) -> Tuple[List[Spelling], int]:
        """Spellings with ``#k`` where one is a homophone or a prefix of another, and the largest k.

        With them the lexicon can be determinised: no two words end in the same place.
        """
        prefixes = {s.tokens[:n] for s in self.spellings for n in range(1, len(s.tokens))}
        seen: Counter = Counter()
        counts = Counter(s.tokens for s in self.spellings)
        result, largest = [], 0
        for spelling in self.spellings:
            tokens = spelling.tokens
            if counts[tokens] > 1 or tokens in prefixes:
                seen[tokens] += 1
                spelling = spelling._replace(disambiguation=seen[tokens])
                largest = max(largest, seen[tokens])
            result.append(spelling)
        return result, largest

    def homophones(self) -> Dict[Tuple[int, ...], List[str]]:
        """Words that share a spelling; only G can choose between them."""
        groups: Dict[Tuple[int, ...], List[str]] = {}
        for spelling in self.spellings:
            groups.setdefault(spelling.tokens, []).append(self.words[spelling.word])
        return {tokens: words for tokens, words in groups.items() if len(words) > 1}

    def save(self, lang_dir: Pathlike, tokenizer: Tokenizer) -> None:
        """Write ``words.txt`` and ``lexicon.txt``."""
        words = "".join(f"{word} {i}\n" for i, word in enumerate(self.words))
        write_text(Path(lang_dir) / "words.txt", words)
        lines = []
        for spelling in self.spellings:
            pieces = " ".join(tokenizer.pieces[token] for token in spelling.tokens)
            lines.append(f"{self.words[spelling.word]} {pieces}\n")
        write_text(Path(lang_dir) / "lexicon.txt", "".join(lines))


def build_lexicon(
    words: Iterable[str], tokenizer: Tokenizer, problems: Optional[ProblemLog] = None
) -> Lexicon:
    """The lexicon of a word list; the tokenizer spells every word.

    A word that is reserved, is not one word to the tokenizer, or needs an unknown piece is
    left out and told to ``problems``.
    """
    problems = ProblemLog() if problems is None else problems
    kept: Dict[str, List[int]] = {}
    for word in sorted(set(words) - _RESERVED):
        if len(word.split()) != 1 or len(tokenizer.canonical(word).split()) != 1:
            problems.add("not one word", repr(word))
            continue
        tokens = tokenizer.encode(word)
        if UNK_ID in tokens:
            problems.add("word with an unknown piece", word, "left out of the lexicon")
            continue
        kept[word] = tokens
    if not kept:
        raise InputError("the word list has no word that the tokenizer can spell")
    return _assemble([(word, tokens) for word, tokens in kept.items()], tokenizer)


def load_lexicon(lang_dir: Pathlike, tokenizer: Tokenizer) -> Lexicon:
    """Read ``lexicon.txt``, written by us or by hand, and check it line by line.

    Raises:
      InputError: an unknown piece, a word without pieces, ``<UNK>`` twice, or a ``words.txt``
        beside it that lists other words.
    """
    path = Path(lang_dir) / "lexicon.txt"
    if not path.is_file():
        raise InputError(f"{path}: no such lexicon; write one with local/prepare_lexicon.py")
    ids = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    entries: Dict[Tuple[str, Tuple[int, ...]], None] = {}
    unk_line = None
    for number, line in read_lines(path, ProblemLog(strict=True)):
        word, *pieces = line.split()
        tokens = _read_pieces(pieces, ids, where(path, number), word)
        if word.upper() == UNK_WORD:
            if unk_line is not None:
                raise InputError(f"{where(path, number)}: {word} again, it is in line {unk_line}")
            unk_line = number
        else:
            entries[word, tokens] = None
    lexicon = _assemble([(word, list(tokens)) for word, tokens in entries], tokenizer)
    _check_words(Path(lang_dir) / "words.txt", lexicon)
    return lexicon


def _read_pieces(
    pieces: List[str], ids: Dict[str, int], place: str, word: str
) -> Tuple[int, ...]:
    if not pieces:
        raise InputError(f"{place}: {word} has no pieces")
    unknown = [piece for piece in pieces if piece not in ids]
    if unknown:
        raise InputError(f"{place}: {word} needs the unknown piece {unknown[0]}")
    return tuple(ids[piece] for piece in pieces)


def _check_words(path: Path, lexicon: Lexicon) -> None:
    """``words.txt`` must list what the lexicon lists, in the same order."""
    if not path.is_file():
        return
    listed = [line.split()[0] for _, line in read_lines(path, ProblemLog(strict=True))]
    for i, (word, expected) in enumerate(zip_longest(listed, lexicon.words)):
        if word != expected:
            raise InputError(
                f"{where(path, i + 1)}: {word!r}, but word {i} of lexicon.txt is {expected!r}; "
                "write both again with local/prepare_lexicon.py"
            )


def _assemble(entries: List[Tuple[str, List[int]]], tokenizer: Tokenizer) -> Lexicon:
    names = sorted({word for word, _ in entries})
    words = [EPSILON, UNK_WORD, *names, BACKOFF, SENTENCE_START, SENTENCE_END]
    ids = {word: i for i, word in enumerate(words)}
    spellings = [Spelling(ids[UNK_WORD], (UNK_ID,))]
    spellings += sorted(Spelling(ids[word], tuple(tokens)) for word, tokens in entries)
    separator = None
    if tokenizer.kind == "char" and WORD_BOUNDARY in tokenizer.pieces:
        separator = tokenizer.pieces.index(WORD_BOUNDARY)
    return Lexicon(
        words,
        spellings,
        tokenizer.vocab_size,
        tokenizer.fingerprint,
        separator,
        separator_optional=any(_ends_in_han(name) for name in names),
    )


def _ends_in_han(word: str) -> bool:
    return "CJK" in unicodedata.name(word[0], "") or "CJK" in unicodedata.name(word[-1], "")
