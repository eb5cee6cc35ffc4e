"""The stage script: manifests or text in, the folder of a tokenizer out."""

import importlib.util
from pathlib import Path

import pytest
from lhotse import SupervisionSegment, SupervisionSet

from icefall_ctx.errors import InputError
from icefall_ctx.text.tokenizer import Tokenizer

SCRIPT = Path(__file__).resolve().parents[2] / "local" / "train_tokenizer.py"
TEXTS = ["Hello world", "the quick brown fox", "jumps over the lazy dog", ""]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("train_tokenizer", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "supervisions.jsonl.gz"
    SupervisionSet.from_segments(
        SupervisionSegment(f"t{i}", "r", i, 1, text=text) for i, text in enumerate(TEXTS)
    ).to_file(path)
    return path


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_manifest_and_text_give_the_same_tokenizer(script, manifest, tmp_path, kind):
    text = tmp_path / "texts.txt"
    text.write_text("\ufeff" + "\r\n".join(TEXTS), encoding="utf-8")
    made = []
    for name, source in [("a", manifest), ("b", text)]:
        output = tmp_path / name
        script.main([
            str(source), "--type", kind, "--vocab-size", "60", "--normalizer", "lower",
            "--output", str(output),
        ])  # fmt: skip
        made.append(Tokenizer.load(output))
    assert made[0].fingerprint == made[1].fingerprint and made[0].kind == kind
    assert made[0].encode("HELLO") == made[1].encode("hello")
    files = [(tmp_path / name / "tokens.txt").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_bad_input_is_one_line(script, manifest, tmp_path):
    empty, binary = tmp_path / "empty.txt", tmp_path / "binary.txt"
    empty.write_text("")
    binary.write_bytes(b"\xff\xfe\x80")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": ')
    for source, text in [
        (tmp_path / "nowhere.txt", "nowhere.txt: no such file"),
        (empty, "no text"),
        (binary, "binary.txt.*not.*UTF-8"),
        (broken, "broken.jsonl"),
    ]:
        with pytest.raises(InputError, match=text) as info:
            script.main([str(source), "--output", str(tmp_path / "out")])
        assert "\n" not in str(info.value)
    with pytest.raises(InputError, match="5000"):
        script.main([str(manifest), "--vocab-size", "5000", "--output", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
