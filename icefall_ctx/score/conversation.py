"""Two systems on the same conversations."""

from __future__ import annotations

from typing import Sequence

from icefall_ctx.errors import InputError
from icefall_ctx.score.bootstrap import PairedDifference, paired_difference
from icefall_ctx.score.wer import (
    Aligner,
    Utterance,
    align,
    conversation_totals,
    count_utterance,
)


def paired_bootstrap(
    a: Sequence[Utterance],
    b: Sequence[Utterance],
    *,
    resamples: int = 10000,
    seed: int = 0,
    aligner: Aligner = align,
) -> PairedDifference:
    """``rate(b) - rate(a)``, its interval and p-value, resampling conversations.

    Raises:
      InputError: the two sets differ in utterance ids or references.
    """
    by_id = {utterance.utt_id: utterance for utterance in b}
    ordered = []
    for utterance in a:
        other = by_id.pop(utterance.utt_id, None)
        if other is None or other.ref != utterance.ref:
            raise InputError(
                f"{utterance.utt_id}: the two systems were scored against different references; "
                "score both against the same file first"
            )
        ordered.append(other)
    if by_id:
        raise InputError(f"{next(iter(by_id))}: only in the second system's results")
    errors_a, words = conversation_totals(a, {u.utt_id: count_utterance(u, aligner) for u in a})
    counts_b = {
        u.utt_id: count_utterance(o, aligner) for u, o in zip(a, ordered)
    }  # grouped by the conversations of a, so that both are resampled alike
    errors_b, _ = conversation_totals(a, counts_b)
    return paired_difference(errors_a, errors_b, words, resamples=resamples, seed=seed)
