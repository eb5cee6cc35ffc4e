"""Truncated, reordered, wrongly encoded, empty: an InputError or a counted skip, never a crash."""

import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.formats.ctm import read_ctm
from icefall_ctx.formats.kaldi import read_segments, read_table
from icefall_ctx.formats.lhotse_json import read_supervisions
from icefall_ctx.formats.rttm import read_rttm
from icefall_ctx.formats.stm import read_stm
from icefall_ctx.formats.textgrid import read_textgrid
from icefall_ctx.formats.trn import read_trn
from icefall_ctx.score.glm import read_glm
from icefall_ctx.score.loading import load, match
from icefall_ctx.score.results import read_transcripts
from icefall_ctx.score.words import read_biasing_lists

STM = "r1 A s1 0.0 1.5 <o> hello { a / @ }\nr1 B s2 1.5 2.0 bye\nr2 A s1 0 4 (uh) yes\n"
CTM = (
    "r1 A 0.1 0.2 hello 0.9\nr1 A * * <ALT_BEGIN>\nr1 A 1 0.1 a\nr1 A * * <ALT>\n"
    "r1 A * * <ALT_END>\n"
)
JSON = (
    '{"id": "u1", "recording_id": "r1", "start": 0.0, "duration": 1.0, "channel": 0, '
    '"text": "a b"}\n'
    '{"id": "c", "start": 1, "duration": 2, "supervisions": [{"id": "u2", "recording_id": "r1", '
    '"start": 0, "duration": 1, "text": "c", "custom": {"turn": 1, "conv_id": "x"}}]}\n'
)
TEXTGRID = (
    'File type = "ooTextFile"\nObject class = "TextGrid"\n\n0\n2\n<exists>\n1\n"IntervalTier"\n'
    '"a"\n0\n2\n2\n0\n1\n"hello"\n1\n2\n"bye ""now"""\n'
)
READERS = {
    "stm": (read_stm, STM),
    "ctm": (read_ctm, CTM),
    "trn": (read_trn, "hello { a / b } (s1_1)\n(uh) (s1_2)\nbye (s2_1)\n"),
    "rttm": (read_rttm, "SPEAKER r 1 0.5 1 <NA> <NA> s1 <NA> <NA>\nLEXEME r 1 1 1 hi lex s1 0.5\n"),
    "kaldi text": (read_table, "u1 hello there\nu2 bye\nu3\n"),
    "kaldi segments": (read_segments, "u1 r1 0 1.5\nu2 r1 1.5 2 A\nu3 r2 0 -1\n"),
    "textgrid": (read_textgrid, TEXTGRID),
    "lhotse": (read_supervisions, JSON),
    "recogs": (
        read_transcripts,
        "u1:\tref=['a', 'b']\nu1:\thyp=['a']\nu2:\tref=[]\nu2:\thyp=None\n",
    ),
    "glm": (read_glm, "* name \"x\"\nA B => [{C / D}] / [ ] __ [ ]\nE => F / [G] __ ;; why\n"),
    "biasing": (read_biasing_lists, 'u1\ta b\t["a"]\t["a", "c"]\nu2\tb\t[]\t["c"]\n'),
}


@pytest.fixture(autouse=True)
def no_log_output():
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def damaged(content):
    """Strategies for what happens to files."""
    data = content.encode()
    lines = content.splitlines(keepends=True)
    garble = st.tuples(st.integers(0, len(data)), st.binary(min_size=1, max_size=6))
    fields = content.split(" ")
    return st.one_of(
        st.integers(0, len(data)).map(lambda end: data[:end]),
        st.permutations(lines).map(lambda order: "".join(order).encode()),
        st.permutations(fields).map(lambda order: " ".join(order).encode()),
        garble.map(lambda cut: data[: cut[0]] + cut[1] + data[cut[0] + len(cut[1]) :]),
        st.sampled_from(["utf-16", "utf-16-le", "utf-32", "cp037"]).map(content.encode),
        st.sampled_from([b"", b"\n\n", b"\xff\xfe", b"\xef\xbb\xbf", b"\x00" * 9, b"\x1f\x8b\x08"]),
        st.binary(max_size=60),
        st.text(alphabet=" \n\t0123456789.-abA{}()[]/@;:\"'<>=*\\", max_size=80).map(str.encode),
    )


QUICK = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("name", list(READERS))
@QUICK
@given(data=st.data())
def test_reader_survives(tmp_path, name, data):
    reader, content = READERS[name]
    path = tmp_path / "file"
    path.write_bytes(data.draw(damaged(content)))
    for strict in (False, True):
        try:
            reader(path, ProblemLog(strict=strict))
        except InputError as error:
            assert "file" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("name", list(READERS))
def test_whole_file_has_no_problem(tmp_path, name):
    reader, content = READERS[name]
    (tmp_path / "file").write_text(content)
    assert reader(tmp_path / "file", ProblemLog(strict=True))


@pytest.mark.parametrize("name", ["stm", "ctm", "rttm", "kaldi segments"])
@QUICK
@given(cut=st.data())
def test_no_line_is_lost_silently(tmp_path, name, cut):
    """Every line of a cut or reordered file is an entry or a problem."""
    reader, content = READERS[name]
    lines = [line for line in content.splitlines() if "ALT" not in line]
    text = "\n".join(cut.draw(st.permutations(lines)))
    text = text[: cut.draw(st.integers(1, len(text)))]
    (tmp_path / "file").write_text(text)
    log = ProblemLog()
    entries = reader(tmp_path / "file", log)
    assert len(entries) + len(log) == len(text.rstrip("\n").split("\n"))


@QUICK
@given(data=st.data())
def test_scoring_damaged_pairs(tmp_path, data):
    """Loading by content and matching: a result, or one line that says why not."""
    sides = []
    for side in ("ref", "hyp"):
        name = data.draw(st.sampled_from(["stm", "ctm", "trn", "kaldi text", "lhotse"]))
        content = READERS[name][1]
        path = tmp_path / side
        path.write_bytes(data.draw(st.one_of(st.just(content.encode()), damaged(content))))
        sides.append(path)
    log = ProblemLog()
    try:
        ref, hyp = (load(path, log) for path in sides)
        matched = match(ref, hyp, log)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert all(u.hyp is None or isinstance(u.hyp, list) for u in matched.utterances)
