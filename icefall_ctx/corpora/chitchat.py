"""The Chit-Chat Dataset as conversation text for language models.

PyPI package ``chitchat-dataset`` (MIT): 7,168 typed conversations of two people.  Its
``dataset.json`` maps a conversation id to ``{"messages": [[{"text": ...}, ...], ...]}``: a list of
turns, each the messages that one person sent in a row.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from icefall_ctx.corpora.json_segments import load_json, parse_json
from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where

Conversation = List[str]  # its turns
MEMBER = "chitchat_dataset/dataset.json"  # inside of the wheel
HOW_TO_GET = "pip download --no-deps chitchat-dataset, and give the wheel that it writes"


def read_chitchat(
    path: Pathlike,
    normalize: Callable[[str], str] = str,
    problems: Optional[ProblemLog] = None,
) -> Dict[str, Conversation]:
    """Conversations by id, a turn a sentence.

    Args:
      path: the wheel, or ``dataset.json`` out of it.
      normalize: rules for every turn; turns without words after them are left out.

    Raises:
      InputError: no file, no JSON, or nothing that looks like this dataset.
    """
    problems = ProblemLog() if problems is None else problems
    conversations: Dict[str, Conversation] = {}
    for conv_id, entry in _load(Path(path)).items():
        try:
            texts = [" ".join(m["text"] for m in turn) for turn in entry["messages"]]
        except (TypeError, KeyError) as error:
            problems.add("no messages with text", where(path), f"{conv_id}: {error!r}")
            continue
        turns = [turn for turn in map(normalize, texts) if turn.strip()]
        if turns:
            conversations[conv_id] = turns
    if not conversations:
        raise InputError(f"{path}: no conversation in it; {HOW_TO_GET}")
    return conversations


def _load(path: Path) -> Dict[str, Any]:
    try:
        if not zipfile.is_zipfile(path):
            return load_json(path, dict)
        with zipfile.ZipFile(path) as wheel:
            return parse_json(wheel.read(MEMBER), path, dict)
    except KeyError as error:
        raise InputError(f"{path}: not the dataset, it has no {MEMBER}; {HOW_TO_GET}") from error
    except InputError as error:
        raise InputError(f"{error}; {HOW_TO_GET}") from error


def split_by_id(
    conversations: Dict[str, Conversation], held_out: int
) -> Dict[str, List[Conversation]]:
    """``train``, ``dev`` and ``test``; the last two of ``held_out`` conversations each, by their
    ids, which are random."""
    if len(conversations) <= 2 * held_out:
        raise InputError(
            f"{len(conversations)} conversations, {held_out} wanted for dev and test each"
        )
    ordered = [conversations[conv_id] for conv_id in sorted(conversations)]
    return {
        "dev": ordered[:held_out],
        "test": ordered[held_out : 2 * held_out],
        "train": ordered[2 * held_out :],
    }
