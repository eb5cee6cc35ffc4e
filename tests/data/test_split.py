"""Parts hold whole conversations, in the shares asked for."""

import pytest
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet

from icefall_ctx.data.conversation import link_conversations
from icefall_ctx.data.split import distribute, parse_parts, recordings_of, split_conversations
from icefall_ctx.data.validation import validate_links
from icefall_ctx.errors import InputError


def calls(number, turns=4, speaker=lambda call, side: f"s{call}-{side}"):
    return link_conversations(
        SupervisionSegment(
            id=f"c{call}-{i}",
            recording_id=f"c{call}",
            start=float(i),
            duration=1.0,
            channel=i % 2,
            speaker=speaker(call, i % 2),
        )
        for call in range(number)
        for i in range(turns)
    )


def test_shares_of_speech_are_met_and_no_conversation_is_cut():
    turns = calls(100)
    shares = parse_parts("train:0.8,dev:0.1,test:0.1")
    part_of = split_conversations(turns, shares, seed=3)
    parts = distribute(turns, part_of, list(shares))
    assert {name: len(members) for name, members in parts.items()} == {
        "train": 320,
        "dev": 40,
        "test": 40,
    }
    for members in parts.values():
        assert validate_links(members).counts == {}
    assert sorted(t.id for m in parts.values() for t in m) == sorted(t.id for t in turns)


def test_seed_decides_and_input_order_does_not():
    turns = list(calls(30))
    first = split_conversations(turns, parse_parts("3"), seed=1)
    assert split_conversations(turns[::-1], parse_parts("3"), seed=1) == first
    assert split_conversations(turns, parse_parts("3"), seed=2) != first


def test_every_part_gets_something():
    part_of = split_conversations(calls(3), parse_parts("train:0.98,dev:0.01,test:0.01"))
    assert sorted(part_of.values()) == ["dev", "test", "train"]
    with pytest.raises(InputError, match="2 conversations"):
        split_conversations(calls(2), parse_parts("3"))


def test_conversations_of_one_recording_stay_together():
    turns = link_conversations(
        [
            SupervisionSegment(id=f"r{r}-{i}", recording_id=f"r{r}", start=i * 10.0, duration=1.0)
            for r in range(4)
            for i in range(5)
        ],
        max_gap=2.0,
    )
    part_of = split_conversations(turns, parse_parts("2"))
    assert len(part_of) == 20
    for r in range(4):
        names = [f"r{r}"] + [f"r{r}-{i}" for i in range(2, 6)]
        assert len({part_of[name] for name in names}) == 1


def test_disjoint_speakers_also_through_others():
    # a chain: calls 0-1-2 share speakers by pairs, and so do 3-4-5
    turns = calls(6, speaker=lambda call, side: f"{call // 3}-{call + side}")
    part_of = split_conversations(turns, parse_parts("2"), disjoint_speakers=True)
    assert len({part_of[f"c{i}"] for i in (0, 1, 2)}) == 1
    assert {part_of["c0"], part_of["c3"]} == {"1", "2"}
    with pytest.raises(InputError, match="share no speaker"):
        split_conversations(turns, parse_parts("3"), disjoint_speakers=True)


def test_recordings_and_cuts_follow():
    turns = calls(4)
    recordings = RecordingSet.from_recordings(
        Recording(id=f"c{i}", sources=[], sampling_rate=8000, num_samples=40000, duration=5.0)
        for i in range(5)  # the last one has no turn
    )
    part_of = split_conversations(turns, parse_parts("2"))
    parts = distribute(turns, part_of, ["1", "2"])
    split = recordings_of(recordings, parts)
    for part, members in parts.items():
        assert {r.id for r in split[part]} == {t.recording_id for t in members}
    cuts = [
        MonoCut(f"cut-{turn.id}", start=0, duration=5, channel=0, supervisions=[turn])
        for turn in turns
    ]
    split = distribute(CutSet.from_cuts(cuts), part_of, ["1", "2"])
    assert {p: [c.id for c in m] for p, m in split.items()} == {
        p: [f"cut-{t.id}" for t in m] for p, m in parts.items()
    }
    both = MonoCut("both", 0, 5, 0, supervisions=[parts["1"][0], parts["2"][0]])
    with pytest.raises(InputError, match="both: has supervisions in 2 parts"):
        distribute([both], part_of, ["1", "2"])


def test_unlinked_or_unknown_is_refused():
    plain = SupervisionSegment(id="u", recording_id="r", start=0, duration=1)
    with pytest.raises(InputError, match="u: has no conversation links"):
        split_conversations([plain], {"a": 1.0})
    with pytest.raises(InputError, match="in no part"):
        distribute(SupervisionSet.from_segments([plain]), {}, ["a"])


@pytest.mark.parametrize(
    "text", ["", "0", "train", "train:x", "train:0.5", "a:0.5,a:0.5", "a:1.5,b:-0.5", "a/b:1"]
)
def test_unusable_parts(text):
    with pytest.raises(InputError, match="parts"):
        parse_parts(text)


def test_equal_parts_are_numbered():
    assert parse_parts("2") == {"1": 0.5, "2": 0.5}
    assert list(parse_parts("10"))[:2] == ["01", "02"]
