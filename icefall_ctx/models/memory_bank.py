"""Word lists that change, and the bank in which every entry is encoded once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Dict, Iterable, List, Optional, Sequence, Tuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from icefall_ctx.models.memory import MemoryDecoder
from icefall_ctx.models.memory_entries import EncodedMemory, EntryTokens

Ids = Tuple[int, ...]
ENCODE_AT_ONCE = 1024  # entries a call of the memory encoder
NEVER = float("-inf")


class EntryList:
    """The entries that a conversation, or all of them, may use: token ids -> weight.

    The same ids given twice are one entry; the later weight counts.
    """

    def __init__(self, entries: Iterable[Sequence[int]] = ()) -> None:
        self.weights: Dict[Ids, float] = {}
        self.changes = 0  # removals and new weights; what is added is seen by the length
        for ids in entries:
            self.add(ids)

    def __len__(self) -> int:
        return len(self.weights)

    def __contains__(self, ids: Sequence[int]) -> bool:
        return tuple(ids) in self.weights

    def add(self, ids: Sequence[int], weight: float = 1.0) -> None:
        """Add an entry of at least one token, of a weight above 0."""
        ids = tuple(ids)
        if not ids or not weight > 0.0:
            raise ValueError(f"entry {ids} of weight {weight}: needs a token and a weight above 0")
        self.changes += self.weights.get(ids, weight) != weight
        self.weights[ids] = weight

    def remove(self, ids: Sequence[int]) -> None:
        """Remove an entry that is in the list."""
        del self.weights[tuple(ids)]
        self.changes += 1

    def newest(self, count: int) -> List[Tuple[Ids, float]]:
        """The ``count`` entries added last, oldest of them first."""
        return list(islice(reversed(self.weights.items()), count))[::-1]


class GrowingTensor:
    """Rows that are added at the end, now and then with a quarter of room to spare."""

    def __init__(self, rows: Tensor) -> None:
        self._store, self._size = rows, rows.size(0)

    @property
    def rows(self) -> Tensor:
        return self._store[: self._size]

    def append(self, rows: Tensor) -> None:
        size = self._size + rows.size(0)
        if size > self._store.size(0):
            store = self._store.new_empty(size + size // 4 + 64, *self._store.shape[1:])
            store[: self._size] = self.rows
            self._store = store
        self._store[self._size : size] = rows.to(self._store.dtype)
        self._size = size


@dataclass
class _KnownList:
    """Rows of the bank that an :class:`EntryList` was found in."""

    changes: int
    rows: Tensor  # (L,)
    weights: Tensor  # (L,)


class MemoryBank:
    """Encoded entries of all lists.  What was encoded once is not encoded again.

    Args:
      decoder: in eval mode.
      half: hold the encodings in float16; scores are computed in float32.
      preselect: entries kept after the first block; 0 keeps all.
      capacity: entries held; beyond it those that the current lists do not use are forgotten.

    Attributes:
      encoded: entries encoded so far.
    """

    def __init__(
        self,
        decoder: MemoryDecoder,
        half: bool = False,
        preselect: int = 0,
        capacity: int = 100_000,
    ) -> None:
        self.decoder = decoder
        self.dtype = torch.float16 if half else torch.float32
        self.preselect = preselect
        self.capacity = capacity
        self.encoded = 0
        self._clear()

    @torch.no_grad()
    def _clear(self) -> None:
        dummy = self.decoder.dummy
        keys, values = self.decoder.project(dummy.unsqueeze(0))
        self._keys = [GrowingTensor(k.to(self.dtype)) for k in keys]
        self._values = [GrowingTensor(v.to(self.dtype)) for v in values]
        none = torch.zeros(0, dtype=torch.long, device=dummy.device)
        self._tokens = GrowingTensor(none)
        self._encoded = GrowingTensor(dummy.new_zeros(0, dummy.numel(), dtype=self.dtype))
        self._starts = GrowingTensor(none.new_zeros(1))
        self._lens = GrowingTensor(none.new_zeros(1))
        self._rows: Dict[Ids, int] = {}  # the dummy is row 0
        self._known: WeakKeyDictionary[EntryList, _KnownList] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def bytes_per_entry(self) -> float:
        """Of the entries held now, without room to spare."""
        tensors = [*self._keys, *self._values, self._encoded, self._tokens, self._starts]
        total = sum(t.rows.numel() * t.rows.element_size() for t in tensors)
        return total / max(1, len(self))

    # ------------------------------------------------------------------ filling

    @torch.no_grad()
    def _encode(self, entries: Sequence[Ids]) -> None:
        """Entries that are not in the bank; short ones first, so that little is padded."""
        entries = sorted(dict.fromkeys(entries), key=len)
        for start in range(0, len(entries), ENCODE_AT_ONCE):
            some = entries[start : start + ENCODE_AT_ONCE]
            device = self.decoder.dummy.device
            batch = EntryTokens.from_lists(some)
            memory = self.decoder.encode(
                EntryTokens(batch.tokens.to(device), batch.lens.to(device))
            )
            self._append(some, memory)
        self.encoded += len(entries)

    def _append(self, entries: Sequence[Ids], memory: EncodedMemory) -> None:
        before = self._encoded.rows.size(0)
        for own, new in zip([*self._keys, *self._values], [*memory.keys, *memory.values]):
            own.append(new[1:])
        self._tokens.append(memory.tokens)
        self._encoded.append(memory.encoded)
        self._starts.append(memory.starts[1:] + before)
        self._lens.append(memory.lens[1:])
        for ids in entries:
            self._rows[ids] = len(self._rows) + 1

    def _find(self, source: EntryList) -> _KnownList:
        """The rows of a list; only what was added since the last time is looked up."""
        known = self._known.get(source)
        device = self.decoder.dummy.device
        if known is None or known.changes != source.changes:
            none = torch.zeros(0, device=device)
            known = self._known[source] = _KnownList(source.changes, none.long(), none)
        added = source.newest(len(source) - known.rows.numel())
        missing = [ids for ids, _ in added if ids not in self._rows]
        if missing:
            self._encode(missing)
        if added:
            rows = torch.tensor([self._rows[ids] for ids, _ in added], device=device)
            weights = torch.tensor([weight for _, weight in added], device=device)
            known.rows = torch.cat([known.rows, rows])
            known.weights = torch.cat([known.weights, weights])
        return known

    # ------------------------------------------------------------------ looking

    def memory(self, lists: Sequence[Sequence[EntryList]]) -> Optional[EncodedMemory]:
        """The memory of N utterances, each with the lists it may use; None if all are empty."""
        lists = [tuple(part for part in parts if len(part)) for parts in lists]
        used = {part: self._find(part) for parts in lists for part in parts}
        if not used:
            return None
        in_use = sum(known.rows.numel() for known in used.values())
        if len(self) > max(self.capacity, 2 * in_use):
            self._clear()
            used = {part: self._find(part) for part in used}
        groups = {parts: i for i, parts in enumerate(dict.fromkeys(lists))}
        bias = self._bias(groups, used)
        which = torch.tensor([groups[parts] for parts in lists], device=bias.device)
        present = torch.tensor([bool(parts) for parts in lists], device=bias.device)
        return self._view(bias, which, None if bool(present.all()) else present)

    def _bias(
        self, groups: Dict[Tuple[EntryList, ...], int], used: Dict[EntryList, _KnownList]
    ) -> Tensor:
        """(G, rows of the bank): log weights of each group of lists, -inf for other entries."""
        device = self.decoder.dummy.device
        bias = torch.full((len(groups), len(self) + 1), NEVER, device=device)
        bias[:, 0] = 0.0
        for parts, group in groups.items():
            for part in parts:
                bias[group, used[part].rows] = used[part].weights.log()
        return bias

    def _view(self, bias: Tensor, which: Tensor, present: Optional[Tensor]) -> EncodedMemory:
        """All rows, or, where less than half of them is used, a copy of those."""
        tensors = [t.rows for t in (*self._keys, *self._values, self._starts, self._lens)]
        needed = (bias > NEVER).any(dim=0)
        if 2 * int(needed.sum()) < needed.numel():
            columns = needed.nonzero()[:, 0]
            tensors = [t[columns] for t in tensors]
            bias = bias[:, columns]
        blocks = len(self._keys)
        return EncodedMemory(
            keys=tensors[:blocks],
            values=tensors[blocks:-2],
            tokens=self._tokens.rows,
            encoded=self._encoded.rows,
            starts=tensors[-2],
            lens=tensors[-1],
            bias=bias[which] if bool((bias != 0.0).any()) else None,
            present=present,
            preselect=self.preselect,
        )
