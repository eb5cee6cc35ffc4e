import pytest
from checks import check_parts
from make_swbd import make_eval2000

from icefall_ctx.corpora.eval2000 import clean_eval2000_text, find_reference, prepare_eval2000
from icefall_ctx.errors import InputError


def test_segments_of_the_reference(tmp_path):
    expected = make_eval2000(tmp_path)
    parts = prepare_eval2000(tmp_path)
    check_parts(parts, expected)
    assert {(s.channel, s.custom["side"]) for s in parts["eval2000"]["supervisions"]} == {
        (0, "A"), (1, "B"),
    }  # fmt: skip
    subsets = {s.recording_id: s.custom["subset"] for s in parts["eval2000"]["supervisions"]}
    assert subsets == {"en_4156": "callhome", "sw_4390": "swbd"}


def test_reference_is_found_among_other_stm_files(tmp_path):
    make_eval2000(tmp_path)
    (tmp_path / "LDC2002T43/a.stm").write_text("")
    assert find_reference(tmp_path).name == "hub5e00.english.000405.stm"


def test_no_reference(tmp_path):
    with pytest.raises(InputError, match="no .stm reference"):
        prepare_eval2000(tmp_path)


def test_plain_words():
    text = "(%hesitation) { i'm / i am } (th-) fine"
    assert clean_eval2000_text(text) == "hesitation i'm th- fine"
