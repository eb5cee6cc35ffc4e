"""Kneser-Ney n-gram models: estimated from text, written and read as ARPA.

Interpolated modified Kneser-Ney (Chen & Goodman 1998), as the usual tools estimate it:

    P(w | h) = max(c(h w) - D(c), 0) / c(h) + gamma(h) P(w | h')

with raw counts for the highest order and for n-grams that start with ``<s>``, and the number of
distinct words to the left for the others; three discounts an order; unigrams are interpolated
with the uniform distribution over all words, ``<UNK>`` and ``</s>``.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Dict, Iterable, List, Sequence, Set, Tuple

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.files import atomic_path
from icefall_ctx.formats.lines import read_lines

Ngram = Tuple[str, ...]
BOS, EOS, UNK_WORD = "<s>", "</s>", "<UNK>"
_NEVER = -99.0  # log10 probability of <s>, which is never predicted


@dataclass
class NgramModel:
    """Backoff model: ``log_probs[k]`` and ``backoffs[k]`` hold the (k+1)-grams, base-10 logs."""

    log_probs: List[Dict[Ngram, float]]
    backoffs: List[Dict[Ngram, float]]

    @property
    def order(self) -> int:
        return len(self.log_probs)

    def log_prob(self, word: str, history: Sequence[str]) -> float:
        """``log10 P(word | history)``; unknown words count as ``<UNK>``."""
        word = word if (word,) in self.log_probs[0] else UNK_WORD
        known = [w if (w,) in self.log_probs[0] else UNK_WORD for w in history]
        history_ngram = tuple(known[max(0, len(known) - self.order + 1) :])
        total = 0.0
        while True:
            ngram = (*history_ngram, word)
            if ngram in self.log_probs[len(ngram) - 1]:
                return total + self.log_probs[len(ngram) - 1][ngram]
            if not history_ngram:
                return -math.inf
            total += self.backoffs[len(history_ngram) - 1].get(history_ngram, 0.0)
            history_ngram = history_ngram[1:]

    def score(self, sentence: Sequence[str]) -> float:
        """``log10 P(sentence </s>)``."""
        words = [BOS, *sentence, EOS]
        return sum(self.log_prob(words[i], words[:i]) for i in range(1, len(words)))

    def perplexity(self, sentences: Iterable[Sequence[str]]) -> float:
        """Per word, sentence ends counted as words and unknown words scored as ``<UNK>``."""
        total, count = 0.0, 0
        for sentence in sentences:
            total += self.score(sentence)
            count += len(sentence) + 1
        if not count:
            raise InputError("no sentence to compute the perplexity of")
        return 10 ** (-total / count)


def estimate(
    sentences: Iterable[Sequence[str]], order: int, vocabulary: Iterable[str] = ()
) -> NgramModel:
    """Train on sentences of words.

    Args:
      vocabulary: words the model must know.  Where given, every other word of the text becomes
        ``<UNK>``, and words that the text lacks still get a unigram.
    """
    if order < 1:
        raise InputError(f"n-gram order {order}: must be at least 1")
    known = set(vocabulary)
    counts = _raw_counts(sentences, order, known)
    if not counts[0]:
        raise InputError("the text has no sentence to estimate an n-gram model from")
    words = known | {ngram[0] for ngram in counts[0]} | {UNK_WORD, EOS}
    adjusted = [_continuation(counts[k], counts[k + 1]) for k in range(order - 1)] + [counts[-1]]
    return _interpolate(adjusted, words - {BOS})


def _raw_counts(
    sentences: Iterable[Sequence[str]], order: int, known: Set[str]
) -> List[Counter]:
    counts = [Counter() for _ in range(order)]
    for sentence in sentences:
        words = [w if not known or w in known else UNK_WORD for w in sentence]
        words = [BOS, *words, EOS]
        for end in range(1, len(words)):
            for n in range(1, min(order, end + 1) + 1):
                counts[n - 1][tuple(words[end + 1 - n : end + 1])] += 1
    return counts


def _continuation(counts: Counter, longer: Counter) -> Counter:
    """Distinct words to the left of each n-gram; those that start a sentence keep their count."""
    adjusted: Counter = Counter(ngram[1:] for ngram in longer)
    for ngram, count in counts.items():
        if ngram[0] == BOS:
            adjusted[ngram] = count
    return adjusted


def _discounts(counts: Counter) -> Tuple[float, float, float, float]:
    """D(0..3+) from the counts of counts; fixed ones where there is too little text for them."""
    n1, n2, n3, n4 = (sum(1 for c in counts.values() if c == k) for k in (1, 2, 3, 4))
    fixed = (0.0, 0.5, 1.0, 1.5)
    if not (n1 and n2 and n3 and n4):
        return fixed
    y = n1 / (n1 + 2 * n2)
    found = (0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if all(0 < d <= k for k, d in enumerate(found) if k) else fixed


def _interpolate(counts: Sequence[Counter], words: Set[str]) -> NgramModel:
    """Probabilities order by order, each interpolated with the one below."""
    probs: List[Dict[Ngram, float]] = []
    gammas: List[Dict[Ngram, float]] = []
    for k, table in enumerate(counts):
        discounts = _discounts(table)
        totals: Dict[Ngram, int] = defaultdict(int)
        freed: Dict[Ngram, float] = defaultdict(float)
        for ngram, count in table.items():
            totals[ngram[:-1]] += count
            freed[ngram[:-1]] += discounts[min(count, 3)]
        gamma = {history: freed[history] / totals[history] for history in totals}
        lower = probs[k - 1] if k else None
        probs.append({})
        for ngram in table if k else {(word,) for word in words}:
            count, history = table.get(ngram, 0), ngram[:-1]
            share = (count - discounts[min(count, 3)]) / totals[history]
            below = lower[ngram[1:]] if lower is not None else 1 / len(words)
            probs[k][ngram] = share + gamma[history] * below
        if k:
            gammas.append(gamma)
    return _to_logs(probs, gammas)


def _to_logs(probs: List[Dict[Ngram, float]], gammas: List[Dict[Ngram, float]]) -> NgramModel:
    log_probs = [{g: math.log10(p) for g, p in table.items()} for table in probs]
    log_probs[0][(BOS,)] = _NEVER
    backoffs = [{h: math.log10(x) for h, x in table.items()} for table in gammas]
    return NgramModel(log_probs, [*backoffs, {}])


def write_arpa(model: NgramModel, path: Pathlike) -> None:
    """Write the ARPA file, sorted, atomically."""
    with atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as out:
        out.write("\\data\\\n")
        for k, table in enumerate(model.log_probs):
            out.write(f"ngram {k + 1}={len(table)}\n")
        for k, table in enumerate(model.log_probs):
            out.write(f"\n\\{k + 1}-grams:\n")
            for ngram in sorted(table):
                line = f"{table[ngram]:.7f}\t{' '.join(ngram)}"
                if ngram in model.backoffs[k]:
                    line += f"\t{model.backoffs[k][ngram]:.7f}"
                out.write(f"{line}\n")
        out.write("\n\\end\\\n")


def read_arpa(path: Pathlike) -> NgramModel:
    """Read an ARPA file, by any tool.

    Raises:
      InputError: an empty file, a line with too few or too many fields or without a number, or
        other counts than the header says, each with file and line.
    """
    promised: List[int] = []
    tables: List[Dict[Ngram, float]] = []
    backoffs: List[Dict[Ngram, float]] = []
    ended = False
    for number, line in read_lines(path, ProblemLog(strict=True)):
        place, text = where(path, number), line.strip()
        if text.startswith("ngram "):
            promised.append(_promised_count(text, place))
        elif text == "\\end\\":
            ended = True
        elif text.startswith("\\") and text.endswith("-grams:"):
            if text != f"\\{len(tables) + 1}-grams:":
                raise InputError(f"{place}: {text!r} where {len(tables) + 1}-grams should follow")
            tables.append({})
            backoffs.append({})
        elif tables and not ended:
            _read_ngram(text.split(), len(promised), tables, backoffs, place)
    _check_arpa(path, promised, tables, ended)
    return NgramModel(tables, backoffs)


def _promised_count(text: str, place: str) -> int:
    try:
        return int(text.split("=")[1])
    except (IndexError, ValueError) as error:
        raise InputError(f"{place}: expected 'ngram N=COUNT', found {text!r}") from error


def _read_ngram(
    fields: List[str],
    highest: int,
    tables: List[Dict[Ngram, float]],
    backoffs: List[Dict[Ngram, float]],
    place: str,
) -> None:
    n = len(tables)
    if len(fields) not in (n + 1, n + 2) or (len(fields) == n + 2 and n == highest):
        raise InputError(
            f"{place}: expected a log-probability, {n} words and "
            f"{'no' if n == highest else 'at most one'} backoff weight, found {len(fields)} fields"
        )
    ngram = tuple(fields[1 : n + 1])
    try:
        tables[-1][ngram] = float(fields[0])
        if len(fields) == n + 2:
            backoffs[-1][ngram] = float(fields[-1])
    except ValueError as error:
        raise InputError(f"{place}: not a number in {' '.join(fields)!r}") from error


def _check_arpa(
    path: Pathlike, promised: List[int], tables: List[Dict[Ngram, float]], ended: bool
) -> None:
    if not promised or not tables or not tables[0]:
        raise InputError(f"{path}: no n-grams in it; expected an ARPA file with \\1-grams:")
    found = [len(table) for table in tables]
    if found != promised:
        raise InputError(f"{path}: the header promises {promised} n-grams, the file has {found}")
    if not ended:
        raise InputError(f"{path}: the line \\end\\ is missing: the file is cut off")


def check_words(model: NgramModel, path: Pathlike, known: Iterable[str]) -> None:
    """Refuse a model with words that ``words.txt`` lacks, naming the line of the first.

    They would vanish from G without a word otherwise.
    """
    missing = {ngram[0] for ngram in model.log_probs[0]} - set(known) - {BOS, EOS}
    if not missing:
        return
    section = False
    for number, line in read_lines(path, ProblemLog(strict=True)):
        section = section or line.startswith("\\1-grams")
        fields = line.split()
        if section and len(fields) > 1 and fields[1] in missing:
            others = f" and {len(missing) - 1} others" if len(missing) > 1 else ""
            raise InputError(
                f"{where(path, number)}: {fields[1]!r}{others} not in words.txt; estimate the "
                "n-grams with this word list"
            )
