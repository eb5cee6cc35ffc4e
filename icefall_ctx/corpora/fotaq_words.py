"""A test of words never heard in training, made by taking them out of the training part."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Dict, List, Sequence, Set

import numpy as np
from lhotse import RecordingSet, SupervisionSegment, SupervisionSet

from icefall_ctx.corpora.manifests import Manifests


def name_like(supervisions: Sequence[SupervisionSegment]) -> Set[str]:
    """Words (upper case) that the written lines always capitalise, also inside a sentence."""
    capital: Set[str] = set()
    small: Set[str] = set()
    for supervision in supervisions:
        # The first word of a sentence says nothing, nor does a line written in capitals.
        for match in re.finditer(r"(?<=[a-z,] )[A-Za-z']+", supervision.custom["original"]):
            word = match[0].strip("'")
            if word[:1].isupper() and not word.isupper():
                capital.add(word.upper())
            elif word.islower():
                small.add(word.upper())
    return capital - small


def pick_new_words(
    parts: Dict[str, Manifests],
    count: int,
    seed: int,
    occurrences: range = range(3, 31),
    min_speakers: int = 2,
    names_only: bool = True,
) -> List[str]:
    """At most ``count`` words said 3 to 30 times by two or more speakers, sorted.

    ``names_only`` takes those that are written as names: they are what a user would add.
    """
    supervisions = [s for part in ("train", "dev", "test") for s in parts[part]["supervisions"]]
    counts: Counter = Counter()
    speakers: Dict[str, Set[str]] = defaultdict(set)
    for supervision in supervisions:
        for word in supervision.text.split():
            counts[word] += 1
            speakers[word].add(supervision.speaker)
    found = [
        word
        for word in sorted(counts)
        if counts[word] in occurrences and len(speakers[word]) >= min_speakers and len(word) > 2
        and not word.endswith("'S")
    ]
    if names_only:
        names = name_like(supervisions)
        found = [word for word in found if word in names]
    order = np.random.default_rng((seed, 2)).permutation(len(found))[:count]
    return sorted(found[i] for i in order)


def new_word_parts(parts: Dict[str, Manifests], words: Sequence[str]) -> Dict[str, Manifests]:
    """``train_nonew``: train without any sentence with one of ``words`` or its genitive;
    ``newwords``: the sentences of train and test with one of ``words`` itself.

    Sentences of dev stay out of newwords: dev chooses the model.
    """
    wanted = set(words)

    def heard(supervision: SupervisionSegment) -> bool:
        said = (word.removesuffix("'S") for word in supervision.text.split())
        return not wanted.isdisjoint(said)

    train, test = parts["train"]["supervisions"], parts["test"]["supervisions"]
    kept = [s for s in train if not heard(s)]
    new = [s for part in (train, test) for s in part if not wanted.isdisjoint(s.text.split())]
    recordings = {
        recording.id: recording
        for part in ("train", "test")
        for recording in parts[part]["recordings"]
    }
    return {
        name: {
            "recordings": RecordingSet.from_recordings(recordings[s.recording_id] for s in chosen),
            "supervisions": SupervisionSet.from_segments(chosen),
        }
        for name, chosen in (("train_nonew", kept), ("newwords", new))
    }
