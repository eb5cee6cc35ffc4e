"""Who says what in Flight of the Amazon Queen: cutscenes, dialogue trees and remarks.

Gives the written lines with the names of their clips; whether a clip exists is another
question.  Numbers are big-endian, offsets count from behind a header of 20 bytes.
"""

from __future__ import annotations

import re
import struct
from typing import Dict, Iterator, List, NamedTuple, Tuple

from icefall_ctx.corpora.queen import QueenFile
from icefall_ctx.errors import InputError

FILE_HEADER = 20
# after a star: XY, two digits and a position, or any two characters
COMMAND = re.compile(r"\*(?:XY\d*\([^)]*\)|.{0,2})", re.DOTALL)
JOE = "JOE"
ANIMATION, EXECUTE, END_OF_FRAMES = 4, 5, -2  # in the object records of a cutscene
# the same person under the name of an object and under that of a dialogue file
SAME_PERSON = {
    "JOE KING": "JOE", "PRINCESS AZURA": "PRIN", "TRADER BOB": "BOB", "ANDERSON": "AND",
}  # fmt: skip
FIRST_DESCRIPTION = 41  # clips JOE0001 to JOE0040 are the responses


class Line(NamedTuple):
    """One sentence: ``clip`` is the name of its recording without ``.SB``."""

    clip: str
    speaker: str
    text: str


class Turn(NamedTuple):
    """What one person says at once, as sentences; ``key`` names it within its conversation."""

    key: str
    lines: Tuple[Line, ...]


class TreeRow(NamedTuple):
    """A level of a dialogue tree: the other person's line, then what Joe may answer."""

    head: int
    options: Tuple[int, ...]


class Tree(NamedTuple):
    """A dialogue tree.  ``joe`` and ``person`` give the turn of each string id.

    ``opening`` comes first, ``again`` on the second visit.
    """

    name: str
    rows: Tuple[TreeRow, ...]
    joe: Dict[int, Turn]
    person: Dict[int, Turn]
    opening: Tuple[Turn, ...]
    again: Tuple[Turn, ...]

    def level_order(self) -> List[Turn]:
        """Every turn once: row by row, then the person's other lines."""
        turns = list(self.opening)
        for row in self.rows:
            turns += [self.person[row.head]] if row.head in self.person else []
            turns += [self.joe[option] for option in row.options if option in self.joe]
        turns += [turn for key, turn in self.joe.items()]
        turns += [turn for key, turn in self.person.items()]
        return list(dict.fromkeys(turns + list(self.again)))


class GameText(NamedTuple):
    """``remarks``: conversation name -> Joe's solo turns; ``cutscenes``: name -> turns."""

    cutscenes: Dict[str, List[Turn]]
    trees: Dict[str, Tree]
    remarks: Dict[str, List[Turn]]


def split_segments(text: str) -> List[Tuple[int, str]]:
    """``*FLHey!*01`` -> [(2, "Hey!")]: the numbered sentences between the commands, none empty."""
    parts = (part.strip() for part in COMMAND.split(text))
    return [(number, part) for number, part in enumerate(parts, 1) if part]


def make_turn(key: str, prefix: str, speaker: str, text: str) -> Turn:
    lines = (
        Line(f"{prefix}{number:X}", speaker, sentence) for number, sentence in split_segments(text)
    )
    return Turn(key, tuple(lines))


class _Reader:
    """A cursor over a file of the game."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data, self.position = data, position

    def words(self, count: int, signed: bool = True) -> Tuple[int, ...]:
        layout = struct.Struct(f">{count}{'h' if signed else 'H'}")
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def word(self) -> int:
        return self.words(1)[0]

    def string(self, align: int) -> str:
        """One length byte, the characters, padding; an empty string has no padding."""
        length = self.data[self.position]
        begin = self.position + 1
        text = self.data[begin : begin + length]
        self.position = begin + length
        if length:
            self.position += -self.position % align
        return text.decode("latin-1")


class Cast(NamedTuple):
    """Names of the game's objects: ``objects[n]`` is an index into ``names``, from one."""

    objects: Tuple[int, ...]
    names: Tuple[str, ...]

    def speaker(self, number: int) -> str:
        """0 is Joe, negative numbers are texts without a person."""
        if number == 0:
            return JOE
        if number < 0 or number >= len(self.objects):
            return f"NARR{number}"
        index = abs(self.objects[number])
        if not 0 < index <= len(self.names):
            return f"OBJ{number}"
        name = self.names[index - 1].upper()
        return SAME_PERSON.get(name, name)


