"""The presets of the papers' tables: every row is there and is what its name says."""

from dataclasses import replace
from pathlib import Path

import pytest

from icefall_ctx.config import ModelConfig, TrainConfig, load_config
from icefall_ctx.models.asr import build_model

EGS = Path(__file__).resolve().parents[2] / "egs"
CONTEXT = ("hkust", "swbd", "tedlium2", "datatang_dialog", "magicdata_ramc")
ROWS = {
    "": {},
    "-residual": {"attention": "residual"},
    "-context": {"attention": "context"},
    "-conditional1": {"text_context": "conditional", "history_sentences": 1},
    "-conditional2": {"text_context": "conditional"},
    "-all": {"attention": "context", "text_context": "conditional"},
}
SPEAKERS = {"": {}, "-ivector": {"speaker_features": "ivector"}}
MEMORY = {"memory": "2mem"}
NEW_WORDS = {  # options of the model beside those of the baseline, and p
    "transformer": ({}, 0.5),
    "lstm": ({}, 0.5),
    "mem": ({"memory": "mem"}, 0.0),
    "mem-permute": ({"memory": "mem"}, 0.5),
    "2mem": (MEMORY, 0.0),
    "2mem-permute": (MEMORY, 0.5),
    "2mem-encoded": ({**MEMORY, "memory_values": "encoded"}, 0.5),
    "2mem-score-residual": ({**MEMORY, "memory_score_residual": True}, 0.5),
    "2mem-encoder1": ({**MEMORY, "memory_encoder_layers": 1}, 0.5),
    "2mem-decoder1": ({**MEMORY, "memory_decoder_layers": 1}, 0.5),
    "2mem-lstm": (MEMORY, 0.5),
}


def presets(recipe):
    return {path.stem: path for path in (EGS / recipe / "ASR/conf").glob("*.yaml")}


@pytest.mark.parametrize("recipe", CONTEXT)
def test_rows_of_the_context_table(recipe):
    found = presets(recipe)
    expected = {
        encoder + row + speakers: ModelConfig(encoder=encoder, **ROWS[row], **SPEAKERS[speakers])
        for encoder in ("transformer", "conformer")
        for row in ROWS
        for speakers in SPEAKERS
    }
    assert {name: load_config(path, ModelConfig) for name, path in found.items()} == expected
    for path in found.values():
        train = load_config(path, TrainConfig)
        assert (train.warmup, train.grad_clip, train.label_smoothing) == (25000, 5.0, 0.1)


def test_rows_of_the_new_words_table():
    found = presets("newwords")
    assert set(found) == set(NEW_WORDS)
    for name, (changes, permute) in NEW_WORDS.items():
        baseline = "lstm" if "lstm" in name else "transformer"
        expected = replace(load_config(found[baseline], ModelConfig), **changes)
        assert load_config(found[name], ModelConfig) == expected, name
        assert load_config(found[name], TrainConfig).permute == permute, name


def test_sizes_of_the_new_words_baselines():
    found = presets("newwords")
    transformer, lstm = (load_config(found[n], ModelConfig) for n in ("transformer", "lstm"))
    assert (transformer.encoder_layers, transformer.decoder_layers) == (24, 8)
    assert (transformer.dim, transformer.ff_dim, transformer.feature_dim) == (1024, 2048, 40)
    assert (lstm.encoder_layers, lstm.decoder_layers, lstm.dim) == (6, 2, 1536)
    assert (lstm.encoder, lstm.decoder, lstm.feature_dim) == ("lstm", "lstm", 40)


@pytest.mark.parametrize("recipe", ["hkust", "harpervalley", "newwords"])
def test_every_row_can_be_built(recipe):
    tiny = dict(vocab_size=9, encoder_layers=1, decoder_layers=1, dim=8, ff_dim=8, heads=2)
    for name, path in presets(recipe).items():
        model = build_model(replace(load_config(path, ModelConfig), **tiny, subsampling_channels=2))
        assert model.has_memory == ("mem" in name), name
