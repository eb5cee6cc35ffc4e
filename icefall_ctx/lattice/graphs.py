"""Decoding graphs: H (CTC topology), L, G, LG and HLG, as icefall compiles them.

Every graph carries the fingerprints of its vocabularies as attributes, ``token_fingerprint``
and ``word_fingerprint``; composing or decoding across different ones is refused.
"""

from __future__ import annotations

from typing import Iterable, List, Tuple

import torch

from icefall_ctx.errors import InputError
from icefall_ctx.lattice.k2_import import k2
from icefall_ctx.lattice.lexicon import Lexicon, Spelling

FULL_TOPOLOGY_LIMIT = 100  # tokens; V^2 arcs: 500 tokens took 80 times as long as modified


def ctc_topology(vocab_size: int, topology: str = "auto", fingerprint: str = "") -> k2.Fsa:
    """H: from frames (0 is blank) to tokens, ``aux_labels``.

    Args:
      vocab_size: number of network columns V, blank included.
      topology: ``full`` demands a blank between equal tokens, as CTC training does, with V^2
        arcs; ``modified`` does not, with about 3 V; ``auto`` takes full up to 100 tokens.
      fingerprint: of the tokenizer.
    """
    if topology not in ("auto", "full", "modified"):
        raise InputError(f"topology {topology!r}: choose auto, full or modified")
    modified = topology == "modified" or (
        topology == "auto" and vocab_size > FULL_TOPOLOGY_LIMIT
    )
    h = k2.arc_sort(k2.ctc_topo(max_token=vocab_size - 1, modified=modified))
    h.token_fingerprint = fingerprint
    return h


def token_graph(vocab_size: int, topology: str = "auto", fingerprint: str = "") -> k2.Fsa:
    """H for decoding without a lexicon: its words are the tokens."""
    h = ctc_topology(vocab_size, topology, fingerprint)
    h.tokens = h.aux_labels.clone()
    h.word_fingerprint = fingerprint
    h.lm_scores = torch.zeros_like(h.scores)
    return h


def lexicon_fst(lexicon: Lexicon, disambiguate: bool) -> k2.Fsa:
    """L: from tokens to words, repeated for ever; ``L_disambig`` with disambiguation symbols.

    The word is on the first arc of its spelling.  With ``disambiguate`` ``#0`` may be read
    between words, which is where G backs off.
    """
    spellings = lexicon.disambiguated()[0] if disambiguate else lexicon.spellings
    # State 0 begins, a word starts in 1 and ends in 2: a separator is only between words.
    # Without a separator all three are state 0.
    between = lexicon.separator is not None and not lexicon.separator_optional
    start, after_word = (1, 2) if between else (0, 0)
    arcs = _spelling_arcs(spellings, lexicon.vocab_size, start, after_word)
    if between:
        arcs.append((0, start, 0, 0))
    if lexicon.separator is not None:
        arcs.append((after_word, start, lexicon.separator, 0))
    if disambiguate:
        for state in {0, start, after_word}:
            arcs.append((state, state, lexicon.vocab_size, lexicon.backoff_id))
    final = max(destination for _, destination, _, _ in arcs) + 1
    arcs += [(state, final, -1, -1) for state in {0, after_word}]
    text = "".join(f"{s} {d} {label} {word} 0.0\n" for s, d, label, word in sorted(arcs))
    fst = k2.arc_sort(k2.Fsa.from_str(f"{text}{final}\n", num_aux_labels=1))
    fst.token_fingerprint = lexicon.token_fingerprint
    fst.word_fingerprint = lexicon.word_fingerprint
    return fst


def _spelling_arcs(
    spellings: Iterable[Spelling], vocab_size: int, start: int, after_word: int
) -> List[Tuple[int, int, int, int]]:
    """Arcs (from, to, token, word); states up to ``after_word`` are taken."""
    arcs, next_state = [], after_word + 1
    for word, tokens, k in spellings:
        labels = [*tokens, vocab_size + k] if k else list(tokens)
        state = start
        for i, label in enumerate(labels):
            last = i == len(labels) - 1
            destination = after_word if last else next_state
            arcs.append((state, destination, label, word if i == 0 else 0))
            state, next_state = destination, next_state + (not last)
    return arcs


