"""Decoding from files to files: no reference reaches the output, batches change nothing."""

import gzip
import json
import random
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from model_inputs import small_model

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
from synthetic import make_data, tiny_model  # noqa: E402

from icefall_ctx.config import TrainConfig  # noqa: E402
from icefall_ctx.decode import run  # noqa: E402
from icefall_ctx.decode.run import main  # noqa: E402
from icefall_ctx.train.checkpoint import epoch_path, save_checkpoint  # noqa: E402
from icefall_ctx.train.loop import prepare_exp_dir, with_tokenizer  # noqa: E402

TEST = "train.jsonl.gz"  # six conversations of four turns


def experiment(folder: Path, **options) -> Path:
    """An exp_dir with a model of random weights, and cuts, beside it."""
    data = make_data(folder, tiny_model())
    config = with_tokenizer(tiny_model(**options), data.tokenizer)
    model = small_model(
        **{k: getattr(config, k) for k in ("vocab_size", "vocab_fingerprint", "decoder_layers")},
        **options,
    )
    model.ctc.bias.data[0] = -1.0
    exp_dir = folder / "exp"
    prepare_exp_dir(model.config, data.data, TrainConfig(exp_dir=exp_dir), data.tokenizer)
    state = {"model": model.state_dict(), "valid_losses": {1: 1.0}}
    save_checkpoint(epoch_path(exp_dir, 1), state)
    return exp_dir


def decode(exp_dir: Path, *flags: str) -> None:
    main(argv=["--exp-dir", str(exp_dir), "--avg", "1", "--test-cuts", TEST,
               "--max-len-ratio", "0.4", "--beam-size", "3", *flags])  # fmt: skip


def hyp_lines(exp_dir: Path, method: str = "beam") -> str:
    [path] = (exp_dir / method).glob("recogs-*.txt")
    lines = [line for line in path.read_text().splitlines() if "\thyp=" in line]
    path.unlink()
    assert len(lines) == 24
    return "\n".join(lines)


def corrupt(path: Path) -> None:
    """Every transcript becomes another one, also where it stands as a link's text."""
    rng = random.Random(1)
    with gzip.open(path, "rt") as stream:
        cuts = [json.loads(line) for line in stream]
    for cut in cuts:
        cut["supervisions"][0]["text"] = "".join(rng.choices("abcdef", k=rng.randint(1, 9)))
    with gzip.open(path, "wt") as stream:
        stream.writelines(json.dumps(cut) + "\n" for cut in cuts)


CONTEXTS = [
    dict(attention="context", text_context="conditional"),
    dict(attention="context", text_context="attention", encoder="conformer"),
]


@pytest.mark.parametrize("options", CONTEXTS, ids=lambda o: o["text_context"])
def test_references_do_not_reach_the_output(tmp_path, options):
    """hyp, none and shuffled: byte for byte the same; ref, as a control, is not."""
    exp_dir = experiment(tmp_path, **options)
    before, after = {}, {}
    for outputs in (before, after):
        for history in ("hyp", "none", "shuffled", "ref"):
            decode(exp_dir, "--history", history)
            outputs[history] = hyp_lines(exp_dir)
        if outputs is before:
            corrupt(tmp_path / TEST)
    assert {k for k in before if before[k] != after[k]} == {"ref"}
    assert before["none"] != before["hyp"] != before["ref"]


@pytest.mark.parametrize("method", ["beam", "ctc-greedy", "ctc-prefix-beam"])
def test_batches_of_conversations_change_nothing(tmp_path, method):
    exp_dir = experiment(tmp_path, attention="context", text_context="attention")
    outputs = []
    for size in ("1", "2", "16"):
        decode(exp_dir, "--method", method, "--batch-size", size)
        outputs.append(hyp_lines(exp_dir, method))
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.parametrize("flags, says", [
    (["--history", "ref"], "read no text"),
    (["--history", "shuffled"], "read no text"),
    (["--history-min-confidence", "0.5"], "nothing here reads hypotheses"),
    (["--carry-lm-state", "yes"], "need --lm-exp-dir"),
    (["--lm-scale", "0.3"], "need --lm-exp-dir"),
    (["--lm-exp-dir", "lm"], "--lm-scale"),
    (["--lm-exp-dir", "lm", "--lm-scale", "0.3", "--method", "ctc-greedy"], "no LSTM language"),
    (["--method", "baem"], "none of beam"),
    (["--tune-cuts", "valid.jsonl.gz"], "of lattice methods"),
    (["--scales", "lm=1", "--method", "ctc-greedy"], "of lattice methods"),
    (["--test-cuts", "absent.jsonl.gz"], "absent.jsonl.gz"),
    (["--test-cuts", ""], "--test-cuts"),
    (["--exp-dir", "nowhere"], "nowhere"),
    (["--avg", "7"], "--avg"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else "")  # fmt: skip
def test_an_option_that_would_change_nothing_is_refused(tmp_path, capsys, flags, says):
    exp_dir = experiment(tmp_path)
    with pytest.raises(SystemExit) as stop:
        decode(exp_dir, *flags)
    message = capsys.readouterr().err.strip()
    assert stop.value.code == 2 and says in message and "\n" not in message


def test_result_files_and_a_turn_that_cannot_be_decoded(tmp_path):
    exp_dir = experiment(tmp_path)
    with gzip.open(tmp_path / TEST, "rt") as stream:
        lost = json.loads(stream.readline())
    path = Path(lost["features"]["storage_path"]) / lost["features"]["storage_key"]
    import numpy as np

    np.save(path, np.full_like(np.load(path), np.nan))
    decode(exp_dir)
    folder = exp_dir / "beam"
    kinds = {p.name.split("-")[0] for p in folder.iterdir()}
    assert {"recogs", "errs", "wer", "report"} <= kinds
    recogs = next(folder.glob("recogs-*")).read_text()
    assert f"{lost['id']}:\thyp=None" in recogs
    report = json.loads(next(folder.glob("report-*.json")).read_text())
    assert report["real_time_factor"] > 0
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--test-cuts", ",,"], "no test set"),
        (["--suffix", "a/b"], "--suffix a/b"),
        (["--index", "x.jsonl.gz"], "only --history ref reads it"),
        (["--output-dir", "/proc/none"], "/proc/none"),
    ],
)
def test_options_that_would_do_nothing_or_fail_late(tmp_path, capsys, flags, message):
    exp_dir = experiment(tmp_path)
    with pytest.raises(SystemExit) as left:
        decode(exp_dir, *flags)
    assert left.value.code == 2 and message in capsys.readouterr().err


def test_memory_of_a_conversation_is_let_go_though_a_turn_was_left_out(monkeypatch):
    """The last of "a" was too short, as was the only one of "b": batches without them."""
    known, held = {}, []

    def alive():
        return sorted(conv_id for conv_id, session in known.items() if session() is not None)

    class Recogniser:
        def recognise(self, batch, rows, histories):
            known.update((session.conv_id, weakref.ref(session)) for session in rows)
            held.append(alive())

    def batch(*conv_ids):
        made = SimpleNamespace(conv_ids=list(conv_ids))
        made.to = lambda device: made
        return made

    monkeypatch.setattr(run, "collect", lambda *_: None)
    source = SimpleNamespace(replace_scores=lambda rows: None, histories=lambda batch, rows: None)
    batches = [batch("a"), batch("c"), None, batch("c")]
    run.decode_cuts(Recogniser(), batches, [[], ["a"], ["b"], ["c"]], None, source)
    assert held == [["a"], ["a", "c"], ["c"]] and not alive()
