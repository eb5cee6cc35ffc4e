"""The example shown is the turn in which earlier words came back."""

import pytest
from lhotse import SupervisionSegment, SupervisionSet

from icefall_ctx.data.conversation import ConversationIndex, link_conversations
from icefall_ctx.errors import InputError
from icefall_ctx.score.examples import find_examples, helped_turn
from icefall_ctx.score.wer import Utterance

REF = ["call doctor brindle", "doctor brindle yes", "at nine", "at nine sharp"]
BASE = ["call doctor brindle", "doctor bundle yes", "at wine", "at nine"]
CONTEXT = ["call doctor bridle", "doctor brindle yes", "at nine", "at nine"]


def segments():
    return link_conversations(
        SupervisionSegment(f"u{i}", "call", float(i), 0.5, text=text, speaker="AB"[i % 2])
        for i, text in enumerate(REF)
    )


def results(hyps, none=()):
    return [
        Utterance(f"u{i}", ref.split(), None if i in none else hyp.split())
        for i, (ref, hyp) in enumerate(zip(REF, hyps))
    ]


def test_words_said_before_count_most():
    index = ConversationIndex.from_supervisions(segments())
    found = find_examples(results(BASE), results(CONTEXT), index)
    assert [example.utt_id for example in found] == ["u1", "u2"]  # u3 is the same, u0 worse
    assert found[0].rescued == found[0].said_before == ["brindle"]
    assert found[1].said_before == []
    assert [line.hyp for line in found[0].before] == [["call", "doctor", "bridle"]]


def test_text_shows_what_was_said_understood_and_both_outputs(tmp_path):
    path = tmp_path / "linked.jsonl"
    SupervisionSet.from_segments(segments()).to_file(path)
    text = helped_turn(results(BASE), results(CONTEXT), path)
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "A turn where context made the difference (u1):",
        "A said call doctor brindle",
        "understood call doctor bridle",
        "B said doctor brindle yes",
        "baseline doctor bundle yes",
        "context doctor brindle yes",
    ]
    assert "(no output)" in helped_turn(results(BASE, none=[1]), results(CONTEXT), path)
    assert "No turn" in helped_turn(results(BASE), results(BASE), path)


def test_results_of_other_references_are_refused():
    index = ConversationIndex.from_supervisions(segments())
    with pytest.raises(InputError, match="u3"):
        find_examples(results(BASE), results(CONTEXT)[:3], index)
