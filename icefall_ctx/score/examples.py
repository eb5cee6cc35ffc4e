"""A turn in which context made the difference: what was said before, and both outputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterable, List, Optional, Sequence, Tuple, Union

from icefall_ctx.data.conversation import ConversationIndex
from icefall_ctx.errors import InputError
from icefall_ctx.score.wer import EPS, Utterance, align, count_utterance

NUM_BEFORE = 3  # turns shown before the chosen one
NO_OUTPUT = "(no output)"


@dataclass(frozen=True)
class Line:
    """One earlier turn: what was said, and what the context model had understood of it."""

    speaker: str
    ref: List[str]
    hyp: Optional[List[str]]


@dataclass(frozen=True)
class Example:
    """Attributes:
    before: the turns before, oldest first.
    rescued: words that context brought back, of the reference.
    said_before: those of ``rescued`` that occur in ``before``: what context can have told.
    """

    utt_id: str
    speaker: str
    ref: List[str]
    baseline: Optional[List[str]]
    context: Optional[List[str]]
    before: List[Line]
    rescued: List[str]
    said_before: List[str]
    gain: int  # errors fewer than the baseline's

    @property
    def rank(self) -> Tuple[int, int, int, str]:
        """Sorts the clearest example first: right now, by words said before, by few others."""
        wrong = count_utterance(Utterance(self.utt_id, self.ref, self.context)).errors
        return (wrong - len(self.said_before), -self.gain, len(self.ref), self.utt_id)

    def text(self) -> str:
        """Some lines for people; what was understood of an earlier turn only where it differs."""
        lines = [f"A turn where context made the difference ({self.utt_id}):"]
        for line in self.before:
            lines.append(f"  {line.speaker:<12} said        {' '.join(line.ref)}")
            if line.hyp != line.ref:
                lines.append(f"  {'':<12} understood  {_words(line.hyp)}")
        lines.append(f"  {self.speaker:<12} said        {' '.join(self.ref)}")
        lines.append(f"  {'':<12} baseline    {_words(self.baseline)}")
        lines.append(f"  {'':<12} context     {_words(self.context)}")
        return "\n".join(lines)


def _words(hyp: Optional[Sequence[str]]) -> str:
    return NO_OUTPUT if hyp is None else " ".join(hyp) or "(nothing)"


def _right(utterance: Utterance) -> List[str]:
    """The reference words that were recognised."""
    return [ref for ref, hyp in align(utterance.ref, utterance.hyp or []) if ref == hyp != EPS]


def _more(words: Iterable[str], than: Sequence[str]) -> List[str]:
    """``words`` without one occurrence of each of ``than``."""
    left = list(than)
    result = []
    for word in words:
        if word in left:
            left.remove(word)
        else:
            result.append(word)
    return result


def find_examples(
    baseline: Sequence[Utterance],
    context: Sequence[Utterance],
    index: ConversationIndex,
    num_before: int = NUM_BEFORE,
) -> List[Example]:
    """Turns that the context model recognised with fewer errors, the clearest first.

    Args:
      baseline, context: outputs for the same references.
      index: the turns with their links; their own texts are not used.

    Raises:
      InputError: the two differ in utterances or references.
    """
    by_id = {utterance.utt_id: utterance for utterance in context}
    found = []
    for before in baseline:
        after = by_id.get(before.utt_id)
        if after is None or after.ref != before.ref:
            raise InputError(
                f"{before.utt_id}: the two systems were scored against different references"
            )
        gain = count_utterance(before).errors - count_utterance(after).errors
        if gain > 0:
            found.append(_example(before, after, by_id, index, num_before, gain))
    return sorted(found, key=lambda example: example.rank)


def _example(
    baseline: Utterance,
    context: Utterance,
    by_id: Dict[str, Utterance],
    index: ConversationIndex,
    num_before: int,
    gain: int,
) -> Example:
    earlier = index.history(baseline.utt_id, num_before)
    lines = [
        Line(turn.speaker or "", by_id[turn.utt_id].ref, by_id[turn.utt_id].hyp)
        for turn in earlier
        if turn.utt_id in by_id
    ]
    rescued = _more(_right(context), _right(baseline))
    told = {word for line in lines for word in line.ref}
    return Example(
        baseline.utt_id,
        index[baseline.utt_id].speaker or "",
        baseline.ref,
        baseline.hyp,
        context.hyp,
        lines,
        rescued,
        [word for word in rescued if word in told],
        gain,
    )


def helped_turn(
    baseline: Sequence[Utterance], context: Sequence[Utterance], linked: Union[str, Path]
) -> str:
    """The clearest example as text, or a line that says that there is none.

    Args:
      linked: manifest of linked supervisions, or of cuts, that holds these utterances.
    """
    examples = find_examples(baseline, context, ConversationIndex.from_manifests(linked))
    if not examples:
        return "No turn was recognised with fewer errors by the context model."
    return examples[0].text()