def compile_hlg(lexicon: Lexicon, g: k2.Fsa, topology: str = "auto") -> k2.Fsa:
    """``H o min(det(L o G))`` with ``tokens``, ``lm_scores`` and both fingerprints.

    Raises :class:`InputError` where G has labels that the lexicon's word list lacks.
    """
    check_word_labels(g, lexicon)
    l_disambig = lexicon_fst(lexicon, disambiguate=True)
    lg = k2.compose(l_disambig, k2.arc_sort(k2.connect(g)))
    lg = k2.connect(k2.determinize(k2.connect(lg)))
    # k2 must not see labels change in place: new tensors only.
    lg.labels = lg.labels.masked_fill(lg.labels >= lexicon.vocab_size, 0)
    lg.aux_labels = _without_backoff(lg.aux_labels, lexicon.backoff_id)
    lg = k2.connect(k2.remove_epsilon(lg))
    lg.aux_labels = _drop_zeros(lg.aux_labels)
    lg = k2.arc_sort(lg)
    h = ctc_topology(lexicon.vocab_size, topology)
    hlg = k2.arc_sort(k2.connect(k2.compose(h, lg, inner_labels="tokens")))
    if hlg.num_arcs == 0:
        raise InputError("HLG is empty: no sentence of G can be spelled with the lexicon")
    hlg.lm_scores = hlg.scores.clone()  # L and H have no weights: all of it comes from G
    hlg.token_fingerprint = lexicon.token_fingerprint
    hlg.word_fingerprint = lexicon.word_fingerprint
    return hlg


def _without_backoff(aux_labels, backoff_id: int):
    if isinstance(aux_labels, torch.Tensor):
        return aux_labels.masked_fill(aux_labels >= backoff_id, 0)
    values = aux_labels.values
    return k2.RaggedTensor(aux_labels.shape, values.masked_fill(values >= backoff_id, 0))


def _drop_zeros(aux_labels):
    """Ragged words of an arc without the epsilons."""
    if isinstance(aux_labels, torch.Tensor):
        return aux_labels
    return aux_labels.remove_values_eq(0)


def check_word_labels(g: k2.Fsa, lexicon: Lexicon) -> None:
    """Refuse a G of another word list, by fingerprint and by its largest label."""
    fingerprint = getattr(g, "word_fingerprint", lexicon.word_fingerprint)
    if fingerprint != lexicon.word_fingerprint:
        raise InputError(
            f"G of word list {fingerprint}, lexicon of word list {lexicon.word_fingerprint}: "
            "compile G again with this words.txt"
        )
    largest = int(g.labels.max()) if g.num_arcs else 0
    if largest >= len(lexicon.words):
        raise InputError(
            f"G has the word id {largest}, but words.txt ends at {len(lexicon.words) - 1}: "
            "compile G again with this words.txt"
        )


def rescoring_g(g: k2.Fsa, lexicon: Lexicon) -> k2.Fsa:
    """G as an acceptor for rescoring lattices: an FsaVec of one, ``#0`` as epsilon, arc-sorted.

    This is what ``G_4_gram.pt`` holds and :class:`icefall_ctx.lattice.backoff.BackoffG` reads.
    """
    check_word_labels(g, lexicon)
    labels = g.labels.masked_fill(g.labels >= lexicon.backoff_id, 0)
    acceptor = k2.Fsa(g.arcs)
    acceptor.labels = labels
    acceptor = k2.arc_sort(k2.Fsa.from_fsas([acceptor]))
    acceptor.word_fingerprint = lexicon.word_fingerprint
    return acceptor


def check_graph(graph: k2.Fsa, vocab_size: int, token_fingerprint: str, place: str) -> None:
    """Refuse a graph of another tokenizer, or with a label beyond the network's columns.

    k2 itself reads beyond the matrix then, without a word.
    """
    own = getattr(graph, "token_fingerprint", token_fingerprint)
    if own != token_fingerprint:
        raise InputError(
            f"{place}: graph of vocabulary {own}, model of vocabulary {token_fingerprint}: "
            "compile it again with the tokenizer of the model"
        )
    largest = int(graph.labels.max()) if graph.num_arcs else 0
    if largest >= vocab_size:
        raise InputError(
            f"{place}: label {largest} in a graph for a network with {vocab_size} columns"
        )
