"""The names of ``--method``, and what each search reads."""

from __future__ import annotations

CTC_METHODS = ("ctc-greedy", "ctc-prefix-beam")
LATTICE_METHODS = (
    "1best",
    "nbest",
    "nbest-oracle",
    "nbest-rescoring",
    "whole-lattice-rescoring",
    "attention-decoder",
    "lstm-lm",
)
METHODS = ("beam", *CTC_METHODS, *LATTICE_METHODS)


def uses_decoder(method: str) -> bool:
    """Whether the attention decoder has a say, and with it text history and word memory."""
    return method in ("beam", "attention-decoder", "lstm-lm")


def uses_lm(method: str) -> bool:
    """Whether an LSTM language model is read."""
    return method in ("beam", "lstm-lm")
