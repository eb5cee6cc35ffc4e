"""LM text in conversation order, and test sentences inside it."""

import logging

import pytest
from lhotse import SupervisionSegment

from icefall_ctx.errors import InputError
from icefall_ctx.text.lm_text import (
    conversations_from_supervisions,
    drop_sentences,
    find_contamination,
    read_lm_text,
    word_list,
    write_lm_text,
)
from icefall_ctx.text.tokenizer import train_char


def turn(utt, start, text, conv="c1", number=None, suffix=""):
    custom = {} if number is None else {"conv_id": conv, "turn": number, "utt_id": utt}
    return SupervisionSegment(utt + suffix, conv, start, 1.0, text=text, custom=custom)


def test_turns_come_in_order_and_speed_copies_once():
    supervisions = [
        turn("u9", 10.0, "third", number=10),
        turn("u2", 9.9, "second", number=9),
        turn("u2", 11.0, "second", number=9, suffix="_sp0.9"),
        turn("u1", 1.0, "first", number=0),
        turn("x", 3.0, "[noise]", number=2),
        turn("v2", 10.0, "later", conv="c2"),
        turn("v1", 9.5, "earlier", conv="c2"),
    ]
    got = conversations_from_supervisions(supervisions, lambda t: t.replace("[noise]", ""))
    assert got == [["first", "second", "third"], ["earlier", "later"]]


def test_files_keep_conversations_apart(tmp_path):
    text = [["a b", "c"], ["d"], ["e", "f", "g"]]
    write_lm_text(tmp_path / "lm.txt", text)
    assert read_lm_text(tmp_path / "lm.txt") == text
    (tmp_path / "crlf.txt").write_bytes(b"\xef\xbb\xbfa b\r\nc\r\n\r\n\r\nd\r\n")
    assert read_lm_text(tmp_path / "crlf.txt") == [["a b", "c"], ["d"]]
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(InputError, match="no text"):
        read_lm_text(tmp_path / "empty.txt")


def test_five_dev_sentences_in_the_text_are_counted(caplog):
    dev = [f"this is dev sentence {n}" for n in "abcdefgh"] + ["yeah", "mm hm"]
    text = [["unrelated", "yeah"], [s.upper() for s in dev[:5]]]
    with caplog.at_level(logging.WARNING):
        found = find_contamination(text, dev, name="dev")
    assert len(found.found) == 5 and found.total == 8
    assert "5 of 8 dev sentences" in caplog.text
    clean = drop_sentences(text, found.found)
    caplog.clear()
    assert not find_contamination(clean, dev).found and not caplog.text
    assert clean[0] == ["unrelated", "yeah"]


def test_word_list_counts_words_as_the_tokenizer_sees_them():
    tokenizer = train_char(["A b", "b c"], normalizer="none")
    assert word_list([["b  c"], ["b"]], tokenizer, min_count=2) == ["b"]
