"""What is repaired, what is left out, and that both are counted."""

import pytest
from lhotse import Recording, SupervisionSegment

from icefall_ctx.data.sanitize import (
    drop_empty,
    fit_to_audio,
    fix_to_recording,
    separate_speakers,
)
from icefall_ctx.errors import InputError, ProblemLog


def segment(id, start=0.0, duration=1.0, text="yes", channel=0, recording="r", speaker="a"):
    return SupervisionSegment(
        id=id,
        recording_id=recording,
        start=start,
        duration=duration,
        text=text,
        channel=channel,
        speaker=speaker,
    )


def recording(rate=8000, samples=80000):
    return Recording(
        id="r",
        sources=[],
        sampling_rate=rate,
        num_samples=samples,
        duration=samples / rate,
        channel_ids=[0, 1],
    )


@pytest.mark.parametrize("excess, kept", [(0.005, True), (0.5, True), (0.51, False)])
def test_end_after_the_recording(excess, kept):
    problems = ProblemLog()
    fixed = fix_to_recording([segment("u", 8.0, 2.0 + excess)], [recording()], 0.5, problems)
    assert [s.end for s in fixed] == ([10.0] if kept else [])
    kind = "trimmed to the recording" if kept else "outside the recording"
    assert problems.counts() == {kind: 1}
    assert problems.problems[0].place == "u" and "10 s" in problems.problems[0].detail


def test_strict_refuses():
    with pytest.raises(InputError, match="u: trimmed.*8 to 10.005 s"):
        fix_to_recording(
            [segment("u", 8.0, 2.005)], [recording()], problems=ProblemLog(strict=True)
        )


def test_rounding_is_trimmed_silently_and_nothing_is_lost():
    problems = ProblemLog()
    turns = [segment(f"u{i}", round(i * 0.01, 2), 0.01) for i in range(999)]
    turns.append(segment("last", 9.99, 0.010001))
    fixed = list(fix_to_recording(turns, [recording()], problems=problems))
    assert len(fixed) == 1000 and len(problems) == 0
    assert fixed[-1].end == 10.0


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100])
def test_trimmed_ends_are_right_to_a_sample(rate):
    samples = 3 * rate + 1
    (fixed,) = fix_to_recording(
        [segment("u", 1.23, 2.0)], [recording(rate, samples)], 0.5, ProblemLog()
    )
    assert fixed.end <= samples / rate + 1e-8
    assert round(fixed.end * rate) == samples


def test_start_before_the_recording_and_after_it():
    problems = ProblemLog()
    turns = [segment("early", -0.1, 1.0), segment("late", 10.0, 0.2), segment("in", 1.0, 1.0)]
    fixed = list(fix_to_recording(turns, [recording()], 0.5, problems))
    assert [(s.id, s.start, s.duration) for s in fixed] == [("early", 0, 0.9), ("in", 1.0, 1.0)]
    assert problems.counts() == {"trimmed to the recording": 1, "outside the recording": 1}


def test_unknown_recording_and_channel():
    problems = ProblemLog()
    turns = [segment("u", recording="x"), segment("v", channel=2), segment("w", channel=[0, 1])]
    assert [s.id for s in fix_to_recording(turns, [recording()], 0.5, problems)] == ["w"]
    assert problems.counts() == {"unknown recording": 1, "no such channel": 1}


def test_nothing_to_hear_or_to_say():
    problems = ProblemLog()
    turns = [
        segment("zero", duration=0.0),
        segment("short", duration=0.02),
        segment("noise", text="[noise]"),
        segment("none", text=None),
        segment("blank", text=" "),
        segment("good", text="[noise] yes"),
    ]
    kept = list(drop_empty(turns, problems, normalize=lambda t: t.replace("[noise]", "")))
    assert [(s.id, s.text) for s in kept] == [("good", "[noise] yes")]
    assert problems.counts() == {"too short": 2, "empty text": 3}
    assert [p.place for p in problems.problems] == ["zero", "short", "noise", "none", "blank"]


def test_two_sides_get_two_speakers():
    problems = ProblemLog()
    turns = [
        segment("a", speaker="swA", channel=0),
        segment("b", speaker="swA", channel=1),
        segment("c", speaker="swA", recording="other", channel=1),
        segment("d", speaker="fine", channel=1),
    ]
    fixed = separate_speakers(turns, problems)
    assert [s.speaker for s in fixed] == ["swA-0", "swA-1", "swA", "fine"]
    assert problems.counts() == {"one speaker on two channels": 1}
    assert [s.speaker for s in turns] == ["swA", "swA", "swA", "fine"]


@pytest.mark.parametrize(
    "start, end, expected, kind",
    [
        (1.0, 2.0, (1.0, 2.0), None),
        (-0.4, 10.4, (0.0, 10.0), "trimmed to the recording"),
        (9.0, 10.0004, (9.0, 10.0), None),  # rounding
        (-0.3, -0.2, None, "outside the recording"),
        (10.0, 10.3, None, "outside the recording"),
        (float("nan"), 2.0, None, "bad time"),
        (1.0, float("inf"), None, "bad time"),
    ],
)
def test_times_are_fitted_to_the_audio(start, end, expected, kind):
    problems = ProblemLog()
    assert fit_to_audio(start, end, 10.0, "call.txt:7", problems) == expected
    named = [(p.kind, p.place) for p in problems.problems]
    assert named == ([(kind, "call.txt:7")] if kind else [])
