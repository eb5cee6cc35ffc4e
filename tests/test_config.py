"""Settings: presets, flags and YAML round trips; every mistake is one line that names it."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from icefall_ctx.config import (
    SECTIONS,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    TrainConfig,
    load_config,
    make,
    parse_configs,
    save_configs,
)
from icefall_ctx.errors import InputError

TRAINING = (ModelConfig, DataConfig, TrainConfig)
OPTIONS = [(kind, f) for kind in SECTIONS.values() for f in dataclasses.fields(kind)]
NAMES = [f"{kind.__name__}.{f.name}" for kind, f in OPTIONS]
PRESETS = sorted(Path(__file__).parents[1].glob("egs/*/ASR/conf/*.yaml"))


def flag(f) -> str:
    return "--" + f.name.replace("_", "-")


def refusal(kinds, argv, capsys) -> str:
    """The one line with which ``argv`` is refused."""
    try:
        parse_configs(kinds, argv)
    except InputError as error:
        text = str(error)
    except SystemExit as stop:
        assert stop.code == 2
        text = capsys.readouterr().err.rstrip("\n")
    else:
        pytest.fail(f"{argv} was taken")
    assert text and "\n" not in text
    return text


@pytest.mark.parametrize("kind, f", OPTIONS, ids=NAMES)
def test_a_typo_in_any_option_is_one_line_that_guesses(kind, f, capsys):
    assert f"did you mean {flag(f)}" in refusal([kind], [flag(f) + "x", "1"], capsys)


@pytest.mark.parametrize("kind, f", OPTIONS, ids=NAMES)
def test_a_value_of_the_wrong_kind(kind, f, capsys, tmp_path):
    """On the command line and in a preset; lists, nothing and NaN are no values either."""
    is_text = isinstance(f.default, (str, Path)) or f.default is None
    if not is_text or f.metadata["choices"]:
        assert flag(f) in refusal([kind], [flag(f), "qwerty"], capsys)
    wrong = [[1, 2], {"a": 1}, True] if is_text else [[1, 2], "qwerty", None]
    for value in wrong:
        with pytest.raises(InputError, match=f"preset.yaml: option '{f.name}'"):
            make(kind, {f.name: value}, "preset.yaml")
    if isinstance(f.default, int) and not isinstance(f.default, bool):
        for value in (1.5, float("inf"), True):
            with pytest.raises(InputError):
                make(kind, {f.name: value}, "preset.yaml")


@pytest.mark.parametrize("kind, f", OPTIONS, ids=NAMES)
def test_numbers_outside_their_range(kind, f):
    low, high = f.metadata["low"], f.metadata["high"]
    for bound, value in ((low, low - 1), (high, high + 1)):
        if abs(bound) != float("inf"):
            with pytest.raises(InputError, match=flag(f)):
                kind(**{f.name: type(f.default)(value)})


@pytest.mark.parametrize("argv", [["--dropout", "nan"], ["--dim", "10", "--heads", "4"],
                                  ["--conv-kernel", "4"], ["--heads", "0"], ["stray"],
                                  ["--encoder", "lstm", "--attention", "context"],
                                  ["--decoder", "lstm", "--text-context", "conditional"],
                                  ["--dim"], ["--ctx-dep", "1"], ["--config", "nowhere.yaml"]],
                         ids=" ".join)  # fmt: skip
def test_impossible_combinations(argv, capsys):
    refusal(TRAINING, argv, capsys)


def test_preset_then_flag(tmp_path):
    preset = tmp_path / "preset.yaml"
    preset.write_text("model: {dim: 96, encoder: conformer}\ntrain: {warmup: 400}\n")
    argv = ["--config", str(preset), "--encoder", "transformer", "--spec-augment", "no"]
    defaults = {"model": {"dim": 512, "heads": 8}, "data": {"max_duration": 60}}
    model, data, train = parse_configs(TRAINING, argv, defaults=defaults)
    assert (model.dim, model.heads, model.encoder) == (96, 8, "transformer")
    assert data.max_duration == 60.0 and data.spec_augment is False
    assert train.warmup == 400 and train.num_epochs == TrainConfig().num_epochs


def test_round_trip_through_yaml(tmp_path):
    model = ModelConfig(dim=96, heads=3, dropout=0.0, norm_first=True, attention="context")
    data = DataConfig(manifest_dir=tmp_path / "häuser und so", index="null", normalizer="none")
    train = TrainConfig(init_from=Path("a.pt"), weight_decay=1e-6)
    save_configs(tmp_path / "config.yaml", model, data, train)
    for config in (model, data, train):
        assert load_config(tmp_path / "config.yaml", type(config)) == config
    assert load_config(tmp_path / "config.yaml", DecodeConfig) == DecodeConfig()


@pytest.mark.parametrize(
    "text, says",
    [
        ("modell: {dim: 3}", "no section 'modell'"),
        ("model: {dmi: 3}", "did you mean dim?"),
        ("model: 3", "holds no options"),
        ("- 1", "expected sections"),
        ("model: {dim: [", "not YAML"),
        ("model: {encoder: transfromer}", "is none of transformer"),
        ("model: {norm_first: perhaps}", "not true or false"),
    ],
)
def test_broken_presets(tmp_path, capsys, text, says):
    preset = tmp_path / "preset.yaml"
    preset.write_text(text)
    message = refusal(TRAINING, ["--config", str(preset)], capsys)
    assert says in message and str(preset) in message


def test_a_preset_that_is_a_folder_empty_or_binary(tmp_path, capsys):
    refusal(TRAINING, ["--config", str(tmp_path)], capsys)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    refusal(TRAINING, ["--config", str(tmp_path / "binary.yaml")], capsys)
    (tmp_path / "empty.yaml").write_text("")
    assert parse_configs(TRAINING, ["--config", str(tmp_path / "empty.yaml")])[0] == ModelConfig()


@pytest.mark.parametrize("path", PRESETS, ids=lambda p: f"{p.parts[-4]}-{p.stem}")
def test_presets_of_the_recipes(path):
    """Each is taken, and every option that it sets arrives, unless a flag overrides it."""
    configs = parse_configs(tuple(SECTIONS.values()), ["--config", str(path), "--seed", "7"])
    by_section = dict(zip(SECTIONS, configs))
    for section, values in yaml.safe_load(path.read_text()).items():
        for name, value in values.items() if section in SECTIONS else ():
            assert str(getattr(by_section[section], name)) in (str(value), str(float_or(value)))
    assert by_section["train"].seed == by_section["decode"].seed == 7


def float_or(value):
    try:
        return float(value)
    except (TypeError, ValueError):
        return value


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit):
        parse_configs(tuple(SECTIONS.values()), ["--help"])
    text = capsys.readouterr().out
    assert all(flag(f) in text for _, f in OPTIONS)
