"""Language model text: conversations of sentences, from transcripts and from extra files.

On disk one sentence is one line and a blank line ends a conversation, so that an LM can carry
its state from turn to turn.  The same file serves n-grams (which ignore the blank lines).
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Callable, Dict, Iterable, List, NamedTuple, Sequence, Tuple

from lhotse import SupervisionSegment

from icefall_ctx.errors import InputError, Pathlike, ProblemLog
from icefall_ctx.files import write_text
from icefall_ctx.formats.lines import read_lines
from icefall_ctx.text.tokenizer import Tokenizer

Conversation = List[str]


def conversations_from_supervisions(
    supervisions: Iterable[SupervisionSegment], normalize: Callable[[str], str] = str
) -> List[Conversation]:
    """Texts in the order of the conversation, which linking wrote (``conv_id``, ``turn``).

    Unlinked supervisions go by recording and start.  Empty texts are left out, and so are
    copies by speed perturbation of a turn already seen.
    """
    turns: Dict[str, Dict[Tuple[float, str], str]] = {}
    for supervision in supervisions:
        custom = supervision.custom or {}
        conversation = custom.get("conv_id", supervision.recording_id)
        text = normalize(supervision.text or "").strip()
        if text:
            position = (custom.get("turn", supervision.start), custom.get("utt_id", supervision.id))
            turns.setdefault(conversation, {}).setdefault(position, text)
    return [[texts[p] for p in sorted(texts)] for texts in turns.values()]


def write_lm_text(path: Pathlike, conversations: Iterable[Conversation]) -> None:
    """One sentence a line, a blank line after each conversation."""
    parts = ("\n".join(conversation) + "\n" for conversation in conversations if conversation)
    write_text(path, "\n".join(parts))


def read_lm_text(path: Pathlike) -> List[Conversation]:
    """Conversations of a file; without any blank line all of it is one conversation."""
    conversations: List[Conversation] = []
    last = None
    for number, line in read_lines(path, ProblemLog(strict=True)):
        if last is None or number > last + 1:  # blank lines are skipped by the reader
            conversations.append([])
        conversations[-1].append(line.strip())
        last = number
    if not conversations:
        raise InputError(f"{path}: no text in it")
    return conversations


def word_list(
    conversations: Iterable[Conversation], tokenizer: Tokenizer, min_count: int = 1
) -> List[str]:
    """The words of a text as the tokenizer sees them, that occur at least ``min_count`` times."""
    counts: Counter = Counter()
    for conversation in conversations:
        for sentence in conversation:
            counts.update(tokenizer.canonical(sentence).split())
    return sorted(word for word, count in counts.items() if count >= min_count)


class Contamination(NamedTuple):
    """Test sentences that are also in the LM text."""

    found: List[str]
    total: int


def find_contamination(
    lm_text: Iterable[Conversation],
    test_sentences: Sequence[str],
    normalize: Callable[[str], str] = str.lower,
    min_words: int = 4,
    name: str = "test",
) -> Contamination:
    """Test sentences of at least ``min_words`` words that the LM text holds, with a warning.

    Shorter ones ("yes I do") are in any text.  Of spoken text even some longer ones are found
    by chance; many are a sign that the test set was in the LM data.
    """

    def key(sentence: str) -> str:
        return " ".join(normalize(sentence).split())

    known = {key(sentence) for conversation in lm_text for sentence in conversation}
    long_enough = [s for s in test_sentences if len(key(s).split()) >= min_words]
    found = [sentence for sentence in long_enough if key(sentence) in known]
    if found:
        logging.warning(
            f"{len(found)} of {len(long_enough)} {name} sentences of {min_words} or more words "
            f"are in the language model text, such as {found[0]!r}"
        )
    return Contamination(found, len(long_enough))


def drop_sentences(
    conversations: Iterable[Conversation],
    banned: Iterable[str],
    normalize: Callable[[str], str] = str.lower,
) -> List[Conversation]:
    """The text without these sentences."""
    keys = {" ".join(normalize(sentence).split()) for sentence in banned}
    return [
        [s for s in conversation if " ".join(normalize(s).split()) not in keys]
        for conversation in conversations
    ]
