"""The stage scripts in local/, each on its generated tree."""

import runpy
import sys
from pathlib import Path

import pytest
from make_dialog import make_datatang_dialog, make_magicdata_ramc
from make_harpervalley import make_harpervalley
from make_hkust import make_hkust
from make_newwords import make_newwords
from make_swbd import make_eval2000, make_fisher, make_swbd
from make_tedlium2 import make_tedlium2

LOCAL = Path(__file__).resolve().parents[2] / "local"


def run(monkeypatch, name, *args):
    """Exit status of a script."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, args)])
    try:
        runpy.run_path(str(LOCAL / f"{name}.py"), run_name="__main__")
    except SystemExit as end:
        return end.code or 0
    return 0


@pytest.mark.parametrize(
    "corpus, make, prefix, parts",
    [
        ("hkust", make_hkust, "hkust", {"train", "dev"}),
        ("swbd", make_swbd, "swbd", {"dev"}),
        ("eval2000", make_eval2000, "swbd", {"eval2000"}),
        ("tedlium2", make_tedlium2, "tedlium2", {"train", "dev", "test"}),
        ("magicdata_ramc", make_magicdata_ramc, "magicdata_ramc", {"train", "dev", "test"}),
        ("datatang_dialog", make_datatang_dialog, "datatang_dialog", {"train", "dev", "test"}),
        ("harpervalley", make_harpervalley, "harpervalley", {"train", "dev", "test"}),
    ],
)  # fmt: skip
def test_script(tmp_path, monkeypatch, capsys, corpus, make, prefix, parts):
    root = tmp_path / "corpus"
    make(root)
    inner = {"tedlium2": "TEDLIUM_release2", "harpervalley": "harpervalley"}.get(corpus, ".")
    out = tmp_path / "manifests"
    args = ("--corpus-dir", root / inner, "--manifest-dir", out)
    assert run(monkeypatch, f"prepare_{corpus}", *args) == 0
    assert {path.name for path in out.iterdir()} == {
        f"{prefix}_{kind}_{part}.jsonl.gz"
        for kind in ("recordings", "supervisions")
        for part in parts
    }
    printed = capsys.readouterr().out
    assert all(f"\n{part} " in printed for part in parts)


def test_too_much_lost_is_exit_status_1(tmp_path, monkeypatch, capsys):
    make_hkust(tmp_path)
    next(tmp_path.rglob("*.sph")).unlink()
    args = ("--corpus-dir", tmp_path, "--manifest-dir", tmp_path / "out")
    assert run(monkeypatch, "prepare_hkust", *args) == 1
    assert "of the input was not usable" in capsys.readouterr().out
    assert run(monkeypatch, "prepare_hkust", *args, "--max-lost", 0.5) == 0
    assert run(monkeypatch, "prepare_hkust", *args, "--strict") == 2


def test_new_words(tmp_path, monkeypatch):
    folders = make_newwords(tmp_path)
    args = ["--librispeech", folders["librispeech"], "--europarl-st", folders["europarl_st"]]
    out = tmp_path / "out"
    assert run(monkeypatch, "prepare_newwords", *args, "--manifest-dir", out) == 0
    assert (out / "newwords_supervisions_new_words.jsonl.gz").is_file()
    assert run(monkeypatch, "prepare_newwords", "--how2", tmp_path / "x") == 2


def test_fisher_text(tmp_path, monkeypatch):
    make_fisher(tmp_path)
    out = tmp_path / "lm.txt"
    assert run(monkeypatch, "prepare_fisher_text", tmp_path, "--output", out) == 0
    assert out.read_text() == "and i generally prefer\nhi there\n"
