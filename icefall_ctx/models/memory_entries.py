"""Entries of the word memory as tensors: encoded together, looked at by every hypothesis."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from icefall_ctx.data.batch import length_mask

SOS_EOS = 1
DUMMY = 0  # column of the entry that means "nothing relevant"


@dataclass
class EntryTokens:
    """Entries as they are encoded: ``<sos/eos> tokens <sos/eos>``.

    Attributes:
      tokens: (L, E), padded with 0.
      lens: (L,), both ends counted.
    """

    tokens: Tensor
    lens: Tensor

    @classmethod
    def from_lists(cls, entries: Sequence[Sequence[int]]) -> "EntryTokens":
        """From token ids without ends; at least one entry."""
        rows = [torch.tensor([SOS_EOS, *ids, SOS_EOS]) for ids in entries]
        return cls(pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows]))

    @property
    def mask(self) -> Tensor:
        """(L, E), True at tokens."""
        return length_mask(self.lens, self.tokens.size(1))


@dataclass
class EncodedMemory:
    """The memory of a batch.  Column 0 is the dummy, column l is entry l.

    Attributes:
      keys: for each block ``d^-1/4 LN(keys W_k)``, (L+1, d).
      values: MEM: for each block ``keys W_v``, (L+1, d); 2MEM: empty.
      tokens: (P,) tokens of all entries, one after the other.
      encoded: (P, d) their encodings Z_enc.
      starts, lens: (L+1,) where each entry stands in them; the dummy has no token.
      bias: (N, L+1), added to the scores: log weights, and -inf where an utterance's list does
        not hold the entry; None if all utterances have all entries with weight 1.
      present: (N,), False where the list of an utterance is empty; None if none is.
      preselect: entries kept after the first block; 0 keeps all.
    """

    keys: List[Tensor]
    values: List[Tensor]
    tokens: Tensor
    encoded: Tensor
    starts: Tensor
    lens: Tensor
    bias: Optional[Tensor] = None
    present: Optional[Tensor] = None
    preselect: int = 0

    def __len__(self) -> int:
        """Entries, without the dummy."""
        return self.lens.numel() - 1

    def select(self, utterances: Tensor) -> "EncodedMemory":
        """For the utterances (M,) of the current N."""
        return replace(
            self,
            bias=None if self.bias is None else self.bias[utterances],
            present=None if self.present is None else self.present[utterances],
        )

    def gather(self, entries: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """Entries (J,) -> tokens (J, E), their encodings (J, E, d) and the mask (J, E)."""
        lens = self.lens[entries]
        mask = length_mask(lens, int(lens.max()))
        places = self.starts[entries].unsqueeze(1) + torch.arange(mask.size(1), device=mask.device)
        places = places.masked_fill(~mask, 0)
        return self.tokens[places].masked_fill(~mask, 0), self.encoded[places], mask


@dataclass
class MemoryScores:
    """Scores of one block.

    Attributes:
      scores: (R, U, C), float32.
      columns: (N, C) the entries that the columns stand for; None: column l is entry l.
    """

    scores: Tensor
    columns: Optional[Tensor] = None

    @property
    def dummy_probability(self) -> Tensor:
        """p(dummy), (R, U)."""
        return self.scores.softmax(dim=-1)[..., DUMMY]

    def choice(self) -> Tensor:
        """The entry of the highest score, (R, U); 0 for none."""
        best = self.scores.argmax(dim=-1)
        if self.columns is None:
            return best
        folded = best.view(self.columns.size(0), -1)
        return self.columns.gather(1, folded).view_as(best)

    def at(self, columns: Optional[Tensor]) -> Tensor:
        """The scores in the given columns (N, C'), from scores of all entries."""
        if columns is None or self.columns is not None:
            return self.scores
        folded = self.scores.view(columns.size(0), -1, self.scores.size(-1))
        index = columns.unsqueeze(1).expand(-1, folded.size(1), -1)
        return folded.gather(2, index).view(*self.scores.shape[:2], -1)

    def best_columns(self, utterances: int, count: int) -> Optional[Tensor]:
        """The dummy and the ``count`` entries that score highest with any row of an utterance,
        (N, count+1); None where that would be all."""
        if count <= 0 or count >= self.scores.size(-1) - 1:
            return None
        highest = self.scores.view(utterances, -1, self.scores.size(-1)).amax(dim=1)
        best = highest[:, 1:].topk(count, dim=1).indices + 1
        return torch.nn.functional.pad(best.sort(dim=1).values, (1, 0), value=DUMMY)
