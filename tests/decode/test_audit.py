"""Every history decoded once; references reach ``ref`` only; the controls are controls."""

import json
from dataclasses import replace
from itertools import combinations

import pytest
from lhotse import CutSet
from PIL import Image
from tiny_experiment import CUTS, make_calls, make_experiment

from icefall_ctx.cli import main
from icefall_ctx.data.history import link_of
from icefall_ctx.decode.audit import run_audit
from icefall_ctx.decode.run import Experiment, check_history
from icefall_ctx.errors import InputError

MODES = ("none", "hyp", "ref", "shuffled")


def outputs(experiment, cuts):
    """Text and confidence, which differs already where the text does not yet."""
    decoded = {mode: experiment.decode(cuts, mode) for mode in MODES}
    return {
        mode: {u.utt_id: (u.hyp, result.confidences[u.utt_id]) for u in result.utterances}
        for mode, result in decoded.items()
    }


def test_no_reference_reaches_any_history_but_ref(tmp_path):
    cuts = make_calls(tmp_path / "cuts")
    config = make_experiment(
        tmp_path / "exp", tmp_path / "cuts", attention="context", text_context="attention"
    )
    first = outputs(Experiment.open(config), cuts)
    for cut in cuts:
        cut.supervisions[0].text = "f f f f f f"
    second = outputs(Experiment.open(config), cuts)
    for mode in ("none", "hyp", "shuffled"):
        assert first[mode] == second[mode]
    assert first["ref"] != second["ref"]
    assert all(first[a] != first[b] for a, b in combinations(MODES, 2))


def test_none_is_every_turn_on_its_own(tmp_path):
    """Also for the encoder: a turn is recognised as if it were a conversation of one turn."""
    cuts = make_calls(tmp_path / "cuts")
    config = make_experiment(
        tmp_path / "exp", tmp_path / "cuts", attention="context", ctx_alpha=1.0
    )
    experiment = Experiment.open(config)
    none = {u.utt_id: u.hyp for u in experiment.decode(cuts, "none").utterances}
    for cut in cuts:
        [alone] = experiment.decode([cut], "hyp").utterances
        assert none[link_of(cut, "utt_id")] == alone.hyp
    assert none != {u.utt_id: u.hyp for u in experiment.decode(cuts, "hyp").utterances}


def test_choices_that_change_nothing_are_refused(tmp_path):
    make_calls(tmp_path / "cuts", calls=1)
    plain = make_experiment(tmp_path / "plain", tmp_path / "cuts")
    with pytest.raises(InputError, match="given nothing of earlier turns"):
        run_audit(plain, MODES)
    hears = make_experiment(tmp_path / "hears", tmp_path / "cuts", attention="context")
    recogniser = Experiment.open(hears).recogniser
    assert check_history(replace(hears, history="shuffled"), recogniser) == "shuffled"
    with pytest.raises(InputError, match="--history ref"):
        check_history(replace(hears, history="ref"), recogniser)


def test_command_line(tmp_path, capsys):
    make_calls(tmp_path / "cuts")
    baseline = make_experiment(tmp_path / "baseline", tmp_path / "cuts", seed=1)
    config = make_experiment(tmp_path / "exp", tmp_path / "cuts", text_context="conditional")
    arguments = ["audit", "--exp-dir", str(config.exp_dir), "--test-cuts", CUTS, "--avg", "1"]
    arguments += ["--beam-size", "2", "--max-len-ratio", "0.7", "--batch-size", "2"]
    with pytest.raises(SystemExit) as end:
        main(arguments + ["--baseline-exp-dir", str(baseline.exp_dir), "--bootstrap", "100"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    folder = config.exp_dir / "audit"
    assert text == (folder / "audit-test.txt").read_text()
    assert "side A" in text and "turn 0" in text and "against the baseline" in text
    report = json.loads((folder / "audit-test.json").read_text())
    histories = report["slices"][0]["histories"]
    assert list(histories) == ["baseline", "none", "hyp", "ref", "shuffled"]
    assert Image.open(folder / "audit-test.png").size[0] > 500
    names = {path.name for path in folder.glob("recogs-*")}
    assert names == {f"recogs-test-{history}.txt" for history in histories}

    for wrong, message in (
        (["--beam-size", "0"], "--beam-size 0 must be at least 1"),
        (["--beam-size", "x"], "'x' is not a whole number"),
        (["--test-cuts", ""], "no test set"),
        (["--test-cuts", "other.jsonl.gz"], "no such file"),
    ):
        with pytest.raises(SystemExit) as end:
            main(arguments + wrong)
        assert end.value.code == 2
        assert message in capsys.readouterr().err


def test_hypotheses_command_line(tmp_path, capsys):
    make_calls(tmp_path / "cuts", calls=1)
    config = make_experiment(tmp_path / "exp", tmp_path / "cuts", text_context="attention")
    cuts, output = tmp_path / "cuts" / CUTS, tmp_path / "out.jsonl"
    with pytest.raises(SystemExit) as end:
        main(["hypotheses", "--exp-dir", str(config.exp_dir), "--avg", "1", str(cuts), str(output)])
    assert end.value.code == 0
    assert "hypotheses of 4 turns" in capsys.readouterr().out
    assert len(CutSet.from_file(output)) == 4
