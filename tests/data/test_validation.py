"""Every kind of damaged link, time or speaker is found, and sound manifests pass."""

import pytest
from lhotse import CutSet, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio import AudioSource

from icefall_ctx.data.conversation import link_conversations
from icefall_ctx.data.validation import validate_links

RATE = 8000


def recording(id, seconds=10.0):
    source = AudioSource(type="file", channels=[0, 1], source=f"{id}.wav")
    return Recording(
        id=id,
        sources=[source],
        sampling_rate=RATE,
        num_samples=int(seconds * RATE),
        duration=seconds,
    )


@pytest.fixture
def turns():
    """Fresh links of two calls, five turns each, to be damaged."""
    return list(
        link_conversations(
            SupervisionSegment(
                id=f"{call}-{i}",
                recording_id=call,
                start=i * 1.0,
                duration=1.2,
                channel=i % 2,
                text="x",
                speaker=f"{call}-{i % 2}",
            )
            for call in ("p", "q")
            for i in range(5)
        )
    )


RECORDINGS = RecordingSet.from_recordings([recording("p"), recording("q")])


def kinds(items, **kwargs):
    return validate_links(items, **kwargs).counts


def test_sound_manifests_pass(turns):
    assert kinds(turns, recordings=RECORDINGS) == {}
    slow = [turn.perturb_speed(0.9, RATE) for turn in turns]
    assert kinds(turns + slow) == {}
    assert kinds(slow) == {}
    cuts = CutSet.from_manifests(RECORDINGS, SupervisionSet.from_segments(turns))
    assert kinds(cuts) == {}
    assert kinds(cuts.trim_to_supervisions(keep_overlapping=False)) == {}


def test_filtered_manifest_resolves_through_the_full_one(turns):
    part = [turn for turn in turns if not turn.id.endswith("2")]
    assert kinds(part) == {"dangling link": 4}
    assert kinds(part, index=turns) == {}
    slow = [turn.perturb_speed(0.9, RATE) for turn in part]
    assert kinds(slow, index=turns) == {}


def test_dangling_link(turns):
    turns[1].custom["prev"] = ["gone"]
    findings = validate_links(turns)
    assert findings.counts == {"dangling link": 1}
    assert findings.lines() == ["       1  dangling link: p-1 -> gone"]


def test_cyclic_link(turns):
    turns[0].custom["prev"] = ["p-3"]
    found = kinds(turns)
    assert found["cyclic link"] >= 1 and found["out-of-order link"] == 1
    turns[0].custom["prev"] = ["p-0"]
    assert kinds(turns)["cyclic link"] == 1


def test_a_long_conversation_needs_no_deep_recursion():
    many = link_conversations(
        SupervisionSegment(id=f"u{i}", recording_id="r", start=i, duration=1) for i in range(5000)
    )
    assert kinds(many) == {}


def test_out_of_order_links(turns):
    turns[3].custom["prev"] = ["p-1", "p-0", "p-2"]
    assert kinds(turns) == {"out-of-order link": 1}


def test_start_out_of_order(turns):
    turns[1].start = 3.5
    assert set(kinds(turns)) == {"start out of order"}
    turns[1].custom["conv_start"] = 1.0
    assert kinds(turns) == {}


def test_duplicate_links_and_turns(turns):
    turns[2].custom["prev"] = ["p-1", "p-1"]
    assert kinds(turns)["duplicate link"] == 1
    turns[2].custom["prev"] = ["p-0", "p-1"]
    turns[4].custom["turn"] = 3
    assert kinds(turns)["duplicate turn"] == 1


def test_link_into_another_conversation(turns):
    turns[2].custom["prev"] = ["q-0"]
    assert kinds(turns) == {"link into another conversation": 1}


def test_duplicate_ids(turns):
    assert kinds(turns + turns[:2]) == {"duplicate id": 2}


def test_missing_and_foreign_links(turns):
    turns[4].custom = None
    turns[9].custom["utt_id"] = "someone"
    assert kinds(turns) == {"not linked": 1, "id without its utt_id": 1}


def test_times_and_channels_outside_the_recording(turns):
    turns[4].duration = 7.0
    turns[0].start = -0.5
    turns[1].channel = 2
    turns[1].speaker = "new"
    turns[2].duration = 0.0
    assert kinds(turns, recordings=RECORDINGS) == {"outside the recording": 3, "no such channel": 1}
    turns[9].recording_id = "unknown"
    assert kinds(turns, recordings=RECORDINGS)["unknown recording"] == 1


def test_rounding_is_not_outside(turns):
    turns[4].duration = 6.0 + 1e-6
    assert kinds(turns, recordings=RECORDINGS) == {}


def test_one_speaker_on_both_channels(turns):
    for turn in turns[:5]:
        turn.speaker = "pA"
    findings = validate_links(turns)
    assert findings.counts == {"one speaker on two channels": 1}
    assert findings.first["one speaker on two channels"] == ["pA in p"]
    turns[0].channel = [0, 1]  # one turn on both microphones is fine
    assert "q" not in " ".join(validate_links(turns).lines())


def test_supervision_outside_its_cut(turns):
    cuts = CutSet.from_manifests(RECORDINGS, SupervisionSet.from_segments(turns)).to_eager()
    cut = next(iter(cuts))
    cut.supervisions[0].start = 11.0
    assert kinds([cut])["outside its cut"] == 1


def test_empty_manifest():
    assert kinds([]) == {}
