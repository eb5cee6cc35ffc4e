"""The rows of the results table differ from their baseline in what their names say, only."""

from dataclasses import asdict
from pathlib import Path

import pytest

from icefall_ctx.config import DataConfig, ModelConfig, load_config

EGS = Path(__file__).resolve().parents[2] / "egs"
ROWS = {
    "": {},
    "-residual": {"attention": "residual"},
    "-context": {"attention": "context"},
    "-conditional1": {"text_context": "conditional", "history_sentences": 1},
    "-conditional2": {"text_context": "conditional"},
    "-all": {"attention": "context", "text_context": "conditional"},
    "-history": {"text_context": "attention"},
}


@pytest.mark.parametrize("corpus", ["digits_dialog", "mini_dialog", "fotaq"])
@pytest.mark.parametrize("encoder", ["transformer", "conformer"])
def test_every_row_of_the_table_has_its_preset(corpus, encoder):
    conf = EGS / corpus / "ASR" / "conf"
    baseline = asdict(load_config(conf / "tiny.yaml", ModelConfig))
    for row, changes in ROWS.items():
        path = conf / f"tiny-{encoder}{row}.yaml"
        assert asdict(load_config(path, ModelConfig)) == {
            **baseline,
            "encoder": encoder,
            **changes,
        }
        noise = load_config(path, DataConfig).history_noise
        assert (noise > 0) == (row == "-history")  # the paper has none


@pytest.mark.parametrize("path", sorted(EGS.glob("*/ASR/conf/*.yaml")), ids=lambda p: str(p)[-40:])
def test_every_preset_is_valid(path):
    load_config(path, ModelConfig)
    load_config(path, DataConfig)
