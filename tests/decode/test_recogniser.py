"""Conversations in step, one at a time and live: the same text; every option in every mode."""

import itertools

import pytest
import torch
from model_inputs import make_batch, small_model, sound

from icefall_ctx.decode.beam import BeamOptions
from icefall_ctx.decode.recogniser import Recogniser, RecogniserOptions
from icefall_ctx.decode.session import ConversationSession, PastTurn
from icefall_ctx.models.lm import LstmLm, LstmLmConfig

TURNS = 4
METHODS = ("beam", "ctc-greedy", "ctc-prefix-beam")


def conversation(name: int):
    """Turns of different lengths, speakers in turn; one turn is too short for any frame."""
    frames = [40 + 9 * name, 25, 3 if name == 1 else 61, 33]
    return [(sound(f, 100 * name + i), "AB"[i % 2]) for i, f in enumerate(frames)]


def decode(recogniser, names, batch_size, min_confidence=0.0):
    """Tokens by (conversation, turn), ``batch_size`` conversations in step."""
    results = {}
    for start in range(0, len(names), batch_size):
        group = names[start : start + batch_size]
        sessions = [ConversationSession(str(n), min_confidence) for n in group]
        turns = [conversation(n) for n in group]
        for turn in range(TURNS):
            batch = make_batch(
                [t[turn][0] for t in turns], speakers=[t[turn][1] for t in turns]
            )
            for name, nbest in zip(group, recogniser.recognise(batch, sessions)):
                assert 0.0 <= nbest[0].confidence <= 1.0
                results[name, turn] = nbest[0].tokens
    return results


def language_model():
    torch.manual_seed(3)
    return LstmLm(LstmLmConfig(9, d_model=8, num_layers=2)).eval()


ATTENTIONS = ("plain", "residual", "context")
TEXT_CONTEXTS = ("none", "conditional", "attention")
CASES = list(itertools.product(METHODS, ATTENTIONS, TEXT_CONTEXTS))


@pytest.mark.parametrize("method, attention, text_context", CASES)
def test_batch_of_three_equals_one_conversation_at_a_time(method, attention, text_context):
    encoder = "conformer" if text_context == "conditional" else "transformer"
    model = small_model(
        encoder=encoder, attention=attention, text_context=text_context, ctx_alpha=0.5
    )
    model.ctc.bias.data[0] = -1.0  # not blank alone
    recogniser = Recogniser(model, RecogniserOptions(method, BeamOptions(3, max_len_ratio=0.5)))
    together = decode(recogniser, [0, 1, 2], 3)
    assert together == decode(recogniser, [0, 1, 2], 1) == decode(recogniser, [2, 0, 1], 2)
    assert any(together.values())


@pytest.mark.parametrize("speakers", ["all", "same", "other"])
@pytest.mark.parametrize("first_text", ["empty", "repeat"])
def test_speakers_and_first_text_in_step(speakers, first_text):
    model = small_model(text_context="attention")
    options = RecogniserOptions("beam", BeamOptions(3, max_len_ratio=0.5), speakers, first_text)
    recogniser = Recogniser(model, options)
    assert decode(recogniser, [0, 1, 2], 3) == decode(recogniser, [0, 1, 2], 1)


def test_a_carried_language_model_in_step():
    model = small_model()
    options = RecogniserOptions("beam", BeamOptions(3, lm_scale=1.0, max_len_ratio=0.5))
    carried = Recogniser(model, options, language_model(), carry_lm_state=True)
    together = decode(carried, [0, 1, 2], 3)
    assert together == decode(carried, [0, 1, 2], 1)


def test_the_carried_state_is_what_was_kept():
    """The state of the session is that of the LM after the kept turns, loops cut."""
    model, lm = small_model(), language_model()
    model.decoder.out.bias.data[1], model.decoder.out.bias.data[4] = -50.0, 20.0  # loops
    options = RecogniserOptions("beam", BeamOptions(2, 0.0, lm_scale=0.1))
    recogniser = Recogniser(model, options, lm, carry_lm_state=True)
    session = ConversationSession()
    for seed in range(3):
        recogniser.recognise(make_batch([sound(60, seed)]), [session])
    state = None
    for turn in session.past:
        _, state = lm.score([turn.tokens], state)
    torch.testing.assert_close(session.lm_state.h, state.h)
    doubtful = ConversationSession(min_confidence=1.0)
    recogniser.recognise(make_batch([sound(60, 0)]), [doubtful])
    assert doubtful.lm_state is None and not doubtful.past


