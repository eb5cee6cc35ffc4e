"""Checkpoints: whole files, strict loading, the true mean."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
from synthetic import make_data, tiny_model, tiny_training
from torch import nn

from icefall_ctx.config import ModelConfig, load_config
from icefall_ctx.errors import InputError
from icefall_ctx.models.asr import build_model
from icefall_ctx.train import checkpoint as ckpt
from icefall_ctx.train.loop import train


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """A run of three epochs."""
    folder = tmp_path_factory.mktemp("experiment")
    model = tiny_model()
    data = make_data(folder, model)
    config = tiny_training(folder / "exp", num_epochs=3, save_every_n=4, keep_last_k=2)
    train(model, data.data, config, data)
    return folder / "exp"


def write(path, step, **state):
    ckpt.save_checkpoint(path, {"model": state, "step": step})
    return path


def test_the_mean_is_that_of_a_hand(tmp_path):
    rows = [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0]), torch.tensor([2.0, 1.0])]
    counts = [torch.tensor(7), torch.tensor(9), torch.tensor(12)]
    half = [torch.tensor([1.0], dtype=torch.float16) * k for k in (1, 2, 6)]
    paths = [
        write(tmp_path / f"epoch-{i}.pt", i, w=rows[i], tied=rows[i], n=counts[i], h=half[i])
        for i in range(3)
    ]
    mean = ckpt.average_checkpoints(paths)
    assert mean["w"].tolist() == [2.0, 3.0] == mean["tied"].tolist()
    assert mean["n"] == 9 and mean["n"].dtype == torch.int64
    assert mean["h"].item() == 3.0 and mean["h"].dtype == torch.float16
    assert ckpt.average_checkpoints(paths[:1])["w"].tolist() == [1.0, 2.0]


def test_tied_weights_are_averaged_once(tmp_path):
    """Two names of one tensor: adding in place would count it twice."""
    paths = []
    for i, value in enumerate((1.0, 3.0)):
        model = nn.ModuleDict({"a": nn.Linear(2, 2, False), "b": nn.Linear(2, 2, False)})
        model["b"].weight = model["a"].weight
        nn.init.constant_(model["a"].weight, value)
        path = tmp_path / f"epoch-{i}.pt"
        ckpt.save_checkpoint(path, {"model": model.state_dict(), "step": i})
        paths.append(path)
    mean = ckpt.average_checkpoints(paths)
    assert mean["a.weight"].unique().tolist() == [2.0] == mean["b.weight"].unique().tolist()
    ckpt.load_state(model, mean, "mean")
    assert model["a"].weight is model["b"].weight


def test_equal_steps_count_once(tmp_path, caplog):
    a = write(tmp_path / "epoch-1.pt", 5, w=torch.tensor([1.0]))
    b = write(tmp_path / "checkpoint-5.pt", 5, w=torch.tensor([1.0]))
    c = write(tmp_path / "epoch-2.pt", 9, w=torch.tensor([4.0]))
    assert ckpt.average_checkpoints([a, b, c])["w"].item() == 2.5
    assert "checkpoint-5.pt: same update as" in caplog.text


def test_too_few_or_different_checkpoints(tmp_path):
    with pytest.raises(InputError, match="no checkpoints"):
        ckpt.average_checkpoints([])
    a = write(tmp_path / "epoch-1.pt", 1, w=torch.zeros(2))
    b = write(tmp_path / "epoch-2.pt", 2, w=torch.zeros(3))
    with pytest.raises(InputError, match=r"epoch-2.pt: cannot be averaged .* w \(3,\) instead of"):
        ckpt.average_checkpoints([a, b])
    for epoch, avg, text in [
        (0, 5, "2 of the 5 best epochs"),
        (2, 5, r"2 of the 5 epochs -2 .. 2"),
        (7, 1, "0 of the 1 epochs 7 .. 7 to average; there are 1, 2"),
        (0, 0, "--avg 0"),
    ]:
        for i in (1, 2):
            state = {"model": {}, "step": i, "valid_losses": {1: 0.4, 2: 0.3}}
            ckpt.save_checkpoint(tmp_path / f"epoch-{i}.pt", state)
        with pytest.raises(InputError, match=text):
            ckpt.chosen_checkpoints(tmp_path, epoch, avg)
    with pytest.raises(InputError, match="holds no epoch-N.pt"):
        ckpt.chosen_checkpoints(tmp_path / "nowhere", 0, 1)


def test_best_epochs_are_those_of_lowest_validation_loss(tmp_path):
    losses = {1: 0.5, 2: 0.2, 3: 0.3, 4: 0.2}
    for epoch in (1, 2, 4):
        state = {"model": {}, "step": epoch, "valid_losses": losses}
        ckpt.save_checkpoint(ckpt.epoch_path(tmp_path, epoch), state)
    assert ckpt.best_epochs(tmp_path) == [2, 4, 1]
    assert [p.name for p in ckpt.chosen_checkpoints(tmp_path, 0, 2)] == ["epoch-2.pt", "epoch-4.pt"]


def test_loaded_model_is_the_mean_with_its_tokenizer(experiment):
    model, tokenizer, config = ckpt.load_model(experiment, epoch=3, avg=2)
    states = [ckpt.read_checkpoint(experiment / f"epoch-{e}.pt")["model"] for e in (2, 3)]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, (states[0][name] + states[1][name]) / 2)
    assert not model.training
    assert tokenizer.fingerprint == config.vocab_fingerprint
    assert config == load_config(experiment / "config.yaml", ModelConfig)


def test_another_tokenizer_is_refused(experiment, tmp_path):
    from icefall_ctx.text.tokenizer import train_char

    shutil.copytree(experiment, tmp_path / "exp")
    train_char(["xyz"]).save(tmp_path / "exp" / "lang")
    with pytest.raises(InputError, match="not the tokenizer that the model was trained with"):
        ckpt.load_model(tmp_path / "exp")


class Malicious:
    """Runs a command when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_loading_runs_no_code(tmp_path):
    torch.save({"model": Malicious(tmp_path / "ran")}, tmp_path / "epoch-1.pt")
    (tmp_path / "epoch-2.pt").write_bytes(pickle.dumps(Malicious(tmp_path / "ran")))
    for name in ("epoch-1.pt", "epoch-2.pt"):
        with pytest.raises(InputError, match="not a checkpoint of plain data"):
            ckpt.read_checkpoint(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04", b"\x80\x02}q\x00."])
