"""History noise: how often, how much, and the same for the same seed."""

import random

import pytest

from icefall_ctx.data.conversation import Turn
from icefall_ctx.data.corruption import Corruptor, confusion_table


def turns_of(conversations=4, n=5, words="one two three four five six seven".split()):
    return [
        Turn(f"c{c}-{t}", f"c{c}", t, "s", " ".join(words[t : t + 3]) + f" c{c}", 0.0, ())
        for c in range(conversations)
        for t in range(n)
    ]


def test_every_sentence_is_corrupted_with_the_probability_asked_for():
    turns = turns_of()
    corrupt = Corruptor(turns, {turn.utt_id: "HYP" for turn in turns})
    history = turns[1:3]
    own = [turn.text for turn in history]
    for noise in (0.2, 0.7, 1.0):
        changed = [0, 0]
        for i in range(2000):
            texts = corrupt(history, noise, random.Random(i))
            texts = [None] * (2 - len(texts)) + texts
            changed = [n + (a != b) for n, a, b in zip(changed, texts, own)]
        assert all(abs(n / 2000 - noise) < 0.04 for n in changed)


def test_no_noise_is_the_text_itself():
    turns = turns_of()
    assert Corruptor(turns)(turns[:2], 0.0, random.Random(0)) == [t.text for t in turns[:2]]
    assert Corruptor([])([], 0.9, random.Random(0)) == []


def test_a_swap_is_of_another_conversation_and_stays_inside_it():
    turns = turns_of()
    corrupt = Corruptor(turns)
    texts = {t.text: t for t in turns}
    swapped = set()
    for i in range(300):
        if random.Random(i).random() < 0.5:  # the half of the noise that swaps
            found = [texts[text] for text in corrupt(turns[1:3], 1.0, random.Random(i))]
            assert len({t.conv_id for t in found}) == 1
            assert [t.turn for t in found] == list(range(found[0].turn, found[0].turn + len(found)))
            swapped.add(found[0].conv_id)
    assert swapped == {"c1", "c2", "c3"}


def test_one_conversation_has_nothing_to_swap_with():
    turns = turns_of(conversations=1)
    for i in range(50):
        assert len(Corruptor(turns)(turns[:2], 1.0, random.Random(i))) == 2


def test_edits_delete_and_substitute_words_of_the_corpus():
    turns = turns_of()
    corrupt = Corruptor(turns)
    vocabulary = {w for t in turns for w in t.text.split()}
    lengths, results = set(), set()
    for i in range(200):
        edited = corrupt.edit(turns[0], random.Random(i)).split()
        assert set(edited) <= vocabulary
        lengths.add(len(edited))
        results.add(" ".join(edited))
    assert {2, 3, 4} <= lengths and max(lengths) == 4, "nothing is inserted"
    assert len(results) > 20


def test_hypotheses_replace_edits_and_teach_confusions():
    turns = turns_of()
    corrupt = Corruptor(turns, {"c1-0": "one two tree c1"})
    assert corrupt.edit(turns[5], random.Random(0)) == "one two tree c1"
    seen = {w for i in range(300) for w in corrupt.edit(turns[0], random.Random(i)).split()}
    assert "tree" in seen, "three is confused as it was there, in other sentences too"


def test_confusions_keep_their_counts():
    table = confusion_table([("a b c", "a x c"), ("b", "x"), ("b d", "y d"), ("e", "")])
    assert sorted(table["b"]) == ["x", "x", "y"] and set(table) == {"b"}


def test_text_without_blanks_is_edited_by_characters():
    turns = [Turn(f"u{i}", f"c{i}", 0, "s", "我要查余额", 0.0, ()) for i in range(2)]
    results = {Corruptor(turns).edit(turns[0], random.Random(i)) for i in range(50)}
    assert all(" " not in text and len(text) <= 5 for text in results) and len(results) > 5


@pytest.mark.parametrize("text", ["", "x", "你"])
def test_tiny_texts(text):
    turn = Turn("u", "c", 0, None, text, 0.0, ())
    for i in range(20):
        assert len(Corruptor([turn]).edit(turn, random.Random(i))) <= 1


def test_same_seed_same_noise_in_any_order_of_the_manifest():
    turns = turns_of()
    shuffled = random.Random(3).sample(turns, len(turns))
    for i in range(50):
        a = Corruptor(turns)(turns[1:3], 0.9, random.Random(i))
        assert a == Corruptor(shuffled)(turns[1:3], 0.9, random.Random(i))
