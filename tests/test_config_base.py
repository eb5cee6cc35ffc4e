"""Presets that build on other presets."""

import pytest

from icefall_ctx.config import ModelConfig, TrainConfig, parse_configs, read_yaml
from icefall_ctx.errors import InputError


def write(folder, **presets):
    for name, text in presets.items():
        path = folder / name.replace("__", "/")
        path = path.with_suffix(".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_own_options_come_before_those_of_the_base(tmp_path):
    write(
        tmp_path,
        small="model: {dim: 96, heads: 4}\ntrain: {warmup: 400}\n",
        row="base: small.yaml\nmodel: {dim: 64}\n",
    )
    assert read_yaml(tmp_path / "row.yaml") == {
        "model": {"dim": 64, "heads": 4},
        "train": {"warmup": 400},
    }
    model, train = parse_configs(
        (ModelConfig, TrainConfig), ["--config", str(tmp_path / "row.yaml"), "--heads", "2"]
    )
    assert (model.dim, model.heads, train.warmup) == (64, 2, 400)


def test_a_list_of_bases_in_other_folders_may_share_a_base(tmp_path):
    write(
        tmp_path,
        shared__size="model: {dim: 256, heads: 4}\n",
        shared__residual="base: size.yaml\nmodel: {attention: residual}\n",
        shared__conformer="base: size.yaml\nmodel: {encoder: conformer, heads: 8}\n",
        conf__row="base: [../shared/conformer.yaml, ../shared/residual.yaml]\n",
    )
    # the last of the list wins, with what it builds on
    assert read_yaml(tmp_path / "conf" / "row.yaml")["model"] == {
        "dim": 256, "heads": 4, "encoder": "conformer", "attention": "residual",
    }  # fmt: skip


def test_a_circle_is_refused(tmp_path):
    write(tmp_path, a="base: b.yaml\n", b="base: sub/c.yaml\n", sub__c="base: ../a.yaml\n")
    with pytest.raises(InputError, match=r"a\.yaml: builds on itself"):
        read_yaml(tmp_path / "a.yaml")
    write(tmp_path, me="base: ./me.yaml\n")
    with pytest.raises(InputError, match=r"me\.yaml: builds on itself"):
        read_yaml(tmp_path / "me.yaml")


@pytest.mark.parametrize("base", ["", "3", "{a: b}", "[a.yaml, 4]", "['']"])
def test_a_base_is_a_name(tmp_path, base):
    write(tmp_path, row=f"base: {base}\n", a="")
    with pytest.raises(InputError, match=r"row\.yaml: 'base' is"):
        read_yaml(tmp_path / "row.yaml")


def test_errors_name_the_file_that_has_them(tmp_path):
    write(tmp_path, bad="model: {dims: 4}\n", row="base: bad.yaml\n", lost="base: none.yaml\n")
    with pytest.raises(InputError, match=r"bad\.yaml: no option 'dims'"):
        read_yaml(tmp_path / "row.yaml")
    with pytest.raises(InputError, match=r"none\.yaml: No such file"):
        read_yaml(tmp_path / "lost.yaml")