def test_files_that_are_no_checkpoints(tmp_path, content):
    (tmp_path / "epoch-1.pt").write_bytes(content)
    with pytest.raises(InputError, match="epoch-1.pt"):
        ckpt.read_checkpoint(tmp_path / "epoch-1.pt")
    with pytest.raises(InputError, match="no such checkpoint"):
        ckpt.read_checkpoint(tmp_path / "epoch-9.pt")


def test_a_different_model_is_refused_with_names(experiment):
    state = ckpt.read_checkpoint(experiment / "epoch-1.pt")["model"]
    config = load_config(experiment / "config.yaml", ModelConfig)
    import dataclasses

    for change, text in [
        ({"encoder_layers": 3}, "missing: encoder.layers.2"),
        ({"encoder_layers": 1}, "unexpected: encoder.layers.1"),
        ({"ff_dim": 48}, r"other shape: .*\(32, 16\) instead of \(48, 16\)"),
    ]:
        model = build_model(dataclasses.replace(config, **change))
        before = {k: v.clone() for k, v in model.state_dict().items()}
        with pytest.raises(InputError, match=text):
            ckpt.load_state(model, state, "epoch-1.pt")
        assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("encoder", ["transformer", "conformer"])
@pytest.mark.parametrize(
    "context",
    [
        dict(attention="context"),
        dict(text_context="conditional"),
        dict(attention="context", text_context="attention"),
    ],
)
def test_context_models_start_from_a_baseline(tmp_path, encoder, context, caplog):
    import dataclasses

    caplog.set_level("INFO")
    plain = tiny_model(encoder=encoder, vocab_size=9, vocab_fingerprint="f")
    baseline = build_model(plain)
    path = tmp_path / "epoch-9.pt"
    ckpt.save_checkpoint(path, {"model": baseline.state_dict(), "config": ckpt.plain(plain)})
    model = build_model(dataclasses.replace(plain, **context))
    new = ckpt.init_from(model, path, "f")
    assert new and "new modules: " + new[0] in caplog.text
    state = model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in baseline.state_dict().items())
    with pytest.raises(InputError, match="another tokenizer"):
        ckpt.init_from(model, path, "g")
    for wrong in (dict(encoder_layers=1), dict(ff_dim=48)):
        with pytest.raises(InputError, match="--init-from .*does not fit"):
            ckpt.init_from(build_model(dataclasses.replace(plain, **wrong)), path, "f")


