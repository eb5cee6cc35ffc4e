"""Attention maps: shapes, rows that sum to one, causal, and the sentence that is really read."""

import pytest
import torch
from PIL import Image
from tiny_experiment import make_calls, make_experiment, open_experiment

from icefall_ctx.decode.attention_picture import compare_attention, hear, plot_attention
from icefall_ctx.decode.live import LiveSession, turns_of
from icefall_ctx.errors import InputError

CONTEXTS = [
    dict(attention="context", text_context="conditional"),
    dict(text_context="attention"),
]


@pytest.mark.parametrize("options", CONTEXTS, ids=["conditional", "attention"])
def test_maps_of_baseline_and_context_model(tmp_path, options):
    turns = turns_of(make_calls(tmp_path / "cuts", calls=1), "call0")
    baseline = open_experiment(tmp_path / "baseline", tmp_path / "cuts", seed=1)
    context = open_experiment(tmp_path / "context", tmp_path / "cuts", **options)
    tokens = context.tokenizer.encode("a b c")
    maps = compare_attention([baseline, context], turns, tokens, layer=3, head=1)
    assert [len(row) for row in maps] == [1, 2]
    for shown in sum(maps, []):
        assert shown.weights.shape == (len(shown.rows), len(shown.columns))
        assert len(shown.rows) == len(tokens) + 1
    own = maps[1][0].weights
    torch.testing.assert_close(own.sum(dim=1), torch.ones(len(own)))
    assert not own.triu(1).any()
    assert "layer 2" in maps[1][0].title  # the model has no third
    history = maps[1][1].weights
    torch.testing.assert_close(history.sum(dim=1), torch.ones(len(history)))
    for attention in (layer.self_attention for layer in context.recogniser.model.decoder.layers):
        assert not attention.keep_weights

    picture = tmp_path / "attention.png"
    plot_attention(maps, ["baseline", "context"], picture, "call0")
    assert Image.open(picture).size[0] > 1000


def test_history_is_what_the_call_said_and_the_first_turn_has_none(tmp_path):
    turns = turns_of(make_calls(tmp_path / "cuts", calls=1), "call0")
    context = open_experiment(tmp_path / "exp", tmp_path / "cuts", **CONTEXTS[0])
    call = LiveSession(context, turns[0].sampling_rate)
    said = [call.turn(cut) for cut in turns]
    heard = hear(context, turns)
    assert heard.tokens == said[-1].tokens  # encoding once more changed nothing
    mask = heard.history.mask[0]
    sentences = zip(heard.history.tokens[0], mask)
    assert said[-1].history == [context.tokenizer.decode(ids[m].tolist()) for ids, m in sentences]
    assert len(compare_attention([context], turns[:1], [3, 4])[0]) == 1


def test_refused(tmp_path):
    turns = make_calls(tmp_path / "cuts", calls=1, turns=1)
    config = make_experiment(tmp_path / "exp", tmp_path / "cuts")
    experiment = open_experiment(config.exp_dir, tmp_path / "cuts")
    with pytest.raises(InputError, match="head 9"):
        compare_attention([experiment], turns, [3], head=9)
