"""The index finds neighbours whatever Lhotse did to the manifest."""

import random

import numpy as np
import pytest
from lhotse import CutSet, MonoCut, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.audio import AudioSource
from lhotse.shar import SharWriter

from icefall_ctx.data.conversation import (
    ConversationIndex,
    augmentation_suffix,
    link_conversations,
    previous_ids,
)
from icefall_ctx.errors import InputError

RATE = 8000


def make_call(number, turns=6):
    """A two-channel call: turns alternate and overlap a little."""
    name = f"call{number}"
    return [
        SupervisionSegment(
            id=f"{name}-{turn}",
            recording_id=name,
            start=round(turn * 1.0, 2),
            duration=1.2,
            channel=turn % 2,
            text=f"{name} says {turn}",
            speaker=f"{name}-{'AB'[turn % 2]}",
        )
        for turn in range(turns)
    ]


@pytest.fixture(scope="module")
def linked():
    turns = [turn for number in range(3) for turn in make_call(number)]
    random.Random(1).shuffle(turns)
    return link_conversations(turns)


@pytest.fixture(scope="module")
def index(linked):
    return ConversationIndex.from_supervisions(linked)


@pytest.fixture(scope="module")
def cuts(linked, tmp_path_factory):
    import soundfile

    folder = tmp_path_factory.mktemp("audio")
    recordings = []
    for number in range(3):
        path = folder / f"call{number}.wav"
        noise = np.random.default_rng(number).normal(size=(RATE * 8, 2)) * 0.1
        soundfile.write(path, noise.astype(np.float32), RATE)
        recordings.append(Recording.from_file(path))
    return CutSet.from_manifests(
        recordings=RecordingSet.from_recordings(recordings), supervisions=linked
    )


def texts(turns):
    return [turn.text for turn in turns]


def test_history_is_oldest_first_and_of_one_conversation(index):
    assert texts(index.history("call1-3", 2)) == ["call1 says 1", "call1 says 2"]
    assert index.history("call1-0", 2) == []
    assert index.history("call1-3", 0) == []
    assert len(index.history("call1-5", 99)) == 5


def test_history_of_one_side(index):
    assert texts(index.history("call1-5", 2, "same")) == ["call1 says 1", "call1 says 3"]
    assert texts(index.history("call1-5", 2, "other")) == ["call1 says 2", "call1 says 4"]
    with pytest.raises(InputError):
        index.history("call1-5", 2, "everybody")


def test_history_reaches_further_than_the_stored_links():
    short = ConversationIndex.from_supervisions(link_conversations(make_call(0, 20), num_prev=2))
    assert texts(short.history("call0-19", 12)) == [f"call0 says {i}" for i in range(7, 19)]


def test_history_of_an_unknown_speaker():
    turns = make_call(0, 3)
    turns[1].speaker = None
    index = ConversationIndex.from_supervisions(link_conversations(turns))
    assert texts(index.history("call0-2", 5, "same")) == ["call0 says 0"]
    assert index.history("call0-2", 5, "other") == []
    with pytest.raises(InputError, match="call0-1"):
        index.history("call0-1", 5, "other")


def test_damaged_links_end():
    turns = link_conversations(make_call(0, 3))
    turns[0].custom["prev"] = ["call0-2"]
    index = ConversationIndex.from_supervisions(turns)
    assert texts(index.history("call0-2", 9)) == ["call0 says 0", "call0 says 1"]


def test_turn_holds_what_the_manifest_says(index):
    turn = index["call2-1"]
    assert turn.conv_id == "call2" and turn.turn == 1 and turn.speaker == "call2-B"
    assert turn.start == 1.0 and turn.prev == ("call2-0",)
    assert len(index) == 18 and "call2-1" in index and "call2-9" not in index
    with pytest.raises(InputError, match="call2-9"):
        index["call2-9"]


def check_neighbours(cuts, index):
    """Every supervision still finds the turns before it; the number of those checked."""
    checked = 0
    for cut in cuts:
        for supervision in cut.supervisions:
            turn = int(supervision.custom["utt_id"].split("-")[1])
            call = supervision.custom["conv_id"]
            expected = [f"{call} says {i}" for i in range(max(0, turn - 2), turn)]
            assert texts(index.history(supervision.custom["utt_id"], 2)) == expected
            checked += 1
    return checked