def read_cast(queen: QueenFile) -> Tuple[Cast, Dict[str, List[Turn]]]:
    """The object table of ``QUEEN.JAS``, the names and Joe's remarks of ``QUEEN2.JAS``."""
    reader = _Reader(queen["QUEEN.JAS"], FILE_HEADER)
    rooms, names, objects, descriptions = reader.words(4)
    table = (0,) + tuple(reader.words(8)[0] for _ in range(objects))
    text = queen["QUEEN2.JAS"].decode("latin-1").split("\r\n")
    verbs, responses = 12, 40
    begin = descriptions + names + rooms + verbs
    described = _remarks(text[:descriptions], FIRST_DESCRIPTION)
    response = _remarks(text[begin : begin + responses], 1)
    cast = Cast(table, tuple(text[descriptions : descriptions + names]))
    return cast, {"DESC": described, "RESP": response}


def _remarks(texts: List[str], first: int) -> List[Turn]:
    return [
        make_turn(f"{number:04d}", f"JOE{number:04d}", JOE, text)
        for number, text in enumerate(texts, first)
    ]


def read_cutscene(queen: QueenFile, name: str, cast: Cast) -> List[Turn]:
    """The turns of ``<stem>.CUT``, one an object record, silent records included."""
    data = queen[name][FILE_HEADER:]
    stem = name.rpartition(".")[0]
    reader = _Reader(data)
    _, count, _, _, strings_offset, _ = reader.words(6)
    speakers = [cast.speaker(_object_record(reader)) for _ in range(abs(count))]
    reader.position = strings_offset
    reader.string(align=2)  # how Joe stands when the scene opens
    turns = []
    for number, speaker in enumerate(speakers, 1):
        prefix = f"{stem.ljust(5, '_')}{number:02d}"
        turns.append(make_turn(f"{number:02d}", prefix, speaker, reader.string(align=2)))
    return turns


def _object_record(reader: _Reader) -> int:
    """Step over one object record; returns its object number.

    17 words, a counted list of persons and, where the record starts an animation, frames of 10
    words up to a lone -2; an animation that is not started waits for one that is.
    """
    record = reader.words(17)
    reader.words(reader.word())
    if record[ANIMATION] and record[EXECUTE]:
        while reader.word() != END_OF_FRAMES:
            reader.words(9)
    return record[0]


def read_tree(queen: QueenFile, name: str) -> Tree:
    """The dialogue tree of ``<stem>.DOG``; the other person is named by the stem."""
    data = queen[name][FILE_HEADER:]
    stem = name.rpartition(".")[0]
    person_name = stem.rstrip("0123456789")
    reader = _Reader(data)
    levels, _, talk_key, joe_count, person_count = reader.words(5)
    reader.words(6)
    person_offset, _, again_offset = reader.words(3, signed=False)
    reader.position = 32
    rows = tuple(_tree_row(reader) for _ in range(abs(levels)))

    def turn(side: str, code: str, text: str) -> Turn:
        prefix = f"{talk_key:02d}{code}{side}"
        return make_turn(code + side, prefix, JOE if side == "J" else person_name, text)

    joe = dict(_strings(reader, joe_count))
    reader.position = person_offset
    person = dict(_strings(reader, person_count))
    reader.position = again_offset
    again = (turn("P", "XXXX", reader.string(2)), turn("J", "XXXX", reader.string(2)))
    return Tree(
        stem,
        rows,
        {key: turn("J", f"{key:04X}", text) for key, text in joe.items() if key},
        {key: turn("P", f"{key:04X}", text) for key, text in person.items() if key},
        (turn("J", "SSSS", joe.get(0, "")),),
        again,
    )


def _tree_row(reader: _Reader) -> TreeRow:
    """96 bytes: six times (0, id, 0, next level, 0, state, 0, value)."""
    ids = reader.words(48)[1::8]
    return TreeRow(ids[0], tuple(option for option in ids[1:] if option > 0))


def _strings(reader: _Reader, count: int) -> Iterator[Tuple[int, str]]:
    """Pairs of id and text: 2 bytes, i16 id, a string padded to 4."""
    for _ in range(count):
        _, key = reader.words(2)
        yield key, reader.string(align=4)


def read_game_text(queen: QueenFile) -> GameText:
    """Everything that is said in the game."""
    try:
        cast, remarks = read_cast(queen)
        cutscenes = {
            "CUT_" + name.rpartition(".")[0]: read_cutscene(queen, name, cast)
            for name in queen.names(".CUT")
        }
        trees = {
            name.rpartition(".")[0]: read_tree(queen, name) for name in queen.names(".DOG")
        }
    except (struct.error, IndexError) as error:
        raise InputError(f"{queen.path}: a text file in it is damaged ({error})")
    return GameText(cutscenes, trees, remarks)
