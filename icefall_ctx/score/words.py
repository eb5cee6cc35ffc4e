"""What a word list does: new words found, biased and unbiased error rates, false triggers."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Collection, Dict, Iterable, List, Mapping, Optional, Sequence

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import read_lines
from icefall_ctx.score.wer import EPS, Aligner, ErrorCounts, Utterance, align


def occurrences(phrase: Sequence[str], words: Sequence[str]) -> int:
    """How often ``phrase`` stands in ``words`` as whole words, without overlap."""
    count = position = 0
    size = len(phrase)
    while size and position + size <= len(words):
        found = list(words[position : position + size]) == list(phrase)
        count += found
        position += size if found else 1
    return count


@dataclass(frozen=True)
class NewWordScore:
    found: int  # occurrences in the reference that the output has as well
    total: int  # occurrences in the reference
    false_triggers: int  # occurrences in the output beyond those in the reference
    per_phrase: Dict[str, List[int]]  # phrase -> [found, total, false triggers]

    @property
    def accuracy(self) -> float:
        """``found / total``; ``nan`` without any occurrence."""
        return self.found / self.total if self.total else float("nan")


def new_word_accuracy(
    utterances: Iterable[Utterance],
    phrases: Collection[str],
    targets: Optional[Mapping[str, Collection[str]]] = None,
) -> NewWordScore:
    """Whether words and phrases come out as whole words, wherever in the utterance.

    Args:
      phrases: the new words; several words with blanks between are one phrase.
      targets: utterance id -> the phrases that its accuracy is about; default: those in its
        reference.  Triggers of all ``phrases`` are counted everywhere.
    """
    split = {phrase: phrase.split() for phrase in phrases}
    table = {phrase: [0, 0, 0] for phrase in phrases}
    for utterance in utterances:
        wanted = split if targets is None else targets.get(utterance.utt_id, ())
        for phrase, words in split.items():
            spoken = occurrences(words, utterance.ref)
            heard = occurrences(words, utterance.hyp or [])
            if phrase in wanted:
                table[phrase][0] += min(spoken, heard)
                table[phrase][1] += spoken
            table[phrase][2] += max(0, heard - spoken)
    sums = [sum(column) for column in zip(*table.values())] or [0, 0, 0]
    return NewWordScore(*sums, table)


@dataclass(frozen=True)
class BiasedScores:
    """Errors on the words of each utterance's list and on all others (Le et al., 2021).

    A substitution or deletion belongs to its reference word, an insertion to the inserted word.
    """

    biased: ErrorCounts  # B-WER
    unbiased: ErrorCounts  # U-WER
    false_triggers: int  # list words in the output where the reference has another word or none

    @property
    def total(self) -> ErrorCounts:
        return self.biased + self.unbiased

    @property
    def false_triggers_per_1000_words(self) -> float:
        words = self.biased.ref_words + self.unbiased.ref_words
        return 1000 * self.false_triggers / words if words else float("nan")


def biased_scores(
    utterances: Iterable[Utterance],
    lists: Mapping[str, Collection[str]],
    aligner: Aligner = align,
) -> BiasedScores:
    """B-WER, U-WER and false triggers.

    Args:
      lists: utterance id -> words that count as biased there: the words of the list that matter
        for B-WER (in LibriSpeech's lists the rare words of the reference), or the whole list.
        Phrases count word by word.
    """
    biased, unbiased, triggers = ErrorCounts(), ErrorCounts(), 0
    for utterance in utterances:
        words = {word for entry in lists.get(utterance.utt_id, ()) for word in entry.split()}
        for ref, hyp in aligner(utterance.ref, utterance.hyp or []):
            counts = _one_pair(ref, hyp)
            if (ref if ref != EPS else hyp) in words:
                biased += counts
            else:
                unbiased += counts
            triggers += hyp != ref and hyp in words
    return BiasedScores(biased, unbiased, triggers)


def _one_pair(ref: str, hyp: str) -> ErrorCounts:
    return ErrorCounts(
        ref_words=int(ref != EPS),
        ins=int(ref == EPS),
        dels=int(hyp == EPS),
        subs=int(ref != hyp and EPS not in (ref, hyp)),
    )


# ---- biasing lists in the form common for LibriSpeech ------------------------------------------


@dataclass(frozen=True)
class BiasingEntry:
    """One line ``id <tab> reference <tab> ["rare words"] <tab> ["biasing list"]``."""

    utt_id: str
    ref: str
    rare: List[str]  # words of the reference that the list is meant to help
    words: List[str]  # the list: rare words and distractors


def read_biasing_lists(
    path: Pathlike, log: Optional[ProblemLog] = None
) -> Dict[str, BiasingEntry]:
    """Utterance id -> entry.  Without a fourth column the list is that of rare words."""
    log = ProblemLog() if log is None else log
    entries: Dict[str, BiasingEntry] = {}
    for number, line in read_lines(path, log):
        fields = line.split("\t")
        lists = [_word_list(field) for field in fields[2:4]]
        if len(fields) < 3 or any(words is None for words in lists):
            log.add('not id, reference, ["words"], ["list"]', where(path, number), line[:60])
        elif fields[0].strip() in entries:
            log.add("repeated utterance", where(path, number), fields[0])
        else:
            utt_id = fields[0].strip()
            entries[utt_id] = BiasingEntry(utt_id, fields[1].strip(), lists[0], lists[-1])
    return entries


def _word_list(text: str) -> Optional[List[str]]:
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return None


def write_biasing_lists(path: Pathlike, entries: Iterable[BiasingEntry]) -> None:
    lines = (
        f"{e.utt_id}\t{' '.join(e.ref.split())}\t{json.dumps(e.rare, ensure_ascii=False)}"
        f"\t{json.dumps(e.words, ensure_ascii=False)}\n"
        for e in entries
    )
    write_text(path, "".join(lines))


def rare_words(texts: Iterable[str], num_common: int) -> List[str]:
    """All words of ``texts`` but the ``num_common`` most frequent, most frequent first."""
    counts = Counter(word for text in texts for word in text.split())
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return ordered[num_common:]


def make_biasing_lists(
    refs: Mapping[str, str],
    rare: Collection[str],
    num_distractors: int,
    *,
    seed: int = 0,
) -> List[BiasingEntry]:
    """Lists for any corpus: the rare words of each reference and random others.

    Args:
      refs: utterance id -> reference text.
      rare: words that count as rare; the distractors are drawn from them too.

    The list of an utterance depends on the seed and its id only, not on the others.

    Raises:
      InputError: fewer rare words than distractors asked for.
    """
    pool = sorted(set(rare))
    known = frozenset(pool)
    entries = []
    for utt_id, ref in refs.items():
        own = list(dict.fromkeys(word for word in ref.split() if word in known))
        if len(pool) - len(own) < num_distractors:
            raise InputError(
                f"{utt_id}: {num_distractors} distractors wanted, but only {len(pool) - len(own)} "
                "rare words are not in its reference; ask for fewer or give more words"
            )
        generator = random.Random(f"{seed} {utt_id}")
        drawn = generator.sample(pool, num_distractors + len(own))
        others = [word for word in drawn if word not in own][:num_distractors]
        words = own + others
        generator.shuffle(words)
        entries.append(BiasingEntry(utt_id, ref, own, words))
    return entries