@pytest.mark.parametrize("encoder", ["conformer", "lstm"])
def test_speaker_features_start_unheard(tmp_path, encoder):
    """A model with i-vectors that starts from a baseline computes what the baseline does."""
    import dataclasses

    torch.manual_seed(0)
    plain = tiny_model(encoder=encoder, vocab_size=9, vocab_fingerprint="f")
    baseline = build_model(plain).eval()
    path = tmp_path / "epoch-9.pt"
    ckpt.save_checkpoint(path, {"model": baseline.state_dict(), "config": ckpt.plain(plain)})
    config = dataclasses.replace(plain, speaker_features="ivector", speaker_dim=13)
    model = build_model(config).eval()
    ckpt.init_from(model, path, "f")
    features, lens = torch.randn(2, 50, plain.feature_dim), torch.tensor([50, 31])
    narrow = baseline.encoder(baseline.encoder_input(features, lens, None, None), lens)
    for speaker in (torch.zeros(2, 13), torch.randn(2, 13)):
        wide = model.encoder(model.encoder_input(features, lens, speaker, None), lens)
        torch.testing.assert_close(wide.out, narrow.out, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="other shape"):
        ckpt.init_from(build_model(dataclasses.replace(config, dim=24)), path, "f")


def test_part_of_a_module_is_not_a_new_module(tmp_path):
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    state = {k: v for k, v in model.state_dict().items() if k != "a.bias"}
    path = write(tmp_path / "epoch-1.pt", 1, **state)
    with pytest.raises(InputError, match="missing: a.bias"):
        ckpt.init_from(model, path, "")
    path = write(tmp_path / "epoch-2.pt", 1, c=torch.zeros(1))
    with pytest.raises(InputError, match="does not fit"):
        ckpt.init_from(model, path, "")


def test_the_newest_whole_checkpoint_is_taken(experiment, tmp_path, caplog):
    exp = tmp_path / "exp"
    shutil.copytree(experiment, exp)
    last = ckpt.read_checkpoint(exp / "epoch-3.pt")["step"]
    path, found = ckpt.latest_checkpoint(exp)
    assert path.name == "epoch-3.pt" and found["step"] == last
    (exp / "epoch-3.pt").write_bytes((exp / "epoch-3.pt").read_bytes()[:5000])
    path, found = ckpt.latest_checkpoint(exp)
    assert path.name.startswith("checkpoint-") and last - 4 < found["step"] <= last
    assert "epoch-3.pt: not a checkpoint of plain data, or cut off" in caplog.text
    for step_path in exp.glob("checkpoint-*.pt"):
        step_path.unlink()
    assert ckpt.latest_checkpoint(exp)[0].name == "epoch-2.pt"
    assert ckpt.latest_checkpoint(tmp_path / "none") is None


def test_old_checkpoints_inside_epochs_are_deleted(experiment):
    assert len(list(experiment.glob("checkpoint-*.pt"))) == 2
    assert sorted(p.name for p in experiment.glob("epoch-*.pt")) == [
        "epoch-1.pt",
        "epoch-2.pt",
        "epoch-3.pt",
    ]


@pytest.mark.slow
def test_killed_while_writing(tmp_path):
    """SIGKILL at many moments of a process that writes checkpoints without a pause."""
    script = textwrap.dedent(
        """
        import sys, torch
        from pathlib import Path
        from icefall_ctx.train import checkpoint as ckpt
        exp, step = Path(sys.argv[1]), int(sys.argv[2])
        print("go", flush=True)
        while True:
            step += 1
            state = {"w": torch.full((300000,), float(step))}
            ckpt.save_checkpoint(ckpt.step_path(exp, step), {"model": state, "step": step})
            ckpt.keep_newest(exp, 2)
        """
    )
    step = 0
    for trial in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), str(step)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        process.stdout.readline()
        time.sleep(0.15 + 0.037 * trial)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        path, found = ckpt.latest_checkpoint(tmp_path)
        assert found["step"] > step and path == ckpt.step_path(tmp_path, found["step"])
        assert found["model"]["w"].unique().tolist() == [float(found["step"])]
        step = found["step"]
    ckpt.remove_leftovers(tmp_path)
    assert {p.name for p in Path(tmp_path).iterdir()} <= {
        ckpt.step_path(tmp_path, s).name for s in range(step - 2, step + 1)
    }


def test_icefall_reads_our_files(experiment):
    """icefall's own loader and averaging, where it is installed."""
    theirs = pytest.importorskip("icefall.checkpoint")
    config = load_config(experiment / "config.yaml", ModelConfig)
    paths = [experiment / f"epoch-{e}.pt" for e in (2, 3)]
    model = build_model(config)
    theirs.load_checkpoint(paths[1], model)
    state = ckpt.read_checkpoint(paths[1])["model"]
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    mean = theirs.average_checkpoints(paths)
    for name, value in ckpt.average_checkpoints(paths).items():
        torch.testing.assert_close(mean[name], value)
