"""Order of turns, conversations, and what linking refuses."""

import copy

import numpy as np
import pytest
from lhotse import SupervisionSegment, SupervisionSet

from icefall_ctx.data.conversation import link_conversations
from icefall_ctx.data.custom import check_custom, with_custom
from icefall_ctx.errors import InputError


def segment(id, start, recording="call", duration=1.0, channel=0, custom=None, speaker="ann"):
    return SupervisionSegment(
        id=id,
        recording_id=recording,
        start=start,
        duration=duration,
        channel=channel,
        text=f"text of {id}",
        speaker=speaker,
        custom=custom,
    )


def order(linked):
    turns = sorted(linked, key=lambda s: (s.custom["conv_id"], s.custom["turn"]))
    return [turn.id for turn in turns]


def conversations(linked):
    return {turn.id: turn.custom["conv_id"] for turn in linked}


def test_turns_follow_time_as_a_number_over_all_channels():
    linked = link_conversations(
        [
            segment("b-10", 10.0, channel=1),
            segment("a-9", 9.9, channel=0),
            segment("a-100", 100.0, channel=0),
            segment("b-2", 9.95, channel=1, duration=3.0),  # overlaps both
        ]
    )
    assert order(linked) == ["a-9", "b-2", "b-10", "a-100"]
    assert [s.id for s in linked] == ["b-10", "a-9", "a-100", "b-2"]  # the order given stays
    assert [s.channel for s in linked] == [1, 0, 0, 1]
    last = linked[2].custom
    assert last == {
        "utt_id": "a-100",
        "conv_id": "call",
        "turn": 3,
        "prev": ["a-9", "b-2", "b-10"],
    }


def test_ties_go_by_channel_then_by_numbers_in_the_id():
    linked = link_conversations(
        [segment("u-10", 0.0), segment("u-9", 0.0), segment("a", 0.0, channel=1)]
    )
    assert order(linked) == ["u-9", "u-10", "a"]


def test_prev_holds_the_nearest_turns():
    linked = link_conversations([segment(f"u{i}", i) for i in range(12)], num_prev=3)
    assert linked[11].custom["prev"] == ["u8", "u9", "u10"]
    assert linked[0].custom["prev"] == []


def test_conversation_clock_before_recording_clock():
    linked = link_conversations(
        [
            segment("agent", 1.0, "agent-file", custom={"conv_id": "s", "conv_start": 3.0}),
            segment("caller", 2.0, "caller-file", custom={"conv_id": "s", "conv_start": 2.0}),
        ]
    )
    assert order(linked) == ["caller", "agent"]


@pytest.mark.parametrize(
    "rule, expected",
    [
        ("auto", ["x", "day1_s2"]),
        ("recording", ["day1_s1", "day1_s2"]),
        ("field:topic", ["7", "7"]),
        ("field:speaker", ["ann", "ann"]),
        ("pattern:^(day\\d)", ["day1", "day1"]),
        ("id-pattern:-(\\w)$", ["p", "q"]),
    ],
)
def test_rules_for_conversations(rule, expected):
    linked = link_conversations(
        [
            segment("u-p", 0, "day1_s1", custom={"conv_id": "x", "topic": 7}),
            segment("u-q", 1, "day1_s2", custom={"topic": 7}),
        ],
        conversation=rule,
    )
    assert list(conversations(linked).values()) == expected


@pytest.mark.parametrize(
    "rule", ["", "speaker", "field:", "field:nothing", "pattern:(", "pattern:x", "pattern:(z+)"]
)
def test_unusable_rules_are_refused(rule):
    with pytest.raises(InputError):
        link_conversations([segment("u", 0)], conversation=rule)


def test_silence_over_all_channels_starts_a_new_conversation():
    turns = [
        segment("a", 0.0, duration=20.0),
        segment("b", 1.0, channel=1),
        segment("c", 22.0),  # 2 s after a, though 20 s after b
        segment("d", 30.1),  # 7.1 s after c
        segment("e", 36.1),
    ]
    assert conversations(link_conversations(turns, max_gap=5.0)) == dict(
        zip("abcde", ["call", "call", "call", "call-2", "call-2"])
    )
    # 30.1 - 23.0 is a little more than 7.1 in floating point; that is no gap
    assert set(conversations(link_conversations(turns, max_gap=7.1)).values()) == {"call"}


