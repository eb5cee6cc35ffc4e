"""Entries of the word memory for a training batch, and the tokens that they help with (B5)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Dict, List, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from icefall_ctx.models.memory_entries import EntryTokens
from icefall_ctx.text.splitting import WordSplitter

Ids = Tuple[int, ...]
MAX_WORDS = 3  # of an entry (B5)
TRIES = 10  # draws for every distractor wanted, before there are fewer of them


@dataclass
class SampledMemory:
    """Attributes:
    entries: the memory of a batch, L >= 1.
    labels: (N, U+1), for every target the entry that it is a part of, 1 .. L; else 0.
    """

    entries: EntryTokens
    labels: Tensor

    def to(self, device: torch.device) -> "SampledMemory":
        entries = EntryTokens(self.entries.tokens.to(device), self.entries.lens.to(device))
        return SampledMemory(entries, self.labels.to(device))


class Sentence:
    """Token ids and where their words are."""

    def __init__(self, tokens: Sequence[int], split: WordSplitter) -> None:
        self.tokens = tuple(tokens)
        self.words = split(self.tokens)

    def phrase(self, first: int, count: int) -> Ids:
        """The ids of ``count`` words from word number ``first`` on."""
        return self.tokens[self.words[first][0] : self.words[first + count - 1][1]]

    def phrases(self) -> Set[Ids]:
        """All of up to ``MAX_WORDS`` words."""
        size = len(self.words)
        return {
            self.phrase(first, count)
            for first in range(size)
            for count in range(1, min(MAX_WORDS, size - first) + 1)
        }

    def labels(self, index: Dict[Ids, int]) -> List[int]:
        """For every token and the end the entry it is a part of; the longest entry that begins
        at a word wins, and none begins inside another."""
        labels = [0] * (len(self.tokens) + 1)
        first = 0
        while first < len(self.words):
            longest = min(MAX_WORDS, len(self.words) - first)
            counts = (n for n in range(longest, 0, -1) if self.phrase(first, n) in index)
            count = next(counts, 0)
            if count:
                start, end = self.words[first][0], self.words[first + count - 1][1]
                labels[start:end] = [index[self.phrase(first, count)]] * (end - start)
            first += max(1, count)
        return labels


class MemorySampler:
    """Draws the memory of a batch.

    Entries are phrases of one to ``max_words`` whole words: some of the batch's own targets,
    without overlap, and distractors of other sentences that do not occur in the batch.  Where a
    phrase of one target occurs in another target too, it is labelled there as well.

    Args:
      pieces: of the tokenizer.
      pool: token ids of training sentences, for distractors and for how rare words are.
      size: entries of a batch; fewer if the pool does not hold so many.
      empty: share of batches without a relevant entry.
      span_rate: probability that an entry begins at a word.
      rare_rate: the same for a word that is rare in the pool.
      rare_count: a word that the pool has at most so often is rare, and one that it lacks.
      rare_distractors: share of the distractors that begin at a rare word.  Where the words to be
        taught are names, the memory has to tell names from names.
      max_words: of an entry.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        pool: Sequence[Sequence[int]],
        size: int = 200,
        empty: float = 0.1,
        span_rate: float = 0.15,
        rare_rate: float = 0.15,
        rare_count: int = 2,
        rare_distractors: float = 0.0,
        max_words: int = MAX_WORDS,
    ) -> None:
        self.split = WordSplitter(pieces)
        self.pool = [s for s in (Sentence(ids, self.split) for ids in pool) if s.words]
        places = [(s, i) for s in self.pool for i in range(len(s.words))]
        words = Counter(s.phrase(i, 1) for s, i in places)
        self.common = {word for word, count in words.items() if count > rare_count}
        self.rare_places = []  # where distractors can begin at a rare word, if some shall
        if rare_distractors:
            self.rare_places = [(s, i) for s, i in places if s.phrase(i, 1) not in self.common]
        self.max_words = max_words
        self.size, self.empty = size, empty
        self.span_rate, self.rare_rate = span_rate, rare_rate
        self.rare_distractors = rare_distractors if self.rare_places else 0.0

    def sample(self, tokens: Tensor, lens: Tensor, rng: random.Random) -> SampledMemory:
        """The memory for targets (N, U) of ``lens`` tokens, not all empty."""
        rows = zip(tokens.tolist(), lens.tolist())
        sentences = [Sentence(row[:length], self.split) for row, length in rows]
        spoken = set().union(*(s.phrases() for s in sentences))
        relevant: List[Ids] = []
        if rng.random() >= self.empty:
            relevant = self._relevant(sentences, rng)
        entries = relevant + self._distractors(self.size - len(relevant), spoken, rng)
        if not entries:  # a pool without any other phrase
            entries = [max(spoken)]
        rng.shuffle(entries)
        index = {ids: number for number, ids in enumerate(entries, start=1)}
        labels = [torch.tensor(s.labels(index)) for s in sentences]
        padded = pad_sequence(labels, batch_first=True)
        missing = tokens.size(1) + 1 - padded.size(1)
        return SampledMemory(
            EntryTokens.from_lists(entries), torch.nn.functional.pad(padded, (0, missing))
        )

    def _relevant(self, sentences: Sequence[Sentence], rng: random.Random) -> List[Ids]:
        """Phrases of the batch, at most half of the memory."""
        chosen: Dict[Ids, None] = {}
        for sentence in sentences:
            first = 0
            while first < len(sentence.words):
                rare = sentence.phrase(first, 1) not in self.common
                if rng.random() < (self.rare_rate if rare else self.span_rate):
                    count = min(rng.randint(1, self.max_words), len(sentence.words) - first)
                    chosen[sentence.phrase(first, count)] = None
                    first += count
                else:
                    first += 1
        some = list(chosen)
        rng.shuffle(some)
        return some[: max(1, self.size // 2)]

    def _distractors(self, count: int, spoken: Set[Ids], rng: random.Random) -> List[Ids]:
        """Up to ``count`` phrases of the pool that the batch does not hold."""
        found: Dict[Ids, None] = {}
        for _ in range(TRIES * count if self.pool else 0):
            if len(found) == count:
                break
            if rng.random() < self.rare_distractors:
                sentence, first = rng.choice(self.rare_places)
            else:
                sentence = rng.choice(self.pool)
                first = rng.randrange(len(sentence.words))
            phrase = sentence.phrase(
                first, min(rng.randint(1, self.max_words), len(sentence.words) - first)
            )
            if phrase not in spoken:
                found[phrase] = None
        return list(found)
