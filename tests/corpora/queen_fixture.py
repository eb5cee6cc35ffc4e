"""A queen.1c of a few lines, built from the description of its layout."""

import io
import struct
from pathlib import Path

import numpy as np
import soundfile as sf


def words(*values):
    return struct.pack(f">{len(values)}h", *values)


def string(text, at, align):
    """Length byte, text, padding to ``align`` counted from the start of the file."""
    data = bytes([len(text)]) + text.encode("latin-1")
    return data + b"\0" * (-(at + len(data)) % align if text else 0)


def mp3(seconds, frequency, rate=11025):
    time = np.arange(int(seconds * rate)) / rate
    out = io.BytesIO()
    sf.write(out, 0.3 * np.sin(2 * np.pi * frequency * time), rate, format="MP3")
    return out.getvalue()


def cutscene():
    """Joe, then object 2 with two persons and a started animation, then a text of nobody."""
    empty = [0] * 17
    joe, wait, other, narrator = list(empty), list(empty), list(empty), list(empty)
    wait[0], wait[4] = 1, 7  # an animation that is not started has no frames
    other[0], other[4], other[5], narrator[0] = 2, 3, 1, -2
    body = words(*joe, 0) + words(*wait, 0) + words(*other, 2, 8, 9)
    body += words(1, *[5] * 9) + words(2, *[5] * 9) + words(-2) + words(*narrator, 0)
    offset = 12 + len(body)
    data = words(0, -4, 0, offset, offset, 0) + body
    for text in ("*FR", "*FLHello Floda!*01How are you?*02", "*", "I see Floda.", "(sigh)"):
        data += string(text, len(data), 2)
    return b"\0" * 20 + data


def tree():
    """Two levels: choices 6 and 7, and after 6 the choice 30; line 99 belongs to no choice."""
    joe = {0: "Excuse me.*03", 6: "Where is Floda?*01", 7: "Goodbye.", 30: "I see."}
    person = {1: "*FLWhat do you want?*02", 6: "Not here.*01Go away.", 7: "Bye.", 99: "Ouch!"}
    rows = {1: (6, 7), 6: (30,)}
    data = b""
    for head, options in rows.items():
        cells = (head,) + options + (0,) * (5 - len(options))
        data += b"".join(words(0, cell, 0, 1, 0, 0, 0, 0) for cell in cells)
    data = bytearray(b"\0" * 32 + data)
    offsets = []
    for lines in (joe, person):
        offsets.append(len(data))
        for key, text in lines.items():
            data += words(0, key)
            data += string(text, len(data), 4)
    again = len(data)
    for text in ("Hello again Joe.", "Howdy."):
        data += string(text, len(data), 2)
    data[:28] = words(-2, 0, 4, len(joe), len(person), *[0] * 6) + struct.pack(
        ">3H", offsets[1], 0, again
    )
    return b"\0" * 20 + bytes(data)


def texts():
    lines = ["It looks nice*03", "bob", "Trader Bob", "a room"] + ["verb"] * 12
    lines += ["Use it with 24 what?"] + ["-"] * 39
    return "\r\n".join(lines).encode("latin-1")


def cast():
    objects = words(1, *[0] * 7) + words(-2, *[0] * 7)
    return b"\0" * 20 + words(1, 2, 2, 1) + objects


CLIPS = (
    "C1A__012 C1A__013 C1A__031 C1A__041 04SSSSJ1 040006J1 040007J1 04001EJ1 040001P2 040006P1 "
    "040006P2 040007P1 040063P1 04XXXXP1 04XXXXJ1 JOE00411 JOE00011 NOTEXT01"
).split()


def build(path: Path, clips=CLIPS) -> Path:
    entries = {"C1A.CUT": cutscene(), "PRIN1.DOG": tree(), "QUEEN.JAS": cast()}
    entries["QUEEN2.JAS"] = texts()
    for number, clip in enumerate(clips):
        entries[clip + ".SB"] = mp3(0.5 + 0.1 * number, 200 + 20 * number)
    table, position = b"", 15 + 21 * len(entries)
    for name, data in entries.items():
        table += struct.pack(">12sBII", name.encode(), 1, position, len(data))
        position += len(data)
    head = b"QTBL" + b"CEM10\0" + b"\0\0" + bytes([1]) + struct.pack(">H", len(entries))
    path.write_bytes(head + table + b"".join(entries.values()))
    return path
