"""A live call gives what batch decoding gives."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_experiment import RATE, make_calls, open_experiment

from icefall_ctx.data.history import link_of
from icefall_ctx.decode.live import LiveSession, turns_of
from icefall_ctx.errors import InputError


@pytest.mark.parametrize(
    "options",
    [
        dict(attention="context", text_context="conditional", encoder="conformer"),
        dict(attention="plain", text_context="attention"),
    ],
    ids=["context-conditional", "history-attention"],
)
def test_live_equals_batch(tmp_path, options):
    cuts = make_calls(tmp_path / "cuts")
    experiment = open_experiment(tmp_path / "exp", tmp_path / "cuts", **options)
    decoded = experiment.decode(cuts, "hyp")
    expected = {u.utt_id: " ".join(u.hyp) for u in decoded.utterances}
    assert any(expected.values())
    for conversation in ("call0", "call1", "call2"):
        call = LiveSession(experiment, RATE, conversation)
        for number, cut in enumerate(turns_of(cuts, conversation)):
            utt_id, speaker = link_of(cut, "utt_id"), cut.supervisions[0].speaker
            wave = cut.load_audio()[0]
            audio = [wave, torch.from_numpy(wave), cut][number % 3]
            heard = call.turn(audio, "" if audio is cut else speaker)
            assert " ".join(heard.text.split()) == expected[utt_id]
            assert heard.confidence == pytest.approx(decoded.confidences[utt_id], abs=1e-4)
            assert heard.speaker == speaker
            assert len(heard.history) <= 2


def test_too_short_a_turn_is_not_remembered_and_channels_are_checked(tmp_path):
    make_calls(tmp_path / "cuts", calls=1)
    experiment = open_experiment(tmp_path / "exp", tmp_path / "cuts", text_context="attention")
    call = LiveSession(experiment, RATE)
    for wave in (np.zeros(0), np.zeros(300)):
        heard = call.turn(wave, "A")
        assert (heard.text, heard.confidence) == ("", 0.0)
    assert call.session.turns == 0
    with pytest.raises(InputError, match="channel"):
        call.turn(np.zeros((2, RATE)), "A")
    with pytest.raises(InputError, match="not finite"):
        call.turn(np.full(RATE, np.nan), "A")
    with pytest.raises(InputError, match="no word memory"):
        call.set_words(["a"])
    with pytest.raises(InputError, match="no conversation 'x'"):
        turns_of(make_calls(tmp_path / "cuts", calls=1), "x")


def test_a_turn_far_longer_than_in_training_is_named(tmp_path, caplog):
    make_calls(tmp_path / "cuts", calls=1)
    experiment = open_experiment(tmp_path / "exp", tmp_path / "cuts", text_context="attention")
    call = LiveSession(experiment, RATE, "call")
    call.turn(np.zeros(RATE), "A")
    assert "call-0: " not in caplog.text
    experiment.module.data = replace(experiment.module.data, drop_duration=0.09)
    call.turn(np.zeros(RATE), "A")
    assert "call-1: 1 s, more than 10 times what was trained on" in caplog.text
