"""``icefall-ctx import`` from the command line to manifests that Lhotse and our index read."""

import re
import subprocess

import lhotse
import pytest
from click.testing import CliRunner
from tree import voices, write_text, write_wav

from icefall_ctx.cli.importing import import_
from icefall_ctx.corpora.recipe_folder import (
    checkout,
    choose_units,
    root_as_seen_from,
    write_recipe_folder,
)
from icefall_ctx.data.conversation import ConversationIndex
from icefall_ctx.errors import InputError


def write_calls(root, count):
    for number in range(count):
        write_wav(root / f"c{number}.wav", voices(2, 4.0, 8000, number), 8000)
        text = "0.5 1.5 A: hello there\n1.2 2.0 B: yes\n2.5 3.9 A: bye\n"
        write_text(root / f"c{number}.txt", text)


def run(*args):
    return CliRunner().invoke(import_, [str(arg) for arg in args])


def test_calls_to_linked_parts(tmp_path):
    write_calls(tmp_path / "calls", 5)
    out = tmp_path / "recipe"
    result = run(tmp_path / "calls", "--name", "mine", "--output", out, "--no-recipe")
    assert result.exit_code == 0, result.output
    seen = set()
    for part in ("train", "dev", "test"):
        recordings = lhotse.load_manifest(out / f"data/manifests/mine_recordings_{part}.jsonl.gz")
        turns = lhotse.load_manifest(out / f"data/manifests/mine_supervisions_{part}.jsonl.gz")
        lhotse.validate_recordings_and_supervisions(recordings, turns)
        assert not any("prev" in (turn.custom or {}) for turn in turns)
        linked = out / f"data/linked/mine_supervisions_{part}.jsonl.gz"
        index = ConversationIndex.from_manifests(linked)
        assert len(index) == len(turns) == 3 * len(recordings)
        for recording in recordings:
            last = f"{recording.id}-A-0002"
            history = [turn.text for turn in index.history(last, 8)]
            assert history == ["hello there", "yes"]
            assert len({turn.speaker for turn in index.history(last, 8)}) == 2
        seen |= set(recordings.ids)
    assert seen == {f"c{number}" for number in range(5)}


def test_two_calls_are_one_test_part(tmp_path):
    write_calls(tmp_path / "calls", 2)
    out = tmp_path / "recipe"
    result = run(tmp_path / "calls", "--name", "m", "--output", out)
    assert result.exit_code == 0 and "three calls or more" in result.stderr
    assert 'speed_parts=""' in (out / "prepare.sh").read_text()  # a test set at one speed
    names = sorted(path.name for path in (out / "data/manifests").iterdir())
    assert names == ["m_recordings_test.jsonl.gz", "m_supervisions_test.jsonl.gz"]


def test_exit_status_tells_of_many_skipped_turns(tmp_path):
    write_calls(tmp_path / "calls", 6)
    (tmp_path / "calls" / "c3.wav").unlink()
    write_text(tmp_path / "calls" / "c4.txt", "0.5 1.5 A: hello\n3.5 9.0 A: late\n")
    args = (tmp_path / "calls", "--name", "m", "--output", tmp_path / "out", "--no-recipe")
    result = run(*args)
    assert result.exit_code == 1
    assert "turns were skipped" in result.output
    assert "1 transcript without audio" in result.output
    assert run(*args, "--max-skipped", 0.3).exit_code == 0
    strict = run(*args, "--strict")
    assert isinstance(strict.exception, InputError)


def test_one_label_on_both_channels_becomes_two_speakers(tmp_path):
    write_wav(tmp_path / "c1.wav", voices(2, 4.0, 8000), 8000)
    write_text(tmp_path / "c1.stm", "c1 A ann 0 1 hello\nc1 B ann 1 2 yes\n")
    out = tmp_path / "out"
    result = run(tmp_path / "c1.stm", "--name", "m", "--output", out, "--no-recipe")
    assert result.exit_code == 0, result.output
    turns = lhotse.load_manifest(out / "data/linked/m_supervisions_test.jsonl.gz")
    assert len({turn.speaker for turn in turns}) == 2


def test_turn_order_is_by_time_as_a_number_over_both_channels(tmp_path):
    write_wav(tmp_path / "c1.wav", voices(2, 120.0, 8000), 8000)
    lines = ["100.5 101.5 A: five", "10.0 11.0 A: three", "9.9 10.6 B: two", "9 9.5 A: one"]
    write_text(tmp_path / "c1.txt", "\n".join([*lines, "10.5 12 B: four"]))
    out = tmp_path / "out"
    result = run(tmp_path, "--format", "calls", "--name", "m", "--output", out, "--no-recipe")
    assert result.exit_code == 0, result.output
    index = ConversationIndex.from_manifests(out / "data/linked/m_supervisions_test.jsonl.gz")
    texts = [turn.text for turn in sorted(index, key=lambda turn: turn.turn)]
    assert texts == ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize("name", ["Bad", "a b", "../x", "1a"])
def test_name(tmp_path, name):
    assert isinstance(run(tmp_path, "--name", name).exception, InputError)


def test_recipe_folder_from_a_template(tmp_path):
    template = tmp_path / "template"
    write_text(template / "prepare.sh", "corpus=@CORPUS@\nparts='@PARTS@'\n")
    (template / "prepare.sh").chmod(0o755)
    write_text(template / "conf/a.yaml", "x: 1\n")
    folder = tmp_path / "egs/mine/ASR"
    write_text(folder / "conf/a.yaml", "x: 2\n")
    values = {"CORPUS": "mine", "PARTS": "train dev"}
    assert write_recipe_folder(folder, values, template) == [folder / "prepare.sh"]
    assert (folder / "prepare.sh").read_text() == "corpus=mine\nparts='train dev'\n"
    assert (folder / "prepare.sh").stat().st_mode & 0o111
    assert (folder / "conf/a.yaml").read_text() == "x: 2\n"  # the user's own stays
    assert not [path for path in folder.rglob(".tmp*")]


def test_recipe_of_the_template_takes_the_manifests(tmp_path):
    write_calls(tmp_path / "calls", 4)
    out = tmp_path / "egs/mine/ASR"
    assert run(tmp_path / "calls", "--name", "mine", "--output", out).exit_code == 0
    for path in (path for path in out.rglob("*") if path.is_file() and path.suffix != ".gz"):
        assert not re.search("@[A-Z_]+@", path.read_text()), path
    for script in ("train.py", "decode.py"):
        compile((out / script).read_text(), script, "exec")
    prepare = [str(out / "prepare.sh"), "--stop-stage", "1"]
    done = subprocess.run(prepare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    next((out / "data/manifests").glob("mine_supervisions_dev*")).unlink()
    done = subprocess.run([*prepare, "--stage", "1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "run icefall-ctx import again" in done.stderr


def test_units_by_the_text():
    assert choose_units(["你 好", "hello"]) == ("char", 0)
    assert choose_units(["hello there"]) == ("bpe", 40)
    assert choose_units(["one two three four"] * 1000) == ("bpe", 200)
    assert choose_units(["one two three four"] * 9000) == ("bpe", 500)


def test_recipe_in_the_checkout_may_move_with_it(tmp_path):
    assert root_as_seen_from(checkout() / "egs/mine/ASR") == "../../.."
    assert root_as_seen_from(tmp_path) == str(checkout())
