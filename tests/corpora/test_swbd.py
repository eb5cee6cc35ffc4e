import pytest
from checks import check_parts, turns_of
from make_swbd import make_swbd

from icefall_ctx.corpora.swbd import clean_swbd_text, prepare_swbd, read_callers
from icefall_ctx.errors import InputError, ProblemLog


def prepare(root, **kwargs):
    return prepare_swbd(root / "LDC97S62", root / "swb_ms98_transcriptions", **kwargs)


def test_every_turn_with_its_caller(tmp_path):
    expected = make_swbd(tmp_path)
    problems = ProblemLog()
    parts = prepare(tmp_path, num_dev_calls=1, problems=problems)
    check_parts(parts, expected)
    assert {s.recording_id for s in parts["dev"]["supervisions"]} == {"sw02001"}
    assert problems.counts() == {"no speech in the text": 4}  # "[noise]" of side B; no silences


def test_without_a_table_each_side_is_a_speaker(tmp_path):
    expected = make_swbd(tmp_path, table=False)
    problems = ProblemLog()
    assert turns_of(prepare(tmp_path, problems=problems)) == sorted(expected)
    assert problems.counts()["no caller table"] == 1


def test_the_two_sides_are_two_speakers(tmp_path):
    make_swbd(tmp_path, table=False)
    for manifests in prepare(tmp_path, num_dev_calls=1).values():
        sides = {(s.recording_id, s.channel): s.speaker for s in manifests["supervisions"]}
        assert len(set(sides.values())) == len(sides)


def test_older_caller_table(tmp_path):
    path = tmp_path / "conv.tab"
    path.write_text("2001,306, 1021 , 1044 ,x\nbroken\n")
    problems = ProblemLog()
    assert read_callers(path, problems) == {("2001", "A"): "1021", ("2001", "B"): "1044"}
    assert [p.place for p in problems.problems] == [f"{path}:2"]


def test_short_line_and_missing_call(tmp_path):
    expected = make_swbd(tmp_path)
    path = next(tmp_path.rglob("sw2002A-*-trans.text"))
    path.write_text(path.read_text() + "sw2002A-ms98-a-0009 4.9\n")
    next(tmp_path.rglob("sw02003.sph")).unlink()
    problems = ProblemLog()
    found = turns_of(prepare(tmp_path, problems=problems))
    assert found == sorted(turn for turn in expected if turn.recording != "sw02003")
    assert problems.counts()["not 'id start end text'"] == 1
    with pytest.raises(InputError):
        prepare(tmp_path, problems=ProblemLog(strict=True))


@pytest.mark.parametrize(
    "raw, clean",
    [
        ("[laughter-really] so", "really so"),
        ("th[at]- that", "th- that"),
        ("-[wa]s it", "-s it"),
        ("[vocalized-noise] [noise]", ""),
        ("[tempachur/temperature]", "temperature"),
        ("them_1 and {alrighty}", "them and alrighty"),
        ("<b_aside> hi <e_aside>", "hi"),
        ("uh-huh", "uh-huh"),
    ],
)
def test_markup(raw, clean):
    assert clean_swbd_text(raw) == clean
