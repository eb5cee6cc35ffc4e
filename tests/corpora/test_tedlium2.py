import pytest
from checks import check_parts, turns_of
from make_tedlium2 import make_tedlium2

from icefall_ctx.corpora.tedlium2 import clean_tedlium_text, prepare_tedlium2
from icefall_ctx.errors import InputError, ProblemLog


def test_every_turn_in_its_part(tmp_path):
    expected = make_tedlium2(tmp_path)
    problems = ProblemLog()
    parts = prepare_tedlium2(tmp_path / "TEDLIUM_release2", problems=problems)
    check_parts(parts, expected)
    assert sorted(parts) == ["dev", "test", "train"]
    assert not problems  # gaps are no turns, and no problems


def test_a_missing_talk_and_a_missing_part(tmp_path):
    expected = make_tedlium2(tmp_path)
    root = tmp_path / "TEDLIUM_release2"
    (root / "train/sph/AlGore_2006.sph").unlink()
    (root / "dev").rename(root / "old")
    problems = ProblemLog()
    found = turns_of(prepare_tedlium2(root, problems=problems))
    gone = ("AlGore_2006", "BlaiseAguera_2007")
    assert found == sorted(turn for turn in expected if turn.recording not in gone)
    assert problems.counts()["part missing"] == 1
    assert problems.counts()["turn without audio"] == 2


def test_wrong_folder(tmp_path):
    with pytest.raises(InputError, match="none of the folders train, dev, test"):
        prepare_tedlium2(tmp_path)


@pytest.mark.parametrize(
    "raw, clean",
    [
        ("they 're here", "they're here"),
        ("' cause the(2) {NOISE} <unk>", "'cause the"),
        ("rock 'n roll", "rock'n roll"),
    ],
)
def test_text(raw, clean):
    assert clean_tedlium_text(raw) == clean
