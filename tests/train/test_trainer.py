"""Runs: interrupted ones equal uninterrupted ones, two processes equal one."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from synthetic import make_data, tiny_model, tiny_training

from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.errors import InputError
from icefall_ctx.train import checkpoint as ckpt
from icefall_ctx.train.loop import train
from icefall_ctx.train.losses import compute_loss
from icefall_ctx.train.trainer import MAX_BAD_BATCHES, Trainer

CONTEXT = dict(attention="context", text_context="attention", encoder="conformer", dropout=0.2)


class Recorder:
    """The loss function, noting which batches it saw, and dying after ``limit`` of them."""

    def __init__(self, limit=None):
        self.limit = limit
        self.seen = []

    def __call__(self, model, batch, config, augment):
        loss, metrics = compute_loss(model, batch, config, augment)
        if model.training:
            if self.limit is not None and len(self.seen) == self.limit:
                raise KeyboardInterrupt
            self.seen.append((batch.cut_ids, float(loss)))
        return loss, metrics


def assert_equal_states(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def last_records(exp_dir):
    records = [json.loads(line) for line in (exp_dir / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k != "seconds"} for r in records]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupted_run_is_the_uninterrupted_run(tmp_path, workers):
    """Killed inside the second epoch and after its last batch; continued with the same result."""
    model = tiny_model(**CONTEXT)
    data = make_data(tmp_path, model, ("", "_sp0.9"), history_noise=0.4, history_drop=0.2)
    data = AsrDataModule(replace(data.data, num_workers=workers), model, data.tokenizer, seed=7)
    config = tiny_training(tmp_path / "whole", save_every_n=2, keep_last_k=1, accum_grad=2)
    whole = Recorder()
    train(model, data.data, config, data, whole)
    batches = len(whole.seen) // 2
    assert batches % 4 != 0, "the epoch ends with an update of its own"
    expected = ckpt.read_checkpoint(tmp_path / "whole" / "epoch-2.pt")

    exp = tmp_path / "parts"
    for limit in (batches // 2, batches + 1, None):
        start = _done(exp, batches)
        part = Recorder(limit and limit - start)
        try:
            train(model, data.data, replace(config, exp_dir=exp), data, part)
        except KeyboardInterrupt:
            pass
        assert part.seen == whole.seen[start : start + len(part.seen)]
    found = ckpt.read_checkpoint(exp / "epoch-2.pt")
    assert_equal_states(expected["model"], found["model"])
    for a, b in zip(
        expected["optimizer"]["state"].values(), found["optimizer"]["state"].values()
    ):
        assert_equal_states(a, b)
    assert expected["valid_losses"] == found["valid_losses"]
    assert last_records(tmp_path / "whole") == last_records(exp)


def _done(exp, batches):
    """How many batches, in epochs of ``batches``, the next start will not see again."""
    found = ckpt.latest_checkpoint(exp)
    if found is None:
        return 0
    return (found[1]["epoch"] - 1) * batches + found[1]["sampler"]["position"]


def test_saved_after_the_last_batch_of_an_epoch(tmp_path):
    """A checkpoint between the last update and the validation: nothing is trained twice."""
    model = tiny_model()
    data = make_data(tmp_path, model)
    config = tiny_training(tmp_path / "exp", save_every_n=1, keep_last_k=1)
    whole = train(model, data.data, config, data).model.state_dict()
    # as if killed before epoch-2.pt was written
    (tmp_path / "exp" / "epoch-2.pt").unlink()
    recorder = Recorder()
    again = train(model, data.data, config, data, recorder)
    assert recorder.seen == []
    assert_equal_states(whole, again.model.state_dict())
    assert (tmp_path / "exp" / "epoch-2.pt").exists()


def test_a_finished_run_can_be_prolonged_or_done_again_from_an_epoch(tmp_path, caplog):
    model = tiny_model()
    data = make_data(tmp_path, model)
    config = tiny_training(tmp_path / "exp", num_epochs=2)
    train(model, data.data, config, data)
    longer = train(model, data.data, replace(config, num_epochs=3), data)
    again = train(model, data.data, replace(config, num_epochs=3, start_epoch=3), data)
    assert_equal_states(longer.model.state_dict(), again.model.state_dict())
    assert "epoch-3.pt: of an earlier run from here" in caplog.text
    assert [r["epoch"] for r in last_records(tmp_path / "exp")] == [1, 2, 3]
    with pytest.raises(InputError, match="epoch-7.pt: no such checkpoint"):
        train(model, data.data, replace(config, start_epoch=8), data)


def test_changed_batches_start_the_epoch_again(tmp_path, caplog):
    model = tiny_model()
    data = make_data(tmp_path, model)
    config = tiny_training(tmp_path / "exp", num_epochs=1, save_every_n=3)
    with pytest.raises(KeyboardInterrupt):
        train(model, data.data, config, data, Recorder(4))
    smaller = AsrDataModule(replace(data.data, max_duration=1.0), model, data.tokenizer, seed=7)
    recorder = Recorder()
    train(model, smaller.data, config, smaller, recorder)
    assert "epoch 1 starts again" in caplog.text
    assert sum(len(ids) for ids, _ in recorder.seen) == len(data.train_cuts)


def test_another_model_in_the_folder_is_refused(tmp_path):
    model = tiny_model()
    data = make_data(tmp_path, model)
    config = tiny_training(tmp_path / "exp", num_epochs=1)
    train(model, data.data, config, data)
    with pytest.raises(InputError, match="ff_dim 32 there, 64 here.*choose another --exp-dir"):
        train(tiny_model(ff_dim=64), data.data, config, data)


def test_a_batch_without_a_finite_loss_is_named_skipped_and_counted(tmp_path, caplog):
    model = tiny_model(encoder="conformer")
    data = make_data(tmp_path, model)
    bad = data.train_cuts[3].id

    def guarded(module, batch, config, augment):
        """The statistics of batch norm are spoilt, as by features that are not finite."""
        loss, metrics = compute_loss(module, batch, config, augment)
        if module.training and bad in batch.cut_ids:
            for layer in module.modules():
                if isinstance(layer, torch.nn.BatchNorm1d):
                    layer.running_mean.fill_(float("nan"))
            return loss * float("nan"), metrics
        return loss, metrics

    trainer = train(model, data.data, tiny_training(tmp_path / "exp"), data, guarded)
    assert any(
        bad in message and "batch without a finite loss" in message for message in caplog.messages
    )
    assert all(torch.isfinite(v).all() for v in trainer.model.state_dict().values())
    for record in last_records(tmp_path / "exp"):
        assert record["train"]["skipped batches"] == 1
        skipped = len(data.train_cuts) - record["train"]["utterances"]
        assert 1 <= skipped <= 10
        assert record["train"]["loss"] < 20 and record["valid"]["loss"] < 20
    reported = [p.place for p in trainer.problems.problems]
    assert len(reported) == len(set(reported)) <= 2, "a batch is named once"


def test_a_gradient_that_is_not_finite_changes_no_parameter(tmp_path, caplog):
    model = tiny_model()
    data = make_data(tmp_path, model)

    class Spoiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, loss):
            return loss.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("inf")

    trainer = _fresh(tmp_path, model, data, lambda *a: _first(Spoiled, compute_loss(*a)))
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    batch = next(iter(data.train_dataloader(1)))
    trainer.model.train()
    trainer.train_batch(batch)
    trainer.update()
    assert_equal_states(before, trainer.model.state_dict())
    assert "update without a finite gradient" in caplog.text and batch.cut_ids[0] in caplog.text


def _first(function, pair):
    return function.apply(pair[0]), pair[1]


def _fresh(tmp_path, model, data, loss_function=compute_loss, **options):
    from icefall_ctx.models.asr import build_model
    from icefall_ctx.train.loop import with_tokenizer

    torch.manual_seed(0)
    built = build_model(with_tokenizer(model, data.tokenizer))
    config = tiny_training(tmp_path / "exp", **options)
    return Trainer(built, data, config, loss_function=loss_function)


def test_training_that_cannot_recover_is_given_up(tmp_path):
    model = tiny_model()
    data = make_data(tmp_path, model)

    def never(*args):
        loss, metrics = compute_loss(*args)
        return loss * float("nan"), metrics

    with pytest.raises(InputError, match=f"{MAX_BAD_BATCHES} batches in a row without a finite"):
        train(model, data.data, tiny_training(tmp_path / "exp", num_epochs=30), data, never)


def test_accumulated_batches_are_one_batch(tmp_path):
    """Gradients of two accumulated batches are those of the batch that holds both."""
    model = tiny_model(dropout=0.0)
    data = make_data(tmp_path, model, spec_augment=False)
    trainer = _fresh(tmp_path, model, data, grad_clip=1e9)
    cuts = data.train_cuts[:7]
    gradients = []
    for parts in ([cuts], [cuts[:2], cuts[2:]]):
        captured = {}
        trainer.optimizer.step = lambda: captured.update(
            {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}
        )
        for part in parts:
            trainer.train_batch(data.train_dataset[part])
        trainer.update()
        gradients.append(captured)
    assert gradients[0].keys() == gradients[1].keys() and gradients[0]
    for name in gradients[0]:
        torch.testing.assert_close(gradients[0][name], gradients[1][name], atol=1e-6, rtol=1e-4)


def test_frozen_modules_do_not_change(tmp_path):
    model = tiny_model(encoder="conformer")
    data = make_data(tmp_path, model)
    config = tiny_training(tmp_path / "exp", num_epochs=1, freeze="encoder,ctc")
    before = {}

    def noting(module, *rest):
        before or before.update({k: v.clone() for k, v in module.state_dict().items()})
        return compute_loss(module, *rest)

    after = train(model, data.data, config, data, noting).model.state_dict()
    changed = {name.split(".")[0] for name in after if not torch.equal(after[name], before[name])}
    assert changed == {"decoder"}


def test_a_tiny_model_learns_and_leaves_what_a_user_looks_for(tmp_path):
    model = tiny_model(dropout=0.0, dim=32, heads=4)
    data = make_data(tmp_path, model, spec_augment=False)
    config = tiny_training(
        tmp_path / "exp", num_epochs=12, lr_factor=0.3, warmup=30, tensorboard=True
    )
    train(model, data.data, config, data)
    records = last_records(tmp_path / "exp")
    assert records[-1]["train"]["loss"] < 0.6 * records[0]["train"]["loss"]
    assert records[-1]["valid"]["acc"] > records[0]["valid"]["acc"]
    names = {p.name for p in (tmp_path / "exp").iterdir()}
    assert {"config.yaml", "lang", "train.log", "curves.png", "tensorboard"} <= names
    assert (tmp_path / "exp" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "exp" / "tensorboard").iterdir())
    best = ckpt.best_epochs(tmp_path / "exp")
    losses = {r["epoch"]: r["valid"]["loss"] for r in records}
    assert best == sorted(losses, key=losses.get)


def test_feature_statistics_are_those_of_the_training_cuts(tmp_path):
    model = tiny_model()
    data = make_data(tmp_path, model)
    trainer = train(model, data.data, tiny_training(tmp_path / "exp", num_epochs=1), data)
    frames = torch.cat([torch.from_numpy(c.load_features()) for c in data.train_cuts])
    torch.testing.assert_close(trainer.model.feature_mean, frames.mean(0), atol=1e-5, rtol=1e-4)
    std = frames.std(0, unbiased=False)
    torch.testing.assert_close(trainer.model.feature_std, std, atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------- the command line

TRAIN = """
import sys
sys.path.insert(0, {tests!r})
from icefall_ctx.train.loop import main
main({{"model": {model!r}, "train": {{"tensorboard": False, "num_threads": 1}}}})
"""
SMALL = dict(
    feature_dim=8, encoder_layers=1, decoder_layers=1, dim=16, ff_dim=32, heads=2, dropout=0.0
)


def run_main(folder, *flags, wait=True, **popen):
    script = TRAIN.format(tests=str(Path(__file__).parent), model=SMALL)
    command = [sys.executable, "-c", script, *map(str, flags)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen(command, cwd=folder, env=environment, **pipes, **popen)
    if not wait:
        return process
    output, errors = process.communicate(timeout=120)
    return process.returncode, output + errors


def data_flags(folder):
    return [
        "--manifest-dir", folder, "--lang-dir", folder / "lang_char",
        "--train-cuts", "train.jsonl.gz", "--valid-cuts", "valid.jsonl.gz",
        "--max-duration", 2, "--spec-augment", "false", "--warmup", 20,
    ]


@pytest.mark.slow
def test_two_processes_give_the_gradients_of_one(tmp_path):
    """Two processes with one batch each, and one process with two: the same parameters."""
    make_data(tmp_path, tiny_model())
    flags = data_flags(tmp_path) + ["--num-epochs", 1]
    code, output = run_main(tmp_path, *flags, "--exp-dir", "one", "--accum-grad", 2)
    assert code == 0, output
    code, output = run_main(tmp_path, *flags, "--exp-dir", "two", "--world-size", 2)
    assert code == 0, output
    one, two = (ckpt.read_checkpoint(tmp_path / n / "epoch-1.pt") for n in ("one", "two"))
    assert one["step"] == two["step"] >= 3
    for name, value in one["model"].items():
        torch.testing.assert_close(two["model"][name], value, atol=1e-5, rtol=1e-4)
    a, b = last_records(tmp_path / "one")[0], last_records(tmp_path / "two")[0]
    assert a["train"]["utterances"] == b["train"]["utterances"]
    assert a["valid"]["loss"] == pytest.approx(b["valid"]["loss"], rel=1e-4)


@pytest.mark.slow
def test_torchrun_is_understood(tmp_path):
    make_data(tmp_path, tiny_model())
    (tmp_path / "train.py").write_text(TRAIN.format(tests=str(Path(__file__).parent), model=SMALL))
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "train.py", *map(str, data_flags(tmp_path)), "--num-epochs", "1", "--exp-dir", "exp",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert ckpt.read_checkpoint(tmp_path / "exp" / "epoch-1.pt")["world_size"] == 2


@pytest.mark.slow
def test_killed_at_any_moment_the_next_start_continues(tmp_path):
    make_data(tmp_path, tiny_model())
    flags = data_flags(tmp_path) + ["--num-epochs", 3, "--save-every-n", 1]
    code, output = run_main(tmp_path, *flags, "--exp-dir", "whole")
    assert code == 0, output
    exp = tmp_path / "parts"
    for more in (2, 7):
        process = run_main(tmp_path, *flags, "--exp-dir", exp, wait=False)
        before = max(ckpt.step_checkpoints(exp), default=0)
        deadline = time.time() + 60
        while max(ckpt.step_checkpoints(exp), default=0) < before + more:
            assert process.poll() is None and time.time() < deadline
            time.sleep(0.002)
        process.kill()
        process.communicate()
    code, output = run_main(tmp_path, *flags, "--exp-dir", exp)
    assert code == 0 and "continuing from" in output, output
    whole, parts = (ckpt.read_checkpoint(e / "epoch-3.pt") for e in (tmp_path / "whole", exp))
    assert_equal_states(whole["model"], parts["model"])
    assert not list(exp.glob(".tmp-*.pt"))


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--max-duratoin", 3], "unknown option '--max-duratoin'; did you mean --max-duration?"),
        (["--train-cuts", "no.jsonl.gz"], "no.jsonl.gz: no such file"),
        (["--lang-dir", "nowhere"], "nowhere: no such file or folder"),
        (["--world-size", 0], "--world-size 0"),
        (["--config", "none.yaml"], "none.yaml"),
        (["--exp-dir", "train.jsonl.gz/x"], "--exp-dir train.jsonl.gz/x: Not a directory"),
        (["--init-from", "no.pt"], "no.pt: no such checkpoint"),
        (["--feature-dim", 83], "the model expects 83"),
    ],
)
def test_mistakes_end_in_one_line(tmp_path, flags, message, monkeypatch, capfd):
    from icefall_ctx.train.loop import main

    make_data(tmp_path, tiny_model())
    monkeypatch.chdir(tmp_path)
    arguments = [str(f) for f in [*data_flags(tmp_path), "--exp-dir", "exp", *flags]]
    with pytest.raises(SystemExit) as end:
        main({"model": SMALL, "train": {"tensorboard": False}}, arguments)
    assert end.value.code == 2
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert message in last and "Traceback" not in last


def test_two_trainings_in_one_folder(tmp_path, monkeypatch, capfd):
    """The second would delete what the first is writing."""
    from icefall_ctx.files import only_one
    from icefall_ctx.train.loop import main

    make_data(tmp_path, tiny_model())
    monkeypatch.chdir(tmp_path)
    with only_one("exp"), pytest.raises(SystemExit) as end:
        main({"model": SMALL}, [str(f) for f in [*data_flags(tmp_path), "--exp-dir", "exp"]])
    assert end.value.code == 2 and "another process is writing" in capfd.readouterr().err
    assert [path.name for path in Path("exp").iterdir()] == [".lock"]
