"""Kneser-Ney against its definition, against another reader, and bad ARPA files."""

import functools
import itertools
import math
import random

import pytest

from icefall_ctx.errors import InputError
from icefall_ctx.text.ngram import (
    BOS,
    EOS,
    check_words,
    estimate,
    read_arpa,
    write_arpa,
)


def random_text(seed=0, sentences=300):
    rng = random.Random(seed)
    words = "a b c d e f g".split()
    return [
        [rng.choice(words[: rng.randint(1, 7)]) for _ in range(rng.randint(0, 7))]
        for _ in range(sentences)
    ]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_distributions_sum_to_one(order):
    model = estimate(random_text(), order, vocabulary=[*"abcdefg", "unseen"])
    words = [w for (w,) in model.log_probs[0] if w != BOS]
    histories = [[BOS], [BOS, "a"], ["b", "c"], ["unseen", "a"], ["a", "b", "c"], ["never"]]
    for history in histories:
        total = sum(10 ** model.log_prob(word, history) for word in words)
        assert total == pytest.approx(1.0, abs=1e-9)


def by_definition(text, order, word, history, vocabulary):
    """Modified Kneser-Ney computed from the text itself, one probability at a time."""
    sentences = [[BOS, *s, EOS] for s in text]
    grams = {
        n: [tuple(s[i : i + n]) for s in sentences for i in range(len(s) - n + 1)]
        for n in range(1, order + 1)
    }

    @functools.lru_cache(None)
    def count(ngram):
        n = len(ngram)
        if ngram == (BOS,):
            return 0
        if n == order or ngram[0] == BOS:
            return grams[n].count(ngram)
        return len({g[0] for g in grams[n + 1] if g[1:] == ngram})

    def probability(word, history):
        n = len(history) + 1
        counts = {g: count(g) for g in set(grams[n])}
        ones = [sum(c == k for c in counts.values()) for k in (1, 2, 3, 4)]
        discount = [0, 0.5, 1.0, 1.5]  # the rule where a count of counts is zero
        if all(ones):
            y = ones[0] / (ones[0] + 2 * ones[1])
            discount = [0] + [k - (k + 1) * y * ones[k] / ones[k - 1] for k in (1, 2, 3)]
        follow = {g[-1]: c for g, c in counts.items() if g[:-1] == tuple(history) and c}
        lower = probability(word, history[1:]) if history else 1 / len(vocabulary)
        if not follow:
            return lower
        total = sum(follow.values())
        gamma = sum(discount[min(c, 3)] for c in follow.values()) / total
        c = follow.get(word, 0)
        return (c - discount[min(c, 3)]) / total + gamma * lower

    return probability(word, tuple(history))


def test_probabilities_follow_the_definition():
    rng = random.Random(3)
    words = [x + y for x in "abcdefgh" for y in ["", *"abcdefgh"]]
    weights = [1 / (i + 1) ** 1.2 for i in range(len(words))]
    text = [rng.choices(words, weights, k=rng.randint(1, 6)) for _ in range(150)]
    model = estimate(text, 3)
    vocabulary = {*words, EOS, "<UNK>"} & {w for (w,) in model.log_probs[0]}
    assert len(vocabulary) == len(model.log_probs[0]) - 1
    histories = [(BOS, "a"), ("a", "b"), ("b", "a"), ("aa", "a")]
    for history, word in itertools.product(histories, ["a", "b", "aa", EOS]):
        expected = by_definition(text, 3, word, history, vocabulary)
        assert model.log_prob(word, history) == pytest.approx(math.log10(expected), abs=1e-9)


def test_arpa_round_trip(tmp_path):
    text = random_text(1)
    model = estimate(text, 3)
    write_arpa(model, tmp_path / "lm.arpa")
    again = read_arpa(tmp_path / "lm.arpa")
    assert again.perplexity(text) == pytest.approx(model.perplexity(text), rel=1e-5)
    kenlm = pytest.importorskip("kenlm", reason="the reader kenlm is not installed")
    other = kenlm.Model(str(tmp_path / "lm.arpa"))
    for sentence in text[:50]:
        expected = other.score(" ".join(sentence), bos=True, eos=True)
        assert model.score(sentence) == pytest.approx(expected, abs=1e-4)


def test_words_outside_the_vocabulary_become_unknown():
    model = estimate([["a", "zebra"], ["a", "b"]], 2, vocabulary=["a", "b"])
    assert ("zebra",) not in model.log_probs[0]
    assert model.log_prob("zebra", ["a"]) == model.log_prob("<UNK>", ["a"])


def test_text_with_too_few_counts_still_gives_a_model():
    model = estimate([["a"]], 3)
    assert 0 < 10 ** model.score(["a"]) < 1
    with pytest.raises(InputError, match="no sentence"):
        estimate([], 2)
    with pytest.raises(InputError, match="at least 1"):
        estimate([["a"]], 0)


GOOD = "\\data\\\nngram 1=3\n\n\\1-grams:\n-99 <s>\n-0.3 </s>\n-0.3 a\n\n\\end\\\n"


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "no n-grams"),
        ("\\data\\\nngram 1=0\n\n\\1-grams:\n\n\\end\\\n", "no n-grams"),
        (GOOD.replace("-0.3 a", "a"), r"lm.arpa:7: expected a log-probability"),
        (GOOD.replace("-0.3 a", "x a"), r"lm.arpa:7: not a number"),
        (GOOD.replace("-0.3 a", "-0.3 a -0.1"), r"lm.arpa:7: .*no backoff"),
        (GOOD.replace("1=3", "1=4"), "promises"),
        (GOOD.replace("1=3", "1=x"), r"lm.arpa:2: expected 'ngram"),
        (GOOD.replace("\\end\\\n", ""), "cut off"),
        (GOOD.replace("\\1-grams", "\\2-grams"), r"lm.arpa:4: .* should follow"),
    ],
)
def test_bad_arpa_is_refused_with_file_and_line(tmp_path, text, message):
    (tmp_path / "lm.arpa").write_text(text)
    with pytest.raises(InputError, match=message):
        read_arpa(tmp_path / "lm.arpa")


def test_words_absent_from_the_list_are_named_with_their_line(tmp_path):
    (tmp_path / "lm.arpa").write_text(GOOD)
    model = read_arpa(tmp_path / "lm.arpa")
    check_words(model, tmp_path / "lm.arpa", ["a"])
    with pytest.raises(InputError, match=r"lm.arpa:7: 'a' not in words.txt"):
        check_words(model, tmp_path / "lm.arpa", ["b"])
