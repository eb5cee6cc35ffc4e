"""What a conversation remembers: bounded, loops cut, silence and doubt take no place."""

from hypothesis import given, settings
from hypothesis import strategies as st

from icefall_ctx.decode.session import MAX_PAST_TURNS, ConversationSession, PastTurn, cut_repeats


def test_loops_are_cut_and_what_people_repeat_stays():
    assert cut_repeats([5, 5, 5, 5]) == [5, 5, 5, 5]
    assert cut_repeats([5] * 5) == [5]
    assert cut_repeats([9] + [3, 4] * 10 + [7]) == [9, 3, 4, 7]
    assert cut_repeats([1, 2, 3] * 4) == [1, 2, 3] * 4
    assert cut_repeats([]) == []
    # the cut of a longer loop may join shorter ones
    assert cut_repeats([3, 4] * 6 + [4] * 4) == [3, 4]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(3, 5), max_size=40), st.integers(1, 3), st.integers(1, 3))
def test_no_loop_is_left(tokens, max_ngram, max_repeats):
    cut = cut_repeats(tokens, max_ngram, max_repeats)
    assert len(cut) <= len(tokens) and bool(cut) == bool(tokens)
    assert set(cut) == set(tokens)
    for n in range(1, max_ngram + 1):
        for i in range(len(cut)):
            assert cut[i : i + n * (max_repeats + 1)] != cut[i : i + n] * (max_repeats + 1) or (
                len(cut[i : i + n * (max_repeats + 1)]) < n * (max_repeats + 1)
            )


def test_silence_and_doubtful_turns_take_no_place():
    session = ConversationSession(min_confidence=0.5)
    assert session.add([3, 4], "A", 0.9) == PastTurn((3, 4), "A", 0.9)
    for _ in range(3600):
        assert session.add([], "B", 1.0) is None
    assert session.add([8], "B", 0.2) is None
    assert session.history(2, "A") == [PastTurn((3, 4), "A", 0.9)]
    assert session.turns == 3602


def test_a_turn_that_repeats_the_one_before_is_kept():
    session = ConversationSession()
    for _ in range(3):
        session.add([7], "A", 1.0)
    assert len(session.history(8, "A")) == 3


def test_history_by_speaker_oldest_first_and_bounded():
    session = ConversationSession()
    for turn in range(3 * MAX_PAST_TURNS):
        session.add([turn], "AB"[turn % 2], 1.0)
    newest = 3 * MAX_PAST_TURNS - 1

    def tokens(*arguments):
        return [turn.tokens[0] for turn in session.history(*arguments)]

    assert tokens(3, "A") == [newest - 2, newest - 1, newest]
    assert tokens(2, "A", "same") == [newest - 3, newest - 1]
    assert tokens(2, "A", "other") == [newest - 2, newest]
    assert tokens(0, "A") == []
    assert len(session.past) == MAX_PAST_TURNS
