"""Lattice decoding on the CTC head, by every method that needs k2.

A :class:`LatticeDecoder` is configured once with graphs and models of one vocabulary.  Each
utterance of a batch then goes its own way: a lattice that is empty or too large makes that
utterance alone fall back, and its result and a warning name it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import kaldialign
import torch
from torch import Tensor

from icefall_ctx.errors import InputError
from icefall_ctx.lattice.backoff import BackoffG
from icefall_ctx.lattice.graphs import check_graph
from icefall_ctx.lattice.intersect import (
    Beams,
    dense_lattices,
    is_empty,
    partial_graph,
    prune_to,
)
from icefall_ctx.lattice.k2_import import k2, require_k2
from icefall_ctx.lattice.lexicon import UNK_WORD, Lexicon
from icefall_ctx.lattice.nbest import Hypothesis, best_hypothesis, nbest
from icefall_ctx.lattice.rescore import (
    add_attention_scores,
    add_lstm_scores,
    add_ngram_scores,
    rescore_lattice,
)
from icefall_ctx.lattice.words import WordTime, word_confidences, word_frames
from icefall_ctx.models.lm import LmState, LstmLm
from icefall_ctx.text.splitting import WordSplitter
from icefall_ctx.text.tokenizer import UNK_ID, Tokenizer

# method -> what it needs beside the graph
METHODS: Dict[str, Tuple[str, ...]] = {
    "1best": (),
    "nbest": (),
    "nbest-oracle": ("references",),
    "nbest-rescoring": ("g",),
    "whole-lattice-rescoring": ("g",),
    "attention-decoder": ("decoder",),
    "lstm-lm": ("lm",),
}


@dataclass(frozen=True)
class LatticeOptions:
    """Pruning, sampling and score scales; tune ``scales`` on dev, never on test.

    Attributes:
      first_lm_scale: of G inside HLG during the first pass; n-best lists are drawn with it.
      scales: of ``lm`` (n-gram), ``attention`` and ``lstm`` scores beside the acoustic one, with
        which a second pass ranks.
      keep_nbest: n-best lists also where the method needs the best path only, to tune scales on.
      depth: arcs a frame of a lattice; the best are kept.  Where the network is unsure, hundreds
        are within the output beam, and the second pass pays for each.
      max_arcs: of a lattice, first pass or rescored; larger ones are pruned, the utterance named.
      subsampling_seconds: seconds an output frame, for word times.
    """

    beams: Beams = Beams()
    num_paths: int = 100
    nbest_scale: float = 0.5
    first_lm_scale: float = 1.0
    scales: Mapping[str, float] = field(
        default_factory=lambda: {"acoustic": 1.0, "lm": 1.0, "attention": 1.0, "lstm": 0.5}
    )
    depth: int = 30
    max_arcs: int = 200_000
    keep_nbest: bool = False
    subsampling_seconds: float = 0.04


@dataclass
class LatticeResult:
    """What was recognised in one utterance.

    Attributes:
      fallback: empty, or what was done instead: ``partial``, ``pruned``, ``ctc-greedy``,
        ``no frames``.
      hypotheses: those compared, for tuning scales; the best under the scales used is first.
      lattice: the (rescored) lattice, an FsaVec of one, or None.
    """

    utt_id: str
    text: str
    tokens: List[int]
    score: float
    fallback: str = ""
    words: List[WordTime] = field(default_factory=list)
    hypotheses: List[Hypothesis] = field(default_factory=list)
    lattice: Optional[Any] = None


class LatticeDecoder:
    """All lattice methods over one graph.

    Args:
      graph: HLG, or H of :func:`icefall_ctx.lattice.graphs.token_graph`.
      tokenizer: of the model; graphs of another vocabulary are refused.
      lexicon: what HLG was compiled from; None for H, whose words are the tokens.
      g: ``G_4_gram.pt`` for n-gram rescoring.
      decoder: the attention decoder.
      lm: LSTM LM; load it with the tokenizer's fingerprint.
    """

    def __init__(
        self,
        graph: k2.Fsa,
        tokenizer: Tokenizer,
        lexicon: Optional[Lexicon] = None,
        *,
        g: Optional[k2.Fsa] = None,
        decoder: Optional[torch.nn.Module] = None,
        lm: Optional[LstmLm] = None,
        options: LatticeOptions = LatticeOptions(),
    ):
        require_k2()
        check_graph(graph, tokenizer.vocab_size, tokenizer.fingerprint, "decoding graph")
        self.tokenizer, self.lexicon = tokenizer, lexicon
        self.decoder, self.lm = decoder, lm
        self.g = BackoffG(g) if g is not None else None
        self.graph = graph
        self._split = WordSplitter(tokenizer.pieces)
        self.use(options)
        self._check_words()
        if lm is not None and lm.vocab_size != tokenizer.vocab_size:
            raise InputError(
                f"language model of {lm.vocab_size} tokens, model of {tokenizer.vocab_size}: "
                "train it with the tokenizer of the model"
            )

    def use(self, options: LatticeOptions) -> None:
        """Decode with other options from now on, with tuned scales for example."""
        self.options = options
        self.graph = _with_lm_scores(self.graph, options.first_lm_scale)
        self._partial: Optional[k2.Fsa] = None

    def _check_words(self) -> None:
        """Lexicon, HLG and G must share one word list."""
        own = self.lexicon.word_fingerprint if self.lexicon else self.tokenizer.fingerprint
        if self.lexicon and self.lexicon.token_fingerprint != self.tokenizer.fingerprint:
            raise InputError(
                f"lexicon of vocabulary {self.lexicon.token_fingerprint}, model of vocabulary "
                f"{self.tokenizer.fingerprint}: write the lexicon with the tokenizer of the model"
            )
        others = {"decoding graph": getattr(self.graph, "word_fingerprint", "")}
        if self.g is not None:
            others["G"] = self.g.word_fingerprint
        for name, fingerprint in others.items():
            if fingerprint and fingerprint != own:
                raise InputError(
                    f"{name} of word list {fingerprint}, but words.txt is {own}: compile it again"
                )

    def decode(
        self,
        log_probs: Tensor,
        lens: Tensor,
        utt_ids: Sequence[str],
        method: str = "1best",
        *,
        decoder_state: Optional[Any] = None,
        lm_state: Optional[LmState] = None,
        references: Optional[Sequence[str]] = None,
    ) -> List[LatticeResult]:
        """Decode a batch; the results are those of each utterance alone.

        Args:
          log_probs: (N, T, V) log-softmax of the CTC head.
          lens: (N,) frames.
          method: a name in METHODS.
          decoder_state: ``decoder.prepare(...)`` of this batch, history and memory included.
          lm_state: (.., N, ..) what the LSTM LM remembers of each conversation.
          references: texts, for ``nbest-oracle`` alone.
        """
        self._check_method(method, decoder_state, references)
        if log_probs.size(2) != self.tokenizer.vocab_size:
            raise InputError(
                f"network with {log_probs.size(2)} columns, vocabulary of "
                f"{self.tokenizer.vocab_size} tokens"
            )
        log_probs, lens = log_probs.detach().float().cpu(), lens.cpu()
        results = []
        for i, utt_id in enumerate(utt_ids):
            # One at a time: a batch would be no faster on CPU, and one flat utterance may
            # need a gigabyte.
            lattice, fallback = self._first_pass(log_probs[i : i + 1, : lens[i]])
            if lattice is None:
                result = self._greedy(log_probs[i, : lens[i]], fallback)
            else:
                reference = references[i] if references is not None else None
                state = (decoder_state, lm_state, i)
                result = self._second_pass(lattice, method, state, reference)
                result.fallback = fallback or result.fallback
            result.utt_id = utt_id
            if result.fallback:
                logging.warning(f"{utt_id}: lattice fallback: {result.fallback}")
            results.append(result)
        return results

    def _check_method(self, method: str, decoder_state: Any, references: Any) -> None:
        if method not in METHODS:
            raise InputError(f"method {method!r}: choose one of {', '.join(METHODS)}")
        has = {
            "g": self.g is not None,
            "decoder": self.decoder is not None and decoder_state is not None,
            "lm": self.lm is not None,
            "references": references is not None,
        }
        for need in METHODS[method]:
            if not has[need]:
                raise InputError(f"method {method} needs {need}, which was not given")

    def _first_pass(self, log_probs: Tensor) -> Tuple[Optional[k2.Fsa], str]:
        """The lattice of (1, T, V), else that of the graph that may end anywhere, else none."""
        if log_probs.size(1) == 0:
            return None, "no frames"
        lattice = self._lattice(self.graph, log_probs)
        limit = min(self.options.max_arcs, self.options.depth * log_probs.size(1))
        if not is_empty(lattice):
            pruned = lattice.num_arcs > self.options.max_arcs
            return prune_to(lattice, limit), "pruned" if pruned else ""
        if self._partial is None:
            self._partial = partial_graph(self.graph)
        lattice = self._lattice(self._partial, log_probs)
        if is_empty(lattice):
            return None, "ctc-greedy"
        return prune_to(lattice, limit), "partial"

    def _lattice(self, graph: k2.Fsa, log_probs: Tensor) -> Optional[k2.Fsa]:
        lens = torch.tensor([log_probs.size(1)])
        return dense_lattices(graph, log_probs, lens, self.options.beams)[0]

    def _second_pass(
        self, lattice: k2.Fsa, method: str, state: Tuple, reference: Optional[str]
    ) -> LatticeResult:
        options = self.options
        lm_scale, pruned = options.first_lm_scale, False
        # The recipes of icefall rescore the lattice with G before the neural models read it.
        if method in ("whole-lattice-rescoring", "attention-decoder", "lstm-lm") and self.g:
            # N-best lists do not depend on the scales that then rank them: what was tuned on
            # such lists holds for them.
            whole = method == "whole-lattice-rescoring"
            new_scale = options.scales.get("lm", 1.0) if whole else lm_scale
            lattice, pruned = rescore_lattice(
                lattice, self.g, lm_scale, new_scale, options.max_arcs
            )
            lm_scale = new_scale
        if method in ("1best", "whole-lattice-rescoring") and not options.keep_nbest:
            hypotheses = [best_hypothesis(lattice, lm_scale)]
        else:
            hypotheses = nbest(lattice, options.num_paths, options.nbest_scale, lm_scale)
        scales = self._rescore(hypotheses, method, state, lm_scale)
        if method == "nbest-oracle":
            spoken = self.tokenizer.canonical(reference)  # capitals, say, that no path can have
            hypotheses.sort(key=lambda h: word_errors(spoken, self.text(h)))
        else:
            hypotheses.sort(key=lambda h: -h.total(scales))
        result = self._result(hypotheses, lattice, scales)
        result.fallback = "pruned" if pruned else ""
        return result

    def _rescore(
        self, hypotheses: List[Hypothesis], method: str, state: Tuple, lm_scale: float
    ) -> Dict[str, float]:
        """Add the scores the method asks for; returns the scales to rank by."""
        decoder_state, lm_state, row = state
        scales = {"acoustic": 1.0, "lm": lm_scale}
        tuned = self.options.scales
        if method == "nbest-rescoring":
            add_ngram_scores(hypotheses, self.g)
        if method in ("nbest-rescoring", "attention-decoder", "lstm-lm"):
            scales["lm"] = tuned.get("lm", 1.0)
        if method in ("attention-decoder", "lstm-lm") and decoder_state is not None:
            add_attention_scores(hypotheses, self.decoder, decoder_state, row)
            scales["attention"] = tuned.get("attention", 1.0)
        if method == "lstm-lm":
            add_lstm_scores(hypotheses, self.lm, lm_state, row)
            scales["lstm"] = tuned.get("lstm", 0.5)
        return scales

    def text(self, hypothesis: Hypothesis) -> str:
        """The words of a hypothesis; an unknown word has no text."""
        if self.lexicon is None:
            return self.tokenizer.decode([t for t in hypothesis.tokens if t != UNK_ID])
        words = (self.lexicon.words[w] for w in hypothesis.words)
        return " ".join(word for word in words if word != UNK_WORD)

    def _result(
        self, hypotheses: List[Hypothesis], lattice: k2.Fsa, scales: Mapping[str, float]
    ) -> LatticeResult:
        best = hypotheses[0]
        return LatticeResult(
            utt_id="",
            text=self.text(best),
            tokens=list(best.tokens),
            score=best.total(scales),
            words=self._word_times(best, lattice),
            hypotheses=hypotheses,
            lattice=lattice,
        )

    def _word_times(self, best: Hypothesis, lattice: k2.Fsa) -> List[WordTime]:
        confidences = word_confidences(lattice, best)
        if self.lexicon is None:
            pieces = self._split(best.tokens)
            names = [self.tokenizer.decode(list(best.tokens[a:b])) for a, b in pieces]
            spans = word_frames(best, pieces)
            # a word is no surer than its least sure piece
            confidences = [min(confidences[a:b]) for a, b in pieces]
        else:
            names = [self.lexicon.words[w] for w in best.words]
            spans = word_frames(best, self.lexicon.token_spans(best.words, best.tokens))
        seconds = self.options.subsampling_seconds
        return [
            WordTime(name, first * seconds, (end - first) * seconds, confidence)
            for name, (first, end), confidence in zip(names, spans, confidences)
        ]

    def _greedy(self, log_probs: Tensor, fallback: str) -> LatticeResult:
        """Best token of each frame, (T, V); repeats and blanks removed."""
        best = log_probs.max(dim=1) if log_probs.size(0) else None
        path = torch.unique_consecutive(best.indices).tolist() if best is not None else []
        tokens = [token for token in path if token > UNK_ID]
        score = float(best.values.sum()) if best is not None else 0.0
        return LatticeResult("", self.tokenizer.decode(tokens), tokens, score, fallback)


def word_errors(reference: str, hypothesis: str) -> int:
    """Substitutions, deletions and insertions between two texts."""
    return kaldialign.edit_distance(reference.split(), hypothesis.split())["total"]


def _with_lm_scores(graph: k2.Fsa, lm_scale: float) -> k2.Fsa:
    """A copy of ``graph`` with scaled LM scores; icefall's HLG has them in ``scores`` only."""
    lm_scores = getattr(graph, "lm_scores", None)
    copy = graph.clone()
    copy.lm_scores = graph.scores.clone() if lm_scores is None else lm_scores.clone()
    copy.scores = copy.lm_scores * lm_scale
    return copy
