import json

import pytest
from checks import check_parts, turns_of
from make_harpervalley import make_harpervalley

from icefall_ctx.corpora.harpervalley import part_of_call, prepare_harpervalley
from icefall_ctx.data.conversation import link_conversations
from icefall_ctx.errors import InputError, ProblemLog


def test_audio_by_offset_and_speakers_by_metadata(tmp_path):
    expected = make_harpervalley(tmp_path)
    problems = ProblemLog()
    parts = prepare_harpervalley(tmp_path / "harpervalley", problems=problems)
    check_parts(parts, expected)
    assert sorted(parts) == ["dev", "test", "train"]
    assert set(problems.counts()) == {"no speech in the text"}


def test_turn_order_by_the_clock_of_the_conversation(tmp_path):
    make_harpervalley(tmp_path)
    turns = prepare_harpervalley(tmp_path / "harpervalley")["train"]["supervisions"]
    call = next(iter(turns)).custom["conv_id"]
    linked = [s for s in link_conversations(turns) if s.custom["conv_id"] == call]
    linked.sort(key=lambda s: s.custom["turn"])
    assert [s.custom["side"] for s in linked] == ["agent", "caller", "agent", "caller"]
    # by the files' own clocks the caller's "hi" would come first
    assert linked[1].start < linked[0].start


def test_a_call_is_in_one_part(tmp_path):
    make_harpervalley(tmp_path)
    seen = {}
    for part, manifests in prepare_harpervalley(tmp_path / "harpervalley").items():
        for supervision in manifests["supervisions"]:
            assert seen.setdefault(supervision.custom["conv_id"], part) == part
            assert part_of_call(supervision.custom["conv_id"]) == part


def test_damaged_segments_and_files(tmp_path):
    expected = make_harpervalley(tmp_path)
    first, second, third, *_ = sorted(tmp_path.rglob("transcript/*.json"))
    first.write_text(first.read_text()[:100])
    segments = json.loads(second.read_text())
    del segments[0]["offset_ms"]
    segments[1]["speaker_role"] = "robot"
    second.write_text(json.dumps([*segments, "text"]))
    next(tmp_path.rglob(f"metadata/{third.stem}.json")).write_text("[]")
    problems = ProblemLog()
    turns = turns_of(prepare_harpervalley(tmp_path / "harpervalley", problems=problems))
    assert len(turns) == len(expected) - 4 - 2
    counts = problems.counts()
    assert counts["unreadable transcript"] == 1
    assert counts["segment without times or text"] == 1
    assert counts["segment without a side"] == 2
    assert counts["no speaker ids"] == 1
    assert {t.speaker for t in turns if t.recording.startswith(third.stem)} == {
        f"{third.stem}-agent",
        f"{third.stem}-caller",
    }


def test_wrong_folder(tmp_path):
    with pytest.raises(InputError, match="transcript: no such folder"):
        prepare_harpervalley(tmp_path)


def test_half_a_character_in_an_escape(tmp_path):
    make_harpervalley(tmp_path, num_calls=2)
    path = sorted(tmp_path.rglob("transcript/*.json"))[0]
    path.write_text(path.read_text().replace("hello", "\\ud800"))
    problems = ProblemLog()
    prepare_harpervalley(tmp_path / "harpervalley", tmp_path / "out", problems=problems)
    assert problems.counts()["unreadable transcript"] == 1
