"""Turns become cuts; what cannot be cut is named."""

import pytest
from lhotse import AudioSource, CutSet, Recording, RecordingSet, SupervisionSegment, SupervisionSet

from icefall_ctx.errors import InputError
from icefall_ctx.features.cuts import TurnCutter
from icefall_ctx.text.normalize import get_normalizer

CALL = Recording("call", [AudioSource("file", [0, 1], "call.wav")], 8000, 80000, 10.0)


def turn(utt_id, start, duration, channel=0, text="yes", recording_id="call", **custom):
    return SupervisionSegment(
        utt_id, recording_id, start, duration, channel, text=text, custom=custom or None
    )


def test_same_as_lhotse_s_trimming_of_each_channel():
    turns = [
        turn("c", 4.0, 1.5, 1, prev=["a", "b"]),
        turn("a", 0.5, 2.0, 0, prev=[]),
        turn("b", 1.5, 2.0, 1, prev=["a"]),  # overlaps a
    ]
    ours = TurnCutter({"call": CALL}).cut_all(turns)
    assert [cut.id for cut in ours] == ["c", "a", "b"]
    whole = CutSet.from_manifests(
        RecordingSet.from_recordings([CALL]), SupervisionSet.from_segments(turns)
    )
    mono = CutSet.from_cuts(part for cut in whole for part in cut.to_mono())
    trimmed = mono.trim_to_supervisions(keep_overlapping=False)
    theirs = {cut.supervisions[0].id: cut for cut in trimmed}
    for cut in ours:
        their = theirs[cut.id]
        for part in ("start", "duration", "channel"):
            assert getattr(cut, part) == getattr(their, part)
        assert cut.supervisions == their.supervisions
    assert turns[0].start == 4.0 and ours[0].supervisions[0].custom == {"prev": ["a", "b"]}


@pytest.mark.parametrize(
    "bad, log, kind",
    [
        (turn("x", 1, 0.05), "skipped", "too short"),
        (turn("x", 1, 0.0), "skipped", "too short"),
        (turn("x", 1, 1, text=""), "skipped", "empty text"),
        (turn("x", 1, 1, text=None), "skipped", "empty text"),
        (turn("x", 1, 1, text="[noise]"), "skipped", "empty text"),
        (turn("x", 1, 1, recording_id="lost"), "bad", "no such recording"),
        (turn("x", 1, 1, channel=2), "bad", "no such channel"),
        (turn("x", 1, 1, channel=[0, 1]), "bad", "turn on several channels"),
        (turn("x", 9.0, 1.5), "bad", "outside the recording"),
        (turn("x", 12.0, 1.0), "bad", "outside the recording"),
        (turn("x", -0.5, 1.0), "bad", "negative start"),
        (turn("x", 9.999, 0.1), "skipped", "too short"),
    ],
)
def test_others_go_on(bad, log, kind):
    cutter = TurnCutter({"call": CALL}, normalize=get_normalizer("swbd"))
    cuts = cutter.cut_all([turn("a", 0, 1), bad, turn("b", 2, 1)])
    assert [cut.id for cut in cuts] == ["a", "b"]
    problem = getattr(cutter, log).problems[0]
    assert (problem.kind, problem.place) == (kind, "x")
    assert len(cutter.skipped) + len(cutter.bad) == 1


def test_a_turn_that_ends_a_little_late_is_trimmed_and_counted():
    cutter = TurnCutter({"call": CALL})
    (cut,) = cutter.cut_all([turn("a", 9.0, 1.005)])
    assert cut.end == 10.0 and cut.supervisions[0].duration == cut.duration == 1.0
    assert cutter.trimmed.counts() == {"end trimmed to the recording": 1}
    (cut,) = cutter.cut_all([turn("b", 9.0, 1.000001)])
    assert cut.end == 10.0 and len(cutter.trimmed) == 1  # rounding is no problem


def test_contiguous_turns_all_come_out():
    turns = [turn(f"t{i}", round(i * 0.11, 2), 0.11) for i in range(90)]
    assert len(TurnCutter({"call": CALL}).cut_all(turns)) == 90


def test_text_is_not_needed_to_recognise():
    cuts = TurnCutter({"call": CALL}, allow_empty_text=True).cut_all([turn("a", 0, 1, text=None)])
    assert len(cuts) == 1


def test_an_id_twice_is_refused():
    with pytest.raises(InputError, match="a: two supervisions"):
        TurnCutter({"call": CALL}).cut_all([turn("a", 0, 1), turn("a", 2, 1)])
