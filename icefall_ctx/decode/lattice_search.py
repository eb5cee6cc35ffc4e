"""A method over lattices as one of the searches of a recogniser.

Needs k2 only where one is made (:mod:`icefall_ctx.decode.lattice_run`); importing this is free.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from torch import Tensor

from icefall_ctx.data.batch import Batch
from icefall_ctx.decode.beam import NEVER, Hypothesis
from icefall_ctx.decode.ctc import without_special

if TYPE_CHECKING:
    from icefall_ctx.lattice.decode import LatticeDecoder, LatticeResult


class LatticeSearch:
    """Runs a :class:`~icefall_ctx.lattice.decode.LatticeDecoder` turn by turn.

    Args:
      decoder: over graphs and models of the recogniser's vocabulary.
      method: one of its methods.
      scales: what ranks, by name; ``source`` says where they come from.

    Attributes:
      found: results by utterance since :meth:`start`, without their lattices; None before, so
        that a call that never ends keeps nothing.
      lattice_dir: where lattices are written as soon as they are there; None: nowhere.
    """

    def __init__(
        self, decoder: LatticeDecoder, method: str, scales: Dict[str, float], source: str
    ) -> None:
        self.decoder, self.method = decoder, method
        self.found: Optional[Dict[str, LatticeResult]] = None
        self.lattice_dir: Optional[Path] = None
        self.use(scales, source)

    def start(self, lattice_dir: Optional[Path] = None, keep_nbest: bool = False) -> None:
        """Begin a test set, or with ``keep_nbest`` the dev set that scales are tuned on."""
        self.found, self.lattice_dir = {}, lattice_dir
        self.decoder.use(replace(self.decoder.options, keep_nbest=keep_nbest))

    def use(self, scales: Dict[str, float], source: str) -> None:
        """Rank by these scales from now on; ``hlg`` is that of G inside HLG."""
        self.scales, self.source = dict(scales), source
        options = self.decoder.options
        first = scales.get("hlg", options.first_lm_scale)
        self.decoder.use(replace(options, first_lm_scale=first, scales=self.scales))

    def search(
        self, batch: Batch, decoder_state: Any, log_probs: Tensor, lens: Tensor, lm_state: Any
    ) -> List[List[Hypothesis]]:
        """The best hypothesis of each utterance.

        Args:
          decoder_state: of the attention decoder, history and memory included; None without.
          log_probs: (N, T, V) log-softmax of the CTC head.
          lens: (N,) frames.
          lm_state: what the LSTM language model remembers of each conversation, or None.
        """
        if self.decoder.lexicon is None:
            log_probs = without_special(log_probs)
        results = self.decoder.decode(
            log_probs,
            lens,
            batch.utt_ids,
            self.method,
            decoder_state=decoder_state,
            lm_state=lm_state,
            references=batch.texts if self.method == "nbest-oracle" else None,
        )
        if self.found is not None:
            for result in results:
                self._keep(result)
        return [[as_hypothesis(result)] for result in results]

    def _keep(self, result: LatticeResult) -> None:
        if self.lattice_dir is not None and result.lattice is not None:
            from icefall_ctx.lattice.fsa_files import save_lattice

            save_lattice(self.lattice_dir, result.utt_id, result.lattice)
        kept = result.hypotheses if self.decoder.options.keep_nbest else result.hypotheses[:1]
        self.found[result.utt_id] = replace(result, lattice=None, hypotheses=kept)


def as_hypothesis(result: LatticeResult) -> Hypothesis:
    """What sessions and result files take; unknown words are no history."""
    tokens = [token for token in result.tokens if token not in NEVER]
    scores = result.hypotheses[0].scores if result.hypotheses else {}
    att = scores.get("attention")
    if att is None:  # Hypothesis.confidence is the geometric mean over tokens and end
        att = math.log(max(confidence(result), 1e-12)) * (len(tokens) + 1)
    acoustic, lm = scores.get("acoustic", 0.0), scores.get("lm", 0.0)
    return Hypothesis(tokens, result.score, att, acoustic, lm, result.text)


def confidence(result: LatticeResult) -> float:
    """Mean posterior of the words, in [0, 1]; 0 without words or without a lattice."""
    words = result.words
    return sum(word.confidence for word in words) / len(words) if words else 0.0
