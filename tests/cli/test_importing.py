"""``icefall-ctx import`` from the command line to manifests that Lhotse and our index read."""

import lhotse
import pytest
from click.testing import CliRunner
from tree import voices, write_text, write_wav

from icefall_ctx.cli.importing import import_
from icefall_ctx.corpora.recipe_folder import write_recipe_folder
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
    assert run(tmp_path / "calls", "--name", "m", "--output", out, "--no-recipe").exit_code == 0
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
