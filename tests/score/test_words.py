import math
import random

import pytest

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.score.wer import ErrorCounts, Utterance, score_utterances
from icefall_ctx.score.words import (
    biased_scores,
    make_biasing_lists,
    new_word_accuracy,
    occurrences,
    rare_words,
    read_biasing_lists,
    write_biasing_lists,
)


def test_only_whole_words_count():
    assert occurrences(["day"], "yesterday day by day".split()) == 2
    assert occurrences(["new", "york"], "new york new new york york".split()) == 2
    assert occurrences(["a", "a"], "a a a".split()) == 1
    assert occurrences([], ["a"]) == 0


def test_new_word_accuracy_and_false_triggers():
    utterances = [
        Utterance("1", "call floda now".split(), "call floda now".split()),
        Utterance("2", "floda and floda".split(), "florida and floda".split()),
        Utterance("3", "nothing here".split(), "floda here".split()),
        Utterance("4", "van der berg".split(), None),
    ]
    score = new_word_accuracy(utterances, ["floda", "van der berg", "unused"])
    assert (score.found, score.total, score.false_triggers) == (2, 4, 1)
    assert score.per_phrase == {"floda": [2, 3, 1], "van der berg": [0, 1, 0], "unused": [0, 0, 0]}
    only = new_word_accuracy(utterances, ["floda", "van der berg"], {"1": ["floda"]})
    assert (only.accuracy, only.total, only.false_triggers) == (1, 1, 1)
    assert math.isnan(new_word_accuracy([], ["x"]).accuracy)
    assert new_word_accuracy(utterances, []).total == 0


def test_biased_and_unbiased_errors_add_up():
    rng = random.Random(0)
    utterances = [
        Utterance(str(i), rng.choices("abcdef", k=9), rng.choices("abcdef", k=8)) for i in range(50)
    ]
    lists = {str(i): ["a", "b c"] for i in range(40)}
    scores = biased_scores(utterances, lists)
    total = score_utterances(utterances, bootstrap=0).total
    for name in ("ref_words", "ins", "dels", "subs"):
        assert getattr(scores.total, name) == getattr(total, name)
    assert scores.biased.ref_words == sum(u.ref.count(w) for u in utterances[:40] for w in "abc")


def test_biased_errors_by_hand():
    utterances = [
        Utterance("1", "call floda now".split(), "call florida now".split()),
        Utterance("2", "see you".split(), "see floda you".split()),
        Utterance("3", "the day".split(), "the floda".split()),
        Utterance("4", "floda".split(), None),
    ]
    scores = biased_scores(utterances, {u.utt_id: ["floda"] for u in utterances})
    assert scores.biased == ErrorCounts(2, 1, 1, 1)
    assert scores.unbiased == ErrorCounts(6, 0, 0, 1)
    assert scores.false_triggers == 2
    assert scores.false_triggers_per_1000_words == 250


def test_lists_round_trip_and_problems(tmp_path):
    refs = {"u1": "the floda man", "u2": "the dog", "u3": "floda floda"}
    rare = ["floda", "dog", "ironstein", "你好", "lederhosen"]
    entries = make_biasing_lists(refs, rare, 3, seed=1)
    write_biasing_lists(tmp_path / "b.tsv", entries)
    assert (tmp_path / "b.tsv").read_text().startswith('u1\tthe floda man\t["floda"]\t[')
    assert read_biasing_lists(tmp_path / "b.tsv") == {e.utt_id: e for e in entries}
    for entry in entries:
        assert len(entry.words) == len(set(entry.words)) == 3 + len(entry.rare)
        assert set(entry.rare) <= set(entry.words) <= set(rare)
    (tmp_path / "b.tsv").write_text('a\tx\t["x"]\nb\tx\nc\tx\t[1]\t[]\na\ty\t[]\t[]\nd\tx\t[[[\n')
    log = ProblemLog()
    assert read_biasing_lists(tmp_path / "b.tsv", log)["a"].words == ["x"]
    assert [p.place.rsplit(":", 1)[1] for p in log.problems] == ["2", "3", "4", "5"]


def test_a_list_depends_on_its_own_utterance_only():
    refs = {f"u{i}": "a b" for i in range(5)}
    rare = [f"w{i}" for i in range(100)]
    both = {e.utt_id: e.words for e in make_biasing_lists(refs, rare, 10)}
    alone = make_biasing_lists({"u3": "a b"}, reversed(rare), 10)[0]
    assert alone.words == both["u3"] != both["u2"]
    assert both["u3"] != make_biasing_lists(refs, rare, 10, seed=1)[3].words
    with pytest.raises(InputError, match="u0: 101 distractors"):
        make_biasing_lists(refs, rare, 101)


def test_rare_words():
    assert rare_words(["a a b", "a b c", "d"], 2) == ["c", "d"]
