"""Orders of batches, for training and for decoding."""

import random
from collections import Counter

import pytest
from lhotse import MonoCut, SupervisionSegment

from icefall_ctx.data.sampler import TrainingSampler, TurnSynchronousSampler, bucket_batches
from icefall_ctx.errors import InputError


def a_cut(conv_id, turn, duration=1.0):
    utt_id = f"{conv_id}-{turn}"
    custom = {"utt_id": utt_id, "conv_id": conv_id, "turn": turn, "prev": []}
    supervision = SupervisionSegment(utt_id, conv_id, 0.0, duration, text="a", custom=custom)
    return MonoCut(utt_id, 0.0, duration, 0, supervisions=[supervision])


def durations_of(n, seed=0):
    rng = random.Random(seed)
    return [rng.uniform(0.3, 9.0) for _ in range(n)]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 50, 333])
@pytest.mark.parametrize("buckets", [1, 5, 1000])
def test_every_utterance_is_in_one_batch_within_the_limit(n, buckets):
    durations = durations_of(n)
    batches = bucket_batches(durations, 30.0, buckets, seed=1, epoch=2)
    assert sorted(i for batch in batches for i in batch) == list(range(n))
    for batch in batches:
        assert batch
        padded = max(durations[i] for i in batch) * len(batch)
        assert padded <= 30.0 or len(batch) == 1


def test_buckets_save_padding():
    durations = durations_of(500)

    def padded(buckets):
        batches = bucket_batches(durations, 60.0, buckets)
        return sum(max(durations[i] for i in b) * len(b) for b in batches)

    assert padded(20) < 1.1 * sum(durations) < padded(1)


def test_order_depends_on_seed_and_epoch_only():
    durations = durations_of(100)
    first = bucket_batches(durations, 20.0, seed=1, epoch=1)
    assert first == bucket_batches(durations, 20.0, seed=1, epoch=1)
    assert first != bucket_batches(durations, 20.0, seed=1, epoch=2)
    assert first != bucket_batches(durations, 20.0, seed=2, epoch=1)


def test_longer_than_the_limit_is_a_batch_of_its_own():
    assert [0] in bucket_batches([50.0, 1.0, 1.0], 10.0)
    assert sorted(map(len, bucket_batches([50.0, 1.0, 1.0], 10.0, num_buckets=2))) == [1, 2]


def test_more_buckets_do_not_make_small_batches():
    durations = durations_of(200)
    fewest = sum(durations) / 60.0
    assert len(bucket_batches(durations, 60.0, num_buckets=20)) <= 1.2 * fewest + 1


@pytest.mark.parametrize("limit, buckets", [(0, 3), (-1, 3), (float("nan"), 3), (10, 0)])
def test_impossible_settings_are_refused(limit, buckets):
    with pytest.raises(InputError, match="--max-duration|--num-buckets"):
        bucket_batches([1.0], limit, buckets)


def test_sampler_continues_from_a_position():
    cuts = [a_cut("c", t, d) for t, d in enumerate(durations_of(40))]
    ids = [[c.id for c in batch] for batch in TrainingSampler(cuts, 20.0, seed=3, epoch=2)]
    for position in range(len(ids) + 1):
        rest = TrainingSampler(cuts, 20.0, seed=3, epoch=2, position=position)
        assert len(rest) == len(ids) - position
        assert [[c.id for c in batch] for batch in rest] == ids[position:]


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_processes_share_an_epoch(world_size):
    cuts = [a_cut("c", t, d) for t, d in enumerate(durations_of(40))]
    shares = [
        list(TrainingSampler(cuts, 20.0, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert len({len(share) for share in shares}) == 1, "all make the same number of updates"
    assert sorted(c.id for s in shares for b in s for c in b) == sorted(c.id for c in cuts)
    prints = {
        TrainingSampler(cuts, 20.0, rank=r, world_size=world_size).fingerprint
        for r in range(world_size)
    }
    assert len(prints) == 1


def test_fingerprint_tells_changed_cuts_and_sizes():
    cuts = [a_cut("c", t) for t in range(9)]
    base = TrainingSampler(cuts, 3.0).fingerprint
    assert base != TrainingSampler(cuts, 4.0).fingerprint
    assert base != TrainingSampler(cuts[:-1], 3.0).fingerprint


LENGTHS = [5, 1, 3, 12, 2, 2, 7]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_turns_come_in_order_and_once(batch_size):
    cuts = [a_cut(f"c{i}", t) for i, n in enumerate(LENGTHS) for t in range(n)]
    random.Random(0).shuffle(cuts)
    batches = list(TurnSynchronousSampler(cuts, batch_size))
    said = Counter()
    for batch in batches:
        conversations = [c.supervisions[0].custom["conv_id"] for c in batch]
        assert len(set(conversations)) == len(batch) <= batch_size
        for cut in batch:
            custom = cut.supervisions[0].custom
            assert custom["turn"] == said[custom["conv_id"]]
            said[custom["conv_id"]] += 1
    assert said == {f"c{i}": n for i, n in enumerate(LENGTHS)}


def test_long_conversations_start_first_and_batches_stay_full():
    cuts = [a_cut(f"c{i}", t) for i, n in enumerate(LENGTHS) for t in range(n)]
    batches = list(TurnSynchronousSampler(cuts, 3))
    # 32 turns, of which one conversation has 12: no order takes fewer than 12 batches
    assert len(batches) == 12
    assert {c.id for c in batches[0]} == {"c3-0", "c6-0", "c0-0"}


def test_turn_numbers_with_gaps_keep_their_order():
    cuts = [a_cut("c", t) for t in (10, 2, 9)]
    batches = TurnSynchronousSampler(cuts, 4)
    assert [[c.id for c in b] for b in batches] == [["c-2"], ["c-9"], ["c-10"]]


def test_unlinked_cuts_are_refused():
    cut = MonoCut("x", 0, 1, 0, supervisions=[SupervisionSegment("x", "r", 0, 1)])
    with pytest.raises(InputError, match="x: has no conv_id; run icefall-ctx link"):
        TurnSynchronousSampler([cut])
    with pytest.raises(InputError, match="--batch-size 0"):
        TurnSynchronousSampler([], 0)
    assert list(TurnSynchronousSampler([], 2)) == []


def test_a_conversation_ends_with_its_last_turn():
    turns = {"a": 3, "b": 1, "c": 2}
    cuts = [a_cut(conv_id, turn) for conv_id, n in turns.items() for turn in range(n)]
    sampler = TurnSynchronousSampler(cuts, 2)
    over = [conv_id for ended in sampler.endings() for conv_id in ended]
    assert sorted(over) == ["a", "b", "c"]
    for k, ended in enumerate(sampler.endings()):
        later = {cut.supervisions[0].recording_id for b in sampler.batches[k + 1 :] for cut in b}
        assert not later & set(ended)
