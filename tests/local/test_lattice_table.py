"""The table of decoding methods: which rows there are, and what is asked of decode.py."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from icefall_ctx.config import DataConfig, ModelConfig, save_configs
from icefall_ctx.decode.methods import METHODS

SCRIPT = Path(__file__).parents[2] / "local" / "lattice_table.py"
spec = importlib.util.spec_from_file_location("lattice_table", SCRIPT)
table = importlib.util.module_from_spec(spec)
sys.modules["lattice_table"] = table  # dataclasses look their module up
spec.loader.exec_module(table)

# a decode.py that writes a report and notes its flags
DECODE = """
import json, sys
from pathlib import Path
flags = dict(zip(sys.argv[1::2], sys.argv[2::2]))
log = Path(__file__).with_suffix(".log")
log.write_text((log.read_text() if log.exists() else "") + json.dumps(flags) + "\\n")
folder = Path(flags["--output-dir"])
folder.mkdir(parents=True)
rate = abs(float(flags.get("--lm-scale", 0.5)) - 0.2)
report = {"raw": {"total": {"rate": rate}, "interval": {"bounds": [0.1, None]}},
          "real_time_factor": 0.05, "peak_memory_mb": 300.4}
if "--graph" in flags:
    report["scales"] = {"hlg": 0.5}
    report["fallbacks"] = {"pruned": ["a", "b"]}
name = "dev" if "_dev" in flags["--test-cuts"] else "test"
(folder / f"report-{name}-x.json").write_text(json.dumps(report))
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "decode.py").write_text(DECODE)
    data = DataConfig(lang_dir=tmp_path, valid_cuts="x_cuts_dev.jsonl.gz")
    exp_dir = tmp_path / "context"
    save_configs(exp_dir / "config.yaml", ModelConfig(text_context="attention"), data)
    return tmp_path


def run(recipe, capsys, *flags):
    table.main([str(recipe / "context"), "--decode", str(recipe / "decode.py"),
                "--output-dir", str(recipe / "out"), *flags])  # fmt: skip
    rows = [line.strip("| \n").split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    log = recipe / "decode.log"
    calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    log.unlink(missing_ok=True)
    return [row for row in rows if len(row) > 1], calls


def test_every_method_has_its_rows():
    found = list(table.rows(reads_history=True, has_lm=True))
    assert {row.method for row in found} == set(METHODS)
    assert len({row.name for row in found}) == len(found)
    assert {r.history for r in found if r.method == "attention-decoder"} == {"none", "hyp"}
    assert not any(r.graph == "ctc" for r in found if r.method == "whole-lattice-rescoring")
    plain = list(table.rows(reads_history=False, has_lm=False))
    assert not any(row.history or row.lstm for row in plain)


def test_scales_are_tuned_on_dev_and_the_test_set_decoded_once(recipe, capsys):
    flags = ("--methods", "beam,1best", "--lm-exp-dir", str(recipe), "--lm-scales", "0.1,0.2")
    rows, calls = run(recipe, capsys, *flags, "--", "--avg", "3")
    assert all(call["--avg"] == "3" for call in calls)
    tests = [call for call in calls if call["--test-cuts"] == "x_cuts_test.jsonl.gz"]
    assert len(tests) == len(rows) == 8  # beam: 2 histories x (no, LSTM, carried); 1best: 2 graphs
    hlg = next(call for call in tests if call.get("--graph") == "HLG")
    assert hlg["--tune-cuts"] == "x_cuts_dev.jsonl.gz"
    assert "--tune-cuts" not in next(call for call in tests if call.get("--graph") == "ctc")
    carried = next(call for call in tests if "--carry-lm-state" in call)
    assert carried["--lm-scale"] == "0.2"
    assert rows[0][4:8] == ["30.00", "[10.0, n/a]", "0.050", "300"]
    assert rows[-1][1:3] == ["1best", "HLG"] and rows[-1][8:] == ["hlg=0.5", "2 pruned"]


def test_rates_are_those_under_the_recipes_rules(recipe, capsys):
    """Of a recipe whose transcripts are in capitals the raw rate is near 100 %, whatever is
    decoded; it also chose the weight of the language model."""
    script = recipe / "decode.py"
    script.write_text(
        DECODE.replace(
            'report = {"raw":',
            'report = {"raw": {"total": {"rate": 1.06 - rate}}, "normalized":',
        )
    )
    flags = ("--methods", "beam", "--lm-exp-dir", str(recipe), "--lm-scales", "0.1,0.2")
    rows, calls = run(recipe, capsys, *flags)
    assert rows[0][4:6] == ["30.00", "[10.0, n/a]"]
    tests = [call for call in calls if call["--test-cuts"] == "x_cuts_test.jsonl.gz"]
    assert next(c for c in tests if "--carry-lm-state" in c)["--lm-scale"] == "0.2"


def test_rows_are_decoded_again_when_a_model_has_changed(recipe, capsys):
    flags = ("--methods", "1best")
    first = run(recipe, capsys, *flags)
    again = run(recipe, capsys, *flags)
    assert len(first[1]) == 2 and again == (first[0], [])
    (recipe / "context" / "epoch-1.pt").touch()
    assert len(run(recipe, capsys, *flags)[1]) == 2
    assert len(run(recipe, capsys, *flags, "--", "--avg", "2")[1]) == 2
