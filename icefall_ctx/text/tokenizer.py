"""Text to token ids and back: sentencepiece BPE and characters behind one class.

Ids as in icefall: ``<blk>`` = 0, ``<sos/eos>`` = 1, ``<unk>`` = 2.  On disk a tokenizer is a
folder:

    lang_bpe_500/   bpe.model, tokens.txt
    lang_char/      tokens.txt

``tokens.txt`` has one ``piece id`` a line.  ``normalizer.txt``, where present, names the rule set
of :mod:`icefall_ctx.text.normalize` that :meth:`Tokenizer.encode` applies first.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Iterable, List, Protocol, Sequence

import sentencepiece

from icefall_ctx.errors import InputError, Pathlike, where
from icefall_ctx.files import atomic_path, write_text
from icefall_ctx.text.normalize import UNK, get_normalizer, join_han, squeeze

BLANK_ID, SOS_EOS_ID, UNK_ID = 0, 1, 2
SPECIAL_PIECES = ["<blk>", "<sos/eos>", UNK]
WORD_BOUNDARY = "\u2581"
_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL_PIECES)), re.IGNORECASE)
_DISAMBIGUATION = re.compile(r"#\d+$")


class _Units(Protocol):
    """What distinguishes one kind of token from another."""

    kind: str
    pieces: List[str]

    def encode(self, words: Sequence[str]) -> List[int]:
        """Ids of these words, of which ``<unk>`` is one id."""

    def join(self, pieces: Sequence[str]) -> str:
        """The text that these pieces spell."""

    def save(self, directory: Path) -> None:
        """Write whatever ``tokens.txt`` does not hold."""


class _BpeUnits:
    kind = "bpe"

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.pieces = [self._processor.id_to_piece(i) for i in range(len(self._processor))]

    def encode(self, words: Sequence[str]) -> List[int]:
        ids: List[int] = []
        for is_unk, run in groupby(words, UNK.__eq__):
            # sentencepiece itself would spell "<unk>" letter by letter.
            ids += [UNK_ID for _ in run] if is_unk else self._processor.encode(" ".join(run))
        return ids

    def join(self, pieces: Sequence[str]) -> str:
        words = (f"{WORD_BOUNDARY}{UNK}" if piece == UNK else piece for piece in pieces)
        return squeeze("".join(words).replace(WORD_BOUNDARY, " "))

    def save(self, directory: Path) -> None:
        with atomic_path(directory / "bpe.model") as path:
            path.write_bytes(self.model)


class _CharUnits:
    """One id a character; a boundary piece between words unless both sides are Han."""

    kind = "char"

    def __init__(self, pieces: List[str]) -> None:
        self.pieces = pieces
        self._ids = {piece: i for i, piece in enumerate(pieces)}

    def encode(self, words: Sequence[str]) -> List[int]:
        ids: List[int] = []
        for word in words:
            ids += [self._ids.get(WORD_BOUNDARY, UNK_ID)] if ids else []
            ids += [UNK_ID] if word == UNK else [self._ids.get(c, UNK_ID) for c in word]
        return ids

    def join(self, pieces: Sequence[str]) -> str:
        return squeeze("".join(pieces).replace(WORD_BOUNDARY, " "))

    def save(self, directory: Path) -> None:
        """Everything is in ``tokens.txt``."""


class Tokenizer:
    """Token ids of a text, the same for the same text, and the text of token ids.

    Args:
      units: BPE or character units; use :meth:`load`, :func:`train_bpe` or :func:`train_char`.
      normalizer: the rule set that :meth:`encode` applies first, so that transcripts, word lists
        and language model text in any case get the ids of the text the model was trained on.
    """

    blank_id = BLANK_ID
    sos_id = SOS_EOS_ID
    eos_id = SOS_EOS_ID
    unk_id = UNK_ID

    def __init__(self, units: _Units, normalizer: str = "none") -> None:
        self._units = units
        self.normalizer = normalizer
        self._normalize = get_normalizer(normalizer)
        self._alphabet = {c for piece in units.pieces[UNK_ID + 1 :] for c in piece}

    @property
    def kind(self) -> str:
        """``bpe`` or ``char``."""
        return self._units.kind

    @property
    def pieces(self) -> List[str]:
        """Piece of every id, the three special ones first."""
        return self._units.pieces

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @property
    def fingerprint(self) -> str:
        """16 hex digits over kind and pieces; equal ones mean exchangeable ids."""
        content = "\n".join([self.kind, *self.pieces])
        return hashlib.sha256(content.encode("utf-8")).hexdigest()[:16]

    def canonical(self, text: str) -> str:
        """``text`` as far as ids can tell it apart.

        That is: normalised, single blanks, for characters none between Han, and special symbols
        (in any case) as words ``<unk>``: a transcript cannot smuggle in a blank or an end.
        ``decode(encode(text)) == canonical(text)`` for every text within the vocabulary.
        """
        text = self._normalize(text.replace(WORD_BOUNDARY, " "))
        text = squeeze(_SPECIAL.sub(f" {UNK} ", text))
        return join_han(text) if self.kind == "char" else text

    def encode(self, text: str) -> List[int]:
        """Ids without blank, start and end.  The word ``<unk>`` is one id, 2."""
        return self._units.encode(self.canonical(text).split())

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; blank, start and end are left out.  Raises IndexError beyond V."""
        return self._units.join([self.pieces[i] for i in ids if i not in (BLANK_ID, SOS_EOS_ID)])

    def coverage(self, texts: Iterable[str]) -> Counter:
        """How often each character of ``texts`` that no piece contains occurs."""
        unknown: Counter = Counter()
        for text in texts:
            words = (word for word in self.canonical(text).split() if word != UNK)
            unknown.update(c for word in words for c in word if c not in self._alphabet)
        return unknown

    def save(self, directory: Pathlike) -> None:
        """Write the folder that :meth:`load` reads."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self._units.save(directory)
        write_text(directory / "normalizer.txt", f"{self.normalizer}\n")
        lines = [f"{piece} {i}\n" for i, piece in enumerate(self.pieces)]
        write_text(directory / "tokens.txt", "".join(lines))

    @classmethod
    def load(cls, path: Pathlike) -> "Tokenizer":
        """Read a folder, a ``bpe.model`` or a character ``tokens.txt``.

        Raises :class:`InputError` for anything else, such as a word list in place of a model.
        """
        path = Path(path)
        if path.is_dir():
            units, directory = _load_directory(path), path
        elif path.is_file():
            is_model = path.suffix == ".model"
            units, directory = (_load_bpe if is_model else _load_char)(path), path.parent
        else:
            raise InputError(f"{path}: no such file or folder; expected bpe.model or tokens.txt")
        marker = directory / "normalizer.txt"
        name = marker.read_text(encoding="utf-8").strip() if marker.is_file() else "none"
        return cls(units, name)


def _load_directory(directory: Path) -> _Units:
    model, tokens = directory / "bpe.model", directory / "tokens.txt"
    if not model.is_file():
        if not tokens.is_file():
            raise InputError(f"{directory}: neither bpe.model nor tokens.txt is in this folder")
        return _load_char(tokens)
    units = _load_bpe(model)
    if tokens.is_file() and _read_tokens(tokens) != units.pieces:
        raise InputError(f"{tokens}: other pieces than {model}; make the folder again")
    return units


def _load_bpe(path: Path) -> _BpeUnits:
    model = path.read_bytes()
    if not model:
        raise InputError(f"{path}: is empty; train the tokenizer again")
    try:
        units = _BpeUnits(model)
    except RuntimeError as error:  # what sentencepiece raises when it cannot parse
        raise InputError(f"{path}: not a sentencepiece model; give the bpe.model file") from error
    _check_special(units.pieces, path)
    return units


def _load_char(path: Path) -> _CharUnits:
    pieces = _read_tokens(path)
    for i, piece in enumerate(pieces[UNK_ID + 1 :], UNK_ID + 1):
        if len(piece) != 1:
            raise InputError(
                f"{where(path, i + 1)}: '{piece}' is not one character; for BPE give bpe.model"
            )
    return _CharUnits(pieces)


def _read_tokens(path: Path) -> List[str]:
    """Pieces in the order of their ids, which must be 0, 1, 2, ...; without ``#0``, ``#1``, ..."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file; a BPE model is named bpe.model") from error
    pieces: List[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        piece, _, i = line.rstrip("\r").rpartition(" ")
        if _DISAMBIGUATION.match(piece):
            continue
        if not piece or i != str(len(pieces)):
            raise InputError(f"{where(path, number)}: expected 'piece {len(pieces)}', not '{line}'")
        pieces.append(piece)
    _check_special(pieces, path)
    duplicates = [piece for piece, n in Counter(pieces).items() if n > 1]
    if duplicates:
        raise InputError(f"{path}: piece '{duplicates[0]}' has two ids")
    return pieces


def _check_special(pieces: List[str], path: Path) -> None:
    if pieces[: UNK_ID + 1] == SPECIAL_PIECES:
        return
    first = " ".join(pieces[: UNK_ID + 1])
    hint = "this is a word list of a lexicon" if pieces[:1] == ["<eps>"] else "another vocabulary"
    raise InputError(
        f"{path}: starts with '{first}', not '{' '.join(SPECIAL_PIECES)}' ({hint}); "
        "give bpe.model or the tokens.txt of this tokenizer"
    )


def _training_texts(texts: Iterable[str], normalizer: str) -> List[str]:
    """Non-empty normalised texts without special words."""
    normalize = get_normalizer(normalizer)
    cleaned: List[str] = []
    for text in texts:
        text = normalize(text.replace(WORD_BOUNDARY, " "))
        cleaned.append(squeeze(_SPECIAL.sub(" ", text)))
    cleaned = [text for text in cleaned if text]
    if not cleaned:
        raise InputError("there is no text to train a tokenizer on (all transcripts are empty)")
    return cleaned


def train_bpe(texts: Iterable[str], vocab_size: int, normalizer: str = "none") -> Tokenizer:
    """BPE of ``vocab_size`` pieces with the three special ones; the same for the same texts.

    Raises :class:`InputError` if the texts hold more characters, or fewer possible pieces.
    """
    sentences = _training_texts(texts, normalizer)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            model_type="bpe",
            vocab_size=vocab_size,
            character_coverage=1.0,
            # Control symbols, unlike user-defined ones, are never found inside a transcript.
            control_symbols=SPECIAL_PIECES[:UNK_ID],
            unk_id=UNK_ID,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            # Changing the text is the normaliser's business.
            normalization_rule_name="identity",
            max_sentence_length=1 << 20,  # bytes; longer ones would be left out silently
            num_threads=1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).strip().split("] ")[-1].strip()
        raise InputError(f"no BPE of {vocab_size} pieces from this text: {reason}") from error
    return Tokenizer(_BpeUnits(model.getvalue()), normalizer)


def train_char(
    texts: Iterable[str], normalizer: str = "none", min_count: int = 1
) -> Tokenizer:
    """One piece for each character that occurs ``min_count`` times, in code point order."""
    counts: Counter = Counter()
    for text in _training_texts(texts, normalizer):
        counts.update(text)
    characters = sorted(c for c, n in counts.items() if n >= min_count and c != " ")
    return Tokenizer(_CharUnits([*SPECIAL_PIECES, WORD_BOUNDARY, *characters]), normalizer)
