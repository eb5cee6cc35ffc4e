"""What a model is given: audio, targets, and the history of every utterance."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, List, Optional, Sequence, Tuple, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

Record = TypeVar("Record")

MIN_FRAMES = 7  # of features; the fewest that leave one frame after the encoder's subsampling


def to_device(record: Record, device: torch.device) -> Record:
    """A copy of a dataclass with its tensors, also those of nested dataclasses, on ``device``."""

    def move(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(device, non_blocking=True)
        if dataclasses.is_dataclass(value):
            return to_device(value, device)
        if isinstance(value, list) and value and dataclasses.is_dataclass(value[0]):
            return [to_device(item, device) for item in value]
        return value

    changes = {f.name: move(getattr(record, f.name)) for f in dataclasses.fields(record)}
    return dataclasses.replace(record, **changes)


def length_mask(lens: Tensor, size: int) -> Tensor:
    """True at the first ``lens`` positions: (..., ) -> (..., size)."""
    return torch.arange(size, device=lens.device) < lens.unsqueeze(-1)


@dataclass
class TokenHistory:
    """The sentences before each utterance, oldest first, the nearest in the last column.

    Attributes:
      tokens: (N, S, W) token ids without ``<sos/eos>``, padded with 0.
      lens: (N, S) tokens of each sentence; 0 where there is none.
      same_speaker: (N, S) True where the speaker of the utterance itself said it.
    """

    tokens: Tensor
    lens: Tensor
    same_speaker: Tensor

    @property
    def mask(self) -> Tensor:
        """(N, S, W), True at real tokens."""
        return length_mask(self.lens, self.tokens.size(2))

    @property
    def has_history(self) -> Tensor:
        """(N,), True where there is any token of history."""
        return self.lens.sum(dim=1) > 0

    @classmethod
    def from_lists(
        cls,
        sentences: Sequence[Sequence[Sequence[int]]],
        same_speaker: Optional[Sequence[Sequence[bool]]] = None,
        max_sentences: int = 2,
        max_tokens: int = 100,
    ) -> "TokenHistory":
        """Cap each history in sentences and in tokens, newest kept, and pad.

        Args:
          sentences: for each utterance its earlier turns, oldest first.  Empty ones take no place.
          same_speaker: for each of them, whether the utterance's speaker said it; default False.
        """
        capped = []
        for i, history in enumerate(sentences):
            flags = same_speaker[i] if same_speaker is not None else [False] * len(history)
            capped.append(cap_history(list(zip(history, flags)), max_sentences, max_tokens))
        depth = max([len(history) for history in capped] + [1])
        width = max([len(s) for history in capped for s, _ in history] + [1])
        tokens = torch.zeros(len(capped), depth, width, dtype=torch.long)
        lens = torch.zeros(len(capped), depth, dtype=torch.long)
        same = torch.zeros(len(capped), depth, dtype=torch.bool)
        for i, history in enumerate(capped):
            for column, (sentence, flag) in enumerate(history, start=depth - len(history)):
                tokens[i, column, : len(sentence)] = torch.tensor(sentence)
                lens[i, column] = len(sentence)
                same[i, column] = flag
        return cls(tokens, lens, same)


def cap_history(
    history: List[Tuple[Sequence[int], bool]], max_sentences: int, max_tokens: int
) -> List[Tuple[List[int], bool]]:
    """The newest ``max_sentences`` non-empty sentences and of them the newest ``max_tokens``.

    The oldest sentence kept may lose its beginning.  What is kept is always a suffix of the
    history, so a longer history never keeps less.
    """
    kept: List[Tuple[List[int], bool]] = []
    room = max_tokens
    for sentence, flag in reversed(history):
        if len(kept) == max_sentences or room <= 0:
            break
        tail = list(sentence)[-room:]
        if tail:
            kept.append((tail, flag))
            room -= len(tail)
    return kept[::-1]


@dataclass
class HistoryLevel:
    """Distinct turns run through the encoder together, one level after the other.

    Attributes:
      rows: (M,) rows of :attr:`AudioHistory.features`.
      previous: (M,) index into the level before, whose scores this turn receives; -1 for none.
    """

    rows: Tensor
    previous: Tensor


@dataclass
class AudioHistory:
    """Audio of the turns before each utterance, every distinct turn loaded once (A2).

    Attributes:
      features: (M, T', C) features without SpecAugment.
      lens: (M,) frames.
      levels: oldest first; a turn that several utterances need with the same past is in a
        level once.
      previous: (N,) index into the last level for each utterance of the batch; -1 for none.
      speaker: (M, D) speaker features, or None.
    """

    features: Tensor
    lens: Tensor
    levels: List[HistoryLevel]
    previous: Tensor
    speaker: Optional[Tensor] = None

    @classmethod
    def from_chains(
        cls,
        features: Sequence[Tensor],
        chains: Sequence[Sequence[int]],
        speaker: Optional[Sequence[Tensor]] = None,
    ) -> "AudioHistory":
        """Build the levels from one chain an utterance.

        Args:
          features: the distinct turns, each (T', C).
          chains: for each utterance the rows of its earlier turns, oldest first, -1 for absent;
            all of one length, the depth.  The first turn of a conversation is its own past
            (paper: "repeat this sentence"): its chain ends in a row with its own clean audio.
        """
        depth = max((len(chain) for chain in chains), default=0)
        levels, before = [], {}
        for level in range(depth):
            keys = {}
            for chain in chains:
                key = tuple(chain[: level + 1])
                if key[-1] >= 0:
                    keys.setdefault(key, len(keys))
            rows = torch.tensor([key[-1] for key in keys], dtype=torch.long)
            previous = torch.tensor([before.get(key[:-1], -1) for key in keys], dtype=torch.long)
            levels.append(HistoryLevel(rows, previous))
            before = keys
        last = torch.tensor([before.get(tuple(chain), -1) for chain in chains], dtype=torch.long)
        return cls(
            features=pad_sequence(list(features), batch_first=True),
            lens=torch.tensor([f.size(0) for f in features]),
            levels=levels,
            previous=last,
            speaker=torch.stack(list(speaker)) if speaker is not None else None,
        )


@dataclass
class Batch:
    """N utterances.

    Attributes:
      utt_ids: un-augmented utterance ids (``supervision.custom["utt_id"]``).
      cut_ids: ids of the cuts, with the suffix of their augmentation.
      conv_ids, turns, speakers, sides: where each utterance stands.
      texts: normalised transcripts.
      features: (N, T, C), padded with zeros.
      feature_lens: (N,) frames.
      tokens: (N, U) targets without ``<sos/eos>``, padded with 0.
      token_lens: (N,).
      history: text of earlier turns, or None if the model does not read it.
      audio_history: audio of earlier turns, or None if the model does not hear it.
      speaker_features: (N, D) i-vectors, or None.
      durations: seconds of audio of each utterance.
    """

    utt_ids: List[str]
    cut_ids: List[str]
    conv_ids: List[str]
    turns: List[int]
    speakers: List[str]
    sides: List[str]
    texts: List[str]
    features: Tensor
    feature_lens: Tensor
    tokens: Tensor
    token_lens: Tensor
    history: Optional[TokenHistory] = None
    audio_history: Optional[AudioHistory] = None
    speaker_features: Optional[Tensor] = None
    durations: List[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.utt_ids)

    def to(self, device: torch.device) -> "Batch":
        return to_device(self, device)
