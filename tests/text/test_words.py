"""Word lists: every character is data, in any case, and nothing is dropped silently."""

import json

import pytest

from icefall_ctx.errors import InputError
from icefall_ctx.text.splitting import WordSplitter
from icefall_ctx.text.tokenizer import train_bpe, train_char
from icefall_ctx.text.words import WordEntry, WordLoader, read_words, report_lines, show

TEXTS = ["CALL MACLEOD NOW", "NEW YORK CITY", "THE QUICK BROWN FOX JUMPS OVER A LAZY DOG"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_bpe(TEXTS, 45)


@pytest.mark.parametrize("kind", ["bpe", "char"])
@pytest.mark.parametrize("change", [str.upper, str.lower, str.title])
def test_any_case_gives_the_ids_of_the_training_text(kind, change):
    for case in (str.upper, str.lower):
        texts = [case(text) for text in TEXTS]
        tokenizer = train_bpe(texts, 45) if kind == "bpe" else train_char(texts)
        words = WordLoader(tokenizer).load([WordEntry(change("New York"))])
        assert list(words.weights) == [tuple(tokenizer.encode(case("NEW YORK")))]


def test_a_vocabulary_of_both_cases_keeps_them_apart():
    tokenizer = train_char(["Abc aBC"])
    words = WordLoader(tokenizer).load([WordEntry("aBc"), WordEntry("ABC")])
    assert words.texts == ["aBc", "ABC"]


def test_lines_are_data_and_not_syntax(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("\ufeff#hash\r\n\r\n:colon\r\n@at \t\r\nNEW\tYORK  \r\n  \r\n{\"a\"}".encode())
    entries = read_words(path)
    assert [e.text for e in entries] == ["#hash", ":colon", "@at", "NEW YORK", '{"a"}']
    assert entries[3].place == f"{path}:5"
    tokenizer = train_char(["#hash :colon @at"])
    assert WordLoader(tokenizer).load(entries[:3]).texts == ["#hash", ":colon", "@at"]


def test_objects(tmp_path, tokenizer):
    path = tmp_path / "words.jsonl"
    entry = {"text": "macleod", "display": "MacLeod", "variants": ["MAC LEOD"], "weight": 2}
    path.write_text(json.dumps(entry) + "\n" + json.dumps({"text": "FOX"}) + "\n")
    words = WordLoader(tokenizer).load(read_words(path))
    assert words.texts == ["MACLEOD", "MAC LEOD", "FOX"]
    assert list(words.weights.values()) == [2.0, 2.0, 1.0]
    assert show("CALL MAC LEOD OR MACLEOD".split(), words.displays) == [
        "CALL", "MacLeod", "OR", "MacLeod"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["FOX", "[1]", "{}", '{"text": 3}', '{"text": "A", "wieght": 1}', '{"text": "A", "weight": 0}',
     '{"text": "A", "weight": NaN}', '{"text": "A", "variants": "B"}',
     '{"text": "A", "display": 1}'],
)  # fmt: skip
def test_bad_objects_are_named_with_their_line(tmp_path, line):
    path = tmp_path / "words.jsonl"
    path.write_text('{"text": "A"}\n' + line + "\n")
    with pytest.raises(InputError, match="words.jsonl:2: "):
        read_words(path)


def test_report_of_duplicates_prefixes_and_unknown_letters(tokenizer):
    texts = ["NEW YORK", "new york", "NEW", "CAFÉ", "", "DOG " * 70]
    words = WordLoader(tokenizer).load([WordEntry(t, place=f"w:{i}") for i, t in enumerate(texts)])
    assert words.texts == ["NEW YORK", "NEW"]
    by_text = words.spellings
    assert by_text[1].duplicate_of == "w:0" and by_text[2].prefix_of == "NEW YORK"
    assert "'É'" in by_text[3].problem and "nothing is left" in by_text[4].problem
    assert "tokens" in by_text[5].problem
    lines = report_lines(words)
    assert len(lines) == 7 and "CANNOT BE USED" in lines[3] and lines[-1].startswith("2 entries")


def test_a_list_without_any_usable_entry_is_refused(tokenizer):
    for entries in ([], [WordEntry("É")]):
        with pytest.raises(InputError, match="words.txt: no entry can be used"):
            WordLoader(tokenizer).load_usable(entries, "words.txt")


def test_longest_display_wins():
    displays = {"NEW YORK": "New York", "NEW YORK CITY": "NYC"}
    assert show("IN NEW YORK CITY AND NEW YORK".split(), displays) == "IN NYC AND New York".split()


def test_words_in_token_ids(tokenizer):
    ids = tokenizer.encode("THE DOG JUMPS")
    spans = WordSplitter(tokenizer.pieces)(ids)
    assert [tokenizer.decode(ids[a:b]) for a, b in spans] == ["THE", "DOG", "JUMPS"]
    char = train_char(["THE DOG 你好"])
    ids = char.encode("THE DOG 你好")
    spans = WordSplitter(char.pieces)(ids)
    assert [char.decode(ids[a:b]) for a, b in spans] == ["THE", "DOG", "你", "好"]
    assert WordSplitter(char.pieces)([]) == []
