"""Hypotheses in a manifest: what batch decoding gives, at speed 1 only, and on after a kill."""

import json

import pytest
from lhotse import CutSet
from tiny_experiment import CUTS, make_calls, make_experiment

from icefall_ctx.data.datamodule import hypotheses_of
from icefall_ctx.decode import hypotheses as module
from icefall_ctx.decode.hypotheses import groups_of, write_hypotheses
from icefall_ctx.decode.run import Experiment
from icefall_ctx.errors import InputError


@pytest.fixture
def config(tmp_path):
    cuts = make_calls(tmp_path / "cuts")
    copies = [cut.perturb_speed(0.9) for cut in cuts]
    CutSet.from_cuts(copies + cuts).to_file(tmp_path / "cuts" / "both.jsonl.gz")
    return make_experiment(tmp_path / "exp", tmp_path / "cuts", text_context="attention")


def expected(config, tmp_path):
    experiment = Experiment.open(config)
    cuts = list(CutSet.from_file(tmp_path / "cuts" / CUTS))
    decoded = experiment.decode(cuts, "hyp")
    return {u.utt_id: " ".join(u.hyp) for u in decoded.utterances}


def test_written_for_originals_and_read_by_training(config, tmp_path):
    output = tmp_path / "out" / "hyps.jsonl.gz"
    write_hypotheses(config, tmp_path / "cuts" / "both.jsonl.gz", output)
    written = list(CutSet.from_file(output))
    assert [c.id for c in written] == [
        c.id for c in CutSet.from_file(tmp_path / "cuts" / "both.jsonl.gz")
    ]
    assert all("hyp" not in c.supervisions[0].custom for c in written[:12])
    assert all(0 <= c.supervisions[0].custom["hyp_confidence"] <= 1 for c in written[12:])
    assert hypotheses_of(written) == expected(config, tmp_path)
    assert list(output.parent.iterdir()) == [output]


def test_goes_on_after_a_kill(config, tmp_path, monkeypatch):
    output = tmp_path / "hyps.jsonl.gz"
    decode, decoded = module.decode_group, []

    def killed(experiment, history, cuts, bar):
        decoded.append([cut.id for cut in cuts])
        if len(decoded) == 2:
            raise KeyboardInterrupt
        return decode(experiment, history, cuts, bar)

    monkeypatch.setattr(module, "GROUP", 1)
    monkeypatch.setattr(module, "decode_group", killed)
    cuts = tmp_path / "cuts" / CUTS
    with pytest.raises(KeyboardInterrupt):
        write_hypotheses(config, cuts, output)
    partial = tmp_path / "hyps.jsonl.gz.partial"
    with open(partial, "a", encoding="utf-8") as file:
        file.write('{"run": "cut off by the ki')
    assert not output.exists()
    write_hypotheses(config, cuts, output)
    assert len(decoded) == 3 and decoded[1] == decoded[2]  # the first group was not done again
    assert hypotheses_of(CutSet.from_file(output)) == expected(config, tmp_path)
    assert not partial.exists()


def test_results_of_other_settings_are_not_taken(config, tmp_path):
    output = tmp_path / "hyps.jsonl.gz"
    other = json.dumps({"run": "another", "heard": {"call0-0": ["wrong", 1.0]}})
    (tmp_path / "hyps.jsonl.gz.partial").write_text(other + "\n")
    write_hypotheses(config, tmp_path / "cuts" / CUTS, output)
    assert hypotheses_of(CutSet.from_file(output)) == expected(config, tmp_path)


def test_groups_are_whole_conversations(tmp_path):
    cuts = make_calls(tmp_path / "cuts", calls=3, turns=2)
    mixed = cuts[::2] + cuts[1::2]
    groups = [{cut.recording_id for cut in group} for group in groups_of(mixed, 2)]
    assert groups == [{"call0", "call1"}, {"call2"}]


def test_refused(config, tmp_path):
    with pytest.raises(InputError, match="does not end in"):
        write_hypotheses(config, tmp_path / "cuts" / CUTS, tmp_path / "hyps.txt")
    fast = CutSet.from_file(tmp_path / "cuts" / CUTS).perturb_speed(1.1)
    fast.to_file(tmp_path / "fast.jsonl.gz")
    with pytest.raises(InputError, match="other speeds only"):
        write_hypotheses(config, tmp_path / "fast.jsonl.gz", tmp_path / "hyps.jsonl.gz")
