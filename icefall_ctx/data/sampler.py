"""Which utterances make a batch: shuffled for training, turn by turn for decoding.

Both orders are lists made before the first batch is read, functions of the cuts, the seed and
the epoch alone.  A position in such a list is all that a checkpoint has to remember, so a
resumed run meets exactly the batches that an uninterrupted one would, however many worker
processes had read ahead.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict, deque
from typing import Deque, Dict, Iterator, List, Sequence

from lhotse.cut import Cut
from torch.utils.data import Sampler

from icefall_ctx.data.history import link_of
from icefall_ctx.errors import InputError


def bucket_batches(
    durations: Sequence[float],
    max_duration: float,
    num_buckets: int = 20,
    seed: int = 0,
    epoch: int = 0,
) -> List[List[int]]:
    """Cut a shuffled set into batches of similar duration.

    Utterances are sorted by duration into ``num_buckets`` groups of equal size; each group is
    shuffled; the groups in a row are cut wherever the padded batch would exceed
    ``max_duration``; then the batches are shuffled.  Every utterance is in exactly one batch.

    Args:
      durations: seconds of each utterance.
      max_duration: seconds of audio a batch, padding included.  An utterance longer than this
        is a batch of its own.
      num_buckets: more buckets than utterances are as many as there are utterances.

    Returns:
      The batches, as indices into ``durations``.
    """
    if not max_duration > 0:
        raise InputError(f"--max-duration {max_duration} is not positive; give seconds of audio")
    if num_buckets < 1:
        raise InputError(f"--num-buckets {num_buckets} is less than 1")
    if not durations:
        return []
    rng = random.Random(f"{seed}/{epoch}")
    order = sorted(range(len(durations)), key=lambda i: (durations[i], i))
    # Smaller buckets would put the same utterances together in every epoch.
    full_batches = max(1, int(sum(durations) / max_duration))
    num_buckets = min(num_buckets, full_batches, len(order))
    size = -(-len(order) // num_buckets)
    shuffled: List[int] = []
    for begin in range(0, len(order), size):
        bucket = order[begin : begin + size]
        rng.shuffle(bucket)
        shuffled += bucket
    # Cut across the buckets: a remainder of each would be a small batch of its own.
    batches = list(_cut_batches(shuffled, durations, max_duration))
    rng.shuffle(batches)
    return batches


def _cut_batches(
    order: Sequence[int], durations: Sequence[float], max_duration: float
) -> Iterator[List[int]]:
    batch: List[int] = []
    longest = 0.0
    for i in order:
        longest_now = max(longest, durations[i])
        if batch and longest_now * (len(batch) + 1) > max_duration:
            yield batch
            batch, longest_now = [], durations[i]
        batch.append(i)
        longest = longest_now
    if batch:
        yield batch


class TrainingSampler(Sampler):
    """Batches of one epoch for one process, each a list of cuts.

    With several processes each takes every ``world_size``-th batch.  All processes get the same
    number of items: where the batches do not divide, the last processes get an empty list.

    Attributes:
      position: batches of this process that an earlier run has already used.
    """

    def __init__(
        self,
        cuts: Sequence[Cut],
        max_duration: float,
        num_buckets: int = 20,
        seed: int = 0,
        epoch: int = 1,
        position: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        super().__init__(cuts)
        self.cuts = cuts
        plan = bucket_batches([c.duration for c in cuts], max_duration, num_buckets, seed, epoch)
        self.fingerprint = plan_fingerprint(cuts, plan)
        plan += [[] for _ in range(-len(plan) % world_size)]
        self.plan = plan[rank::world_size]
        self.position = position

    def __len__(self) -> int:
        return max(0, len(self.plan) - self.position)

    def __iter__(self) -> Iterator[List[Cut]]:
        for batch in self.plan[self.position :]:
            yield [self.cuts[i] for i in batch]


def plan_fingerprint(cuts: Sequence[Cut], plan: Sequence[Sequence[int]]) -> str:
    """Eight hex digits that change with any cut, its place, or the size of a batch."""
    crc = 0
    for batch in plan:
        crc = zlib.crc32("\t".join(cuts[i].id for i in batch).encode() + b"\n", crc)
    return f"{crc:08x}"


class TurnSynchronousSampler(Sampler):
    """Turn k of up to ``batch_size`` conversations together, every utterance exactly once.

    A batch holds at most one turn of a conversation, and turns of a conversation come in
    order, so whatever a decoder has said in a conversation so far can be history of the batch.
    Longest conversations start first, and a conversation that ends makes room for the next, so
    that few are left to run alone at the end.

    Args:
      cuts: one utterance each, with ``custom["conv_id"]`` and ``custom["turn"]`` in their
        supervision; of any order.
      batch_size: conversations side by side.
    """

    def __init__(self, cuts: Sequence[Cut], batch_size: int = 16) -> None:
        super().__init__(cuts)
        if batch_size < 1:
            raise InputError(f"--batch-size {batch_size} is less than 1")
        conversations: Dict[str, List[Cut]] = defaultdict(list)
        for cut in cuts:
            conversations[link_of(cut, "conv_id")].append(cut)
        for turns in conversations.values():
            turns.sort(key=lambda cut: (link_of(cut, "turn"), cut.id))
        self.batches = _turn_batches(
            sorted(conversations.values(), key=lambda turns: (-len(turns), turns[0].id)),
            batch_size,
        )

    def endings(self) -> List[List[str]]:
        """The conversations whose last turn is in each batch."""
        last = {
            link_of(cut, "conv_id"): number
            for number, batch in enumerate(self.batches)
            for cut in batch
        }
        found: List[List[str]] = [[] for _ in self.batches]
        for conv_id, number in last.items():
            found[number].append(conv_id)
        return found

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[List[Cut]]:
        return iter(self.batches)


def _turn_batches(conversations: List[List[Cut]], batch_size: int) -> List[List[Cut]]:
    waiting = deque(deque(turns) for turns in conversations)
    running: List[Deque[Cut]] = []
    batches = []
    while waiting or running:
        while waiting and len(running) < batch_size:
            running.append(waiting.popleft())
        batches.append([turns.popleft() for turns in running])
        running = [turns for turns in running if turns]
    return batches
