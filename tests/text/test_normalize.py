"""Every rule set changes what it names, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icefall_ctx.errors import InputError
from icefall_ctx.text.normalize import NORMALIZERS, get_normalizer, register_normalizer

ENGLISH = ["english", "digits", "swbd", "tedlium"]


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("text", ["THE DAY BEFORE YESTERDAY", "DAY CARE", "20 mm", "i am here"])
def test_ordinary_words_stay(name, text):
    if name == "digits":
        text = text.replace("20", "two zero")  # what this rule set names
    assert get_normalizer(name)(text).lower() == get_normalizer("none")(text).lower()


@pytest.mark.parametrize("name", [n for n in NORMALIZERS if n != "digits"])
def test_oh_is_a_word_outside_digits(name):
    assert get_normalizer(name)("OH").lower() == "oh"


@pytest.mark.parametrize(
    "name, text, expected",
    [
        ("none", " a  B\t[noise] ", "a B [noise]"),
        ("lower", "Straße UH <UNK>", "straße uh <unk>"),
        ("upper", "i'm <unk> ok", "I'M <unk> OK"),
        ("english", "Well, it’s 10,000 -- 5% [noise] <UNK>!", "well it's 10,000 5% <unk>"),
        ("english", "uh-huh... 'quoted' rock-and-roll.", "uh-huh quoted rock-and-roll"),
        ("digits", "OH o 42 seven", "zero zero four two seven"),
        ("swbd", "(%hesitation) uh-huh [laughter] ok", "uh-huh ok"),
        ("swbd", "UM because_1 [laughter-yes] [this/that] {gonnado}", "because yes that gonnado"),
        ("swbd", "mm twenty 20 mm uh", "twenty 20 mm"),
        ("swbd", "oh ah [background noise] oh_1", "oh oh"),
        ("tedlium", "it 's <sil> we(2) {NOISE} don 't <unk>", "it's we don't <unk>"),
        ("tedlium", "the 'sixties ' sound", "the 'sixties ' sound"),
        ("mandarin-cer", "我 们 ＯＫ， ok 吗？", "我们 OK OK 吗"),
        ("mandarin-cer", "<unk> 我 <unk>", "<unk> 我 <unk>"),
        ("hkust", "{laugh} 我 ((们)) <noise> %呃 hello", "我们呃 HELLO"),
    ],
)
def test_rules(name, text, expected):
    assert get_normalizer(name)(text) == expected


@pytest.mark.parametrize("name", ENGLISH + ["mandarin-cer", "hkust"])
def test_marks_alone_leave_nothing(name):
    expected = {"digits": "[noise]", "mandarin-cer": "NOISE"}.get(name, "")  # not their business
    assert get_normalizer(name)("[noise]") == expected


@pytest.mark.parametrize("name", NORMALIZERS)
@given(text=st.text(alphabet="aBmh '[]()<>%{}-_/.,12我们，\u3000\n", max_size=30))
def test_no_stray_blanks_on_any_text(name, text):
    once = get_normalizer(name)(text)
    assert once == " ".join(once.split())


@pytest.mark.parametrize("name", ["none", "lower", "upper", "mandarin-cer"])
@given(text=st.text(max_size=30))
def test_idempotent(name, text):
    normalize = get_normalizer(name)
    # Case changes of a few scripts are not (such as "ŉ"); ours must be as stable as Python's.
    once = normalize(text)
    if once.lower().lower() == once.lower() and once.upper().upper() == once.upper():
        assert normalize(once) == once


def test_unknown_name_lists_the_known():
    with pytest.raises(InputError, match="'swb'; one of: none, lower,.*swbd"):
        get_normalizer("swb")


def test_names_are_taken_once():
    with pytest.raises(ValueError, match="lower"):
        register_normalizer("lower", "again")(str.lower)


def test_every_rule_set_describes_itself():
    assert all(rules.description and rules.name == name for name, rules in NORMALIZERS.items())