def test_a_looping_decoder_over_twenty_turns():
    model = small_model(text_context="conditional")
    model.decoder.out.bias.data[1], model.decoder.out.bias.data[4] = -50.0, 20.0
    recogniser = Recogniser(model, RecogniserOptions("beam", BeamOptions(2, 0.0)))
    session = ConversationSession()
    for turn in range(20):
        [[best]] = recogniser.recognise(make_batch([sound(80, turn)]), [session])
        assert best.tokens == [4] * 19  # as many as there are frames, no more
        assert session.past[-1].tokens == (4,)
    assert len(recogniser.history_of(session, "A")) == model.config.history_sentences


@pytest.mark.parametrize("text_context", ["conditional", "attention"])
def test_first_turn_and_empty_hypothesis(text_context):
    """No history, a history of an empty hypothesis, and none given: the same."""
    model = small_model(text_context=text_context)
    recogniser = Recogniser(model, RecogniserOptions("beam", BeamOptions(3)))
    batch = make_batch([sound(40, 1)])

    def run(histories):
        return recogniser.recognise(batch, [ConversationSession()], histories)[0][0]

    assert run(None) == run([[]]) == run([[PastTurn((), "A")]])
    changed = run([[PastTurn((5, 6, 7, 8), "B")]])
    assert changed.score != run(None).score


def test_first_text_repeat_reads_the_own_first_hypothesis():
    model = small_model(text_context="conditional")
    beam = BeamOptions(3, max_len_ratio=0.5)
    plain = Recogniser(model, RecogniserOptions("beam", beam))
    batch = make_batch([sound(60, 1)])
    first = plain.recognise(batch, [ConversationSession()])[0][0]
    own = [[PastTurn(tuple(first.tokens), "A")]]
    expected = plain.recognise(batch, [ConversationSession()], own)
    repeat = Recogniser(model, RecogniserOptions("beam", beam, first_text="repeat"))
    assert repeat.recognise(batch, [ConversationSession()]) == expected


def test_references_are_not_read():
    """Tokens, texts and ids of the batch may be anything."""
    model = small_model(attention="context", text_context="attention")
    recogniser = Recogniser(model, RecogniserOptions("beam", BeamOptions(3)))

    def run(tokens, text):
        sessions = [ConversationSession(), ConversationSession()]
        outputs = []
        for turn in range(3):
            batch = make_batch([sound(40, turn), sound(50, 9 + turn)], tokens)
            batch.texts = [text] * 2
            outputs.append(recogniser.recognise(batch, sessions))
        return outputs

    assert run([[3, 4], [5]], "a b") == run([[8], [8, 8, 8]], "something else")


def test_an_utterance_far_longer_than_in_training():
    model = small_model(attention="context", text_context="attention")
    recogniser = Recogniser(model, RecogniserOptions("beam", BeamOptions(2, max_len_ratio=0.1)))
    session = ConversationSession()
    recogniser.recognise(make_batch([sound(60, 1)]), [session])
    [[best]] = recogniser.recognise(make_batch([sound(700, 2)]), [session])
    assert len(best.tokens) <= 174 * 0.1
    assert recogniser.recognise(make_batch([sound(60, 3)]), [session])[0][0].score > -1e6


def test_unk_and_specials_never_come_out_of_ctc():
    model = small_model()
    model.ctc.bias.data[[1, 2]] = 20.0
    for method in ("ctc-greedy", "ctc-prefix-beam"):
        recogniser = Recogniser(model, RecogniserOptions(method, BeamOptions(4, nbest=3)))
        for nbest in recogniser.recognise(
            make_batch([sound(60, 1), sound(45, 2)]), [ConversationSession() for _ in range(2)]
        ):
            assert all(not {0, 1, 2} & set(h.tokens) for h in nbest)