def test_after_every_operation_of_lhotse(cuts, index, tmp_path):
    trimmed = cuts.trim_to_supervisions(keep_overlapping=False)
    assert check_neighbours(trimmed, index) == 18
    assert all(cut.supervisions[0].start == 0 for cut in trimmed)  # the clock is gone
    assert check_neighbours(trimmed.shuffle(random.Random(0)), index) == 18
    assert check_neighbours(trimmed.filter(lambda c: not c.id.endswith("2")), index) > 0
    assert sum(check_neighbours(part, index) for part in trimmed.split(4)) == 18
    assert check_neighbours(trimmed.perturb_speed(0.9).perturb_volume(2.0), index) == 18
    assert check_neighbours(trimmed.pad(duration=3.0), index) == 18


def test_after_shar(cuts, index, tmp_path):
    trimmed = cuts.trim_to_supervisions(keep_overlapping=False)
    trimmed = trimmed + trimmed.perturb_speed(1.1)
    with SharWriter(tmp_path, fields={"recording": "wav"}, shard_size=5) as writer:
        for cut in trimmed:
            writer.write(cut)
    shards = CutSet.from_shar(in_dir=tmp_path, shuffle_shards=True)
    assert check_neighbours(shards, index) == 36
    assert len(ConversationIndex.from_supervisions(shards)) == 18


def test_previous_turns_are_those_of_the_same_speed(linked):
    for factor in (0.9, 1.1):
        for supervision in linked:
            copy = supervision.perturb_speed(factor, RATE)
            assert augmentation_suffix(copy) == f"_sp{factor}"
            assert previous_ids(copy) == [f"{i}_sp{factor}" for i in supervision.custom["prev"]]
    assert augmentation_suffix(linked[0]) == ""
    twice = linked[0].perturb_speed(0.9, RATE).perturb_volume(0.5)
    assert augmentation_suffix(twice) == "_sp0.9_vp0.5"


def test_renamed_supervisions_are_refused(linked):
    renamed = linked[0].with_offset(0.0)
    renamed.id = "other"
    with pytest.raises(InputError, match="other"):
        augmentation_suffix(renamed)


def test_index_prefers_the_original_of_three_speeds(linked):
    slow = [s.perturb_speed(0.9, RATE) for s in linked]
    fast = [s.perturb_speed(1.1, RATE) for s in linked]
    index = ConversationIndex.from_supervisions([*slow, *linked, *fast])
    assert len(index) == len(linked)
    assert all(index[s.id].start == s.start for s in linked)
    only = ConversationIndex.from_supervisions(slow)
    assert texts(only.history("call0-2", 1)) == ["call0 says 1"]


def test_index_counts_repeated_turns_and_refuses_different_ones(linked, caplog):
    assert len(ConversationIndex.from_supervisions(linked.repeat(2))) == len(linked)
    assert caplog.text == ""  # Lhotse gave the copies names of their own
    ConversationIndex.from_supervisions(linked.repeat(2, preserve_id=True))
    assert "18 supervision ids" in caplog.text
    other = make_call(0)
    other[2].text = "something else"
    with pytest.raises(InputError, match="call0-2.*text"):
        ConversationIndex.from_supervisions([*linked, *link_conversations(other)])


def test_index_needs_links():
    with pytest.raises(InputError, match="no conversation links"):
        ConversationIndex.from_supervisions(make_call(0))


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_index_from_files(linked, cuts, tmp_path, suffix):
    SupervisionSet.from_segments(s for s in linked if s.recording_id != "call0").to_file(
        tmp_path / f"s.{suffix}"
    )
    cuts.to_file(tmp_path / f"c.{suffix}")
    index = ConversationIndex.from_manifests([tmp_path / f"s.{suffix}", tmp_path / f"c.{suffix}"])
    assert len(index) == 18
    assert len(ConversationIndex.from_manifests(tmp_path / f"s.{suffix}")) == 12


def test_index_refuses_other_manifests(tmp_path):
    recording = Recording(
        id="r",
        sources=[AudioSource(type="file", channels=[0], source="r.wav")],
        sampling_rate=RATE,
        num_samples=RATE,
        duration=1.0,
    )
    RecordingSet.from_recordings([recording]).to_file(tmp_path / "r.jsonl")
    with pytest.raises(InputError, match="holds recordings"):
        ConversationIndex.from_manifests(tmp_path / "r.jsonl")
    with pytest.raises(InputError, match="no such file"):
        ConversationIndex.from_manifests(tmp_path / "missing.jsonl")


def test_cut_without_a_recording_can_be_indexed(linked):
    cut = MonoCut("c", start=0, duration=9, channel=0, supervisions=list(linked)[:4])
    assert len(ConversationIndex.from_supervisions([cut])) == 4