def test_ids_of_split_conversations_are_not_those_of_others():
    linked = link_conversations(
        [segment("a", 0), segment("b", 99), segment("c", 0, "call-2")], max_gap=1
    )
    assert len(set(conversations(linked).values())) == 3


def test_many_contiguous_segments_all_come_out():
    turns = [segment(f"u{i}", round(i * 0.37, 2), duration=0.370001) for i in range(1105)]
    linked = link_conversations(turns, max_gap=0.5)
    assert [s.custom["turn"] for s in linked] == list(range(1105))
    assert len(set(conversations(linked).values())) == 1


def test_the_input_is_not_changed_and_copies_share_nothing():
    turns = [segment("a", 0, custom={"snr": 3.0}), segment("b", 1)]
    before = copy.deepcopy(turns)
    linked = link_conversations(turns)
    assert turns == before
    linked[0].custom["snr"] = 9.0
    linked[1].custom["prev"].append("zzz")
    assert turns == before
    assert link_conversations(turns)[1].custom["prev"] == ["a"]


@pytest.mark.parametrize("preserve_id", [True, False])
def test_repeated_turns_are_noticed(preserve_id):
    once = SupervisionSet.from_segments([segment("a", 0)])
    with pytest.raises(InputError, match="a.*twice"):
        link_conversations(once.repeat(2, preserve_id=preserve_id))


def test_linking_twice_is_refused_unless_asked_for():
    linked = link_conversations([segment("a", 0), segment("b", 1)])
    with pytest.raises(InputError, match="linked already"):
        link_conversations(linked)
    assert link_conversations(linked, relink=True) == linked


def test_augmented_copies_are_refused():
    plain = segment("a", 0)
    with pytest.raises(InputError, match="_sp0.9"):
        link_conversations([plain.perturb_speed(0.9, 8000)])
    linked = link_conversations([plain])[0].perturb_speed(1.1, 8000)
    with pytest.raises(InputError, match="augmented copy"):
        link_conversations([linked], relink=True)
    # an id that merely looks like one is fine
    assert len(link_conversations([segment("take_sp2", 0)])) == 1


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1),
        np.float64(1),
        np.int64(1),
        np.zeros(2),
        {1, 2},
        (1, 2),
        b"x",
        float("nan"),
        {"width": 3},
        {"array": []},
        {3: "x"},
        ["fine", {"deep": {2}}],
    ],
    ids=repr,
)
def test_values_that_do_not_survive_saving_are_refused_when_set(value):
    with pytest.raises(InputError, match="u: custom field 'x'"):
        with_custom(segment("u", 0), x=value)
    with pytest.raises(InputError, match="u: custom field 'x'"):
        link_conversations([segment("u", 0, custom={"x": value})])


@pytest.mark.parametrize("value", ["a", 1, 1.5, True, None, [1, ["b"]], {"a": {"b": [1.0]}}])
def test_values_that_survive_are_kept(value, tmp_path):
    check_custom(value, "here")
    turn = with_custom(segment("u", 0, custom={"old": 1}), x=value)
    assert turn.custom == {"old": 1, "x": value}
    SupervisionSet.from_segments([turn]).to_file(tmp_path / "s.jsonl")
    (back,) = SupervisionSet.from_file(tmp_path / "s.jsonl")
    assert back.custom.get("x") == value


@pytest.mark.parametrize("kwargs", [{"num_prev": 0}, {"max_gap": -1.0}])
def test_limits_of_options(kwargs):
    with pytest.raises(InputError):
        link_conversations([segment("u", 0)], **kwargs)


def test_bad_conversation_clock_is_refused():
    with pytest.raises(InputError, match="conv_start"):
        link_conversations([segment("u", 0, custom={"conv_start": "1.0"})])


def test_nothing_to_link():
    assert len(link_conversations([])) == 0
