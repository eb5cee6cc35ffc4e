"""The self-check after every compile: perfect network output must give the expected words."""

from __future__ import annotations

import random
from typing import List, Sequence

import torch
from torch import Tensor

from icefall_ctx.errors import InputError
from icefall_ctx.lattice.intersect import Beams, dense_lattices, is_empty
from icefall_ctx.lattice.k2_import import k2
from icefall_ctx.lattice.lexicon import BACKOFF, EPSILON, UNK_WORD, Lexicon
from icefall_ctx.lattice.nbest import best_hypothesis

_MISS = -30.0  # log-probability of every other token: no language model outweighs it


def perfect_log_probs(tokens: Sequence[int], vocab_size: int) -> Tensor:
    """(1, 2U+1, V): blank, token, blank, token, .. blank, each nearly certain."""
    path = [0]
    for token in tokens:
        path += [token, 0]
    scores = torch.full((1, len(path), vocab_size), _MISS)
    scores[0, torch.arange(len(path)), torch.tensor(path)] = 0.0
    return scores.log_softmax(dim=-1)


def self_check(hlg: k2.Fsa, lexicon: Lexicon, sentences: int = 50, seed: int = 0) -> None:
    """Decode perfect input of single words and of sentences of three.

    A word may come out as another of the same spelling.  Raises :class:`InputError` naming the
    first sentence that comes out wrong: a word that G lacks, or a broken lexicon.
    """
    rng = random.Random(seed)
    words = range(lexicon.ids[UNK_WORD] + 1, lexicon.ids[BACKOFF])
    singles = [[word] for word in rng.sample(words, min(sentences, len(words)))]
    for sentence in singles + [rng.choices(words, k=3) for _ in range(sentences // 5)]:
        tokens = lexicon.spell(sentence)
        got = _decode(hlg, tokens, lexicon)
        if got is None or lexicon.spell(got) != tokens:
            expected = " ".join(lexicon.words[w] for w in sentence)
            actual = "nothing" if got is None else repr(_names(got, lexicon))
            raise InputError(
                f"self-check of HLG: perfect input for {expected!r} decodes to {actual}; is every "
                "word of words.txt in G?"
            )


def _names(words: Sequence[int], lexicon: Lexicon) -> str:
    return " ".join(lexicon.words[w] for w in words if lexicon.words[w] != EPSILON)


def _decode(hlg: k2.Fsa, tokens: List[int], lexicon: Lexicon) -> List[int] | None:
    log_probs = perfect_log_probs(tokens, lexicon.vocab_size)
    lens = torch.tensor([log_probs.size(1)])
    lattice = dense_lattices(hlg, log_probs, lens, Beams())[0]
    return None if is_empty(lattice) else list(best_hypothesis(lattice, 1.0).words)
