"""Every reader on real files, on its own output, and on what goes wrong with files."""

import gzip

import pytest

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.formats.ctm import CtmWord, read_ctm, write_ctm
from icefall_ctx.formats.kaldi import read_kaldi_dir, read_segments, read_table, write_table
from icefall_ctx.formats.lines import read_lines
from icefall_ctx.formats.rttm import RttmLine, read_rttm, write_rttm
from icefall_ctx.formats.stm import StmSegment, read_stm, read_stm_labels, write_stm
from icefall_ctx.formats.textgrid import read_textgrid
from icefall_ctx.formats.trn import TrnLine, read_trn, write_trn


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="file.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write_file


def test_line_ends_marks_and_compression(write):
    expected = [(1, "eins"), (3, "zwei\u2028drei"), (4, "vier")]
    text = "\ufeffeins\r\n\r\nzwei\u2028drei\rvier"
    assert list(read_lines(write(text))) == expected
    assert list(read_lines(write(gzip.compress(text.encode()), "x.gz"))) == expected
    assert list(read_lines(write(text[1:].encode("utf-16")))) == expected
    with pytest.raises(InputError, match="damaged gzip"):
        list(read_lines(write(gzip.compress(text.encode())[:-9])))
    with pytest.raises(InputError, match="No such file"):
        list(read_lines("nowhere.txt"))
    with pytest.raises(InputError, match="unknown encoding 'utf-99'"):
        list(read_lines(write(text), encoding="utf-99"))


def test_wrong_encoding_names_the_line_or_the_way_out(write):
    log = ProblemLog()
    path = write("a b\n".encode() + "你好\n".encode("gb18030"))
    assert list(read_lines(path, log)) == [(1, "a b")]
    assert log.problems[0].place.endswith("file.txt:2")
    with pytest.raises(InputError, match="--encoding gb18030"):
        list(read_lines(write("你好\n".encode("gb18030"), "all.txt")))
    assert list(read_lines(path, encoding="gb18030")) == [(1, "a b"), (2, "你好")]


def test_stm_fields_labels_and_ignored(write):
    path = write(
        ';; LABEL "O" "Overall" "all"\n'
        "sw_1 A spk 0.5 1.25 <o,f0> hello { a / @ } (uh)\n"
        "sw_1 A spk 2 3\n"
        "sw_1 A spk 3 4 ignore_time_segment_in_scoring\n"
        "sw_1 A spk x 4 bad time\nsw_1 A spk 5 4 order\nsw_1 A\n"
    )
    log = ProblemLog()
    segments = read_stm(path, log)
    assert segments[0] == StmSegment(
        "sw_1", "A", "spk", 0.5, 1.25, "hello { a / @ } (uh)", ("o", "f0"), 2
    )
    assert [s.text for s in segments[1:]] == ["", "ignore_time_segment_in_scoring"]
    assert [s.ignored for s in segments] == [False, False, True]
    assert [p.place.rsplit(":", 1)[1] for p in log.problems] == ["5", "6", "7"]
    assert read_stm_labels(path) == {"O": "Overall"}
    write_stm(path, reversed(segments))
    assert [(s.start, s.text, s.labels) for s in read_stm(path)] == [
        (s.start, s.text, s.labels) for s in segments
    ]


def test_ctm_words_and_alternations(write):
    path = write(
        "r A 0.5 0.25 hi 0.9\nr A * * <ALT_BEGIN>\nr A 1.0 0.2 a\nr A 1.2 0.2 b\n"
        "r A * * <ALT>\nr A * * <ALT_END>\nr A 2 1 bye\nr A * * <ALT>\nr A * * <ALT_BEGIN>\n"
        "r A -1 1 no\nr A 1 nan no\nr A 1\n"
    )
    log = ProblemLog()
    words = read_ctm(path, log)
    assert words[0] == CtmWord("r", "A", 0.5, 0.25, "hi", 0.9, line=1)
    assert words[0].middle == 0.625
    assert [(w.word, w.alternation, w.alternative) for w in words[1:]] == [
        ("a", 1, 0), ("b", 1, 0), ("@", 1, 1), ("bye", 0, 0),
    ]  # fmt: skip
    assert log.counts() == {
        "alternation mark out of place": 1,
        "negative time": 1,
        "bad time": 1,
        "too few fields": 1,
        "alternation not closed": 1,
    }
    write_ctm(path, words)
    assert [w.word for w in read_ctm(path)] == ["hi", "a", "b", "bye"]


def test_trn(write):
    log = ProblemLog()
    path = write(
        ";; comment\n{ I'm / am } (huh-) happy (hop_806)\n(empty-1)\nno id\n x (hop_806)\n"
    )
    lines = read_trn(path, log)
    assert lines == [TrnLine("hop_806", "{ I'm / am } (huh-) happy", 2), TrnLine("empty-1", "", 3)]
    assert lines[0].speaker == "hop"
    assert log.counts() == {"no (utterance id) at the end": 1, "repeated utterance": 1}
    write_trn(path, lines)
    assert [(x.utt_id, x.text) for x in read_trn(path)] == [(x.utt_id, x.text) for x in lines]


def test_rttm(write):
    log = ProblemLog()
    path = write(
        "SPKR-INFO r 1 <NA> <NA> <NA> unknown s1 <NA>\n"
        "SPEAKER r 1 1.5 0.5 <NA> <NA> s1 <NA> <NA>\nLEXEME r 1 1.5 0.2 yes lex s1 0.5\n"
        "SPEAKER r 1 x 0.5 <NA> <NA> s1\nSPEAKER r 1 1 -1 <NA> <NA> s1\nSPEAKER r\n"
    )
    events = read_rttm(path, log)
    assert events[0] == RttmLine("SPEAKER", "r", "1", 1.5, 0.5, "", "s1", None, 2)
    assert (events[1].word, events[1].confidence, events[1].end) == ("yes", 0.5, 1.7)
    assert log.counts() == {"bad time": 1, "negative time": 1, "too few fields": 1}
    write_rttm(path, events)
    assert [(e.kind, e.word, e.speaker) for e in read_rttm(path)] == [
        ("SPEAKER", "", "s1"), ("LEXEME", "yes", "s1"),
    ]  # fmt: skip


def test_kaldi_segments_of_five_columns_and_bad_ones(write):
    log = ProblemLog()
    path = write("u1 r 0 1.5 A\n\nu2 r 1 -1\nu3 r 2 1\nu4 r\nu1 r 0 1\nu5 r a b\n")
    segments = read_segments(path, log)
    assert segments["u1"].channel == "A" and segments["u2"].end == -1 and len(segments) == 2
    assert [p.place.rsplit(":", 1)[1] for p in log.problems] == ["4", "5", "6", "7"]


def test_kaldi_directory_with_holes(tmp_path, write):
    write("r1 r1.wav\nr2 sox x |\n", "wav.scp")
    write("u1 r1 0 1\nu2 r1 1 2\nu3 gone 0 1\nu4 r2 0 1\n", "segments")
    write("u1 hello there\nu2\nu9 nobody\n;;u good\n", "text")
    write("u1 s1\n", "utt2spk")
    log = ProblemLog()
    kaldi = read_kaldi_dir(tmp_path, log)
    assert kaldi.text == {"u1": "hello there", "u2": ""}
    assert set(kaldi.segments) == {"u1", "u2"}
    assert kaldi.wav_scp["r2"] == "sox x |"
    assert log.counts() == {
        "recording not in wav.scp": 1,
        "text without audio": 2,
        "utterance without text": 1,
        "utterance without speaker": 1,
    }
    with pytest.raises(InputError, match="segments:3"):
        read_kaldi_dir(tmp_path, ProblemLog(strict=True))


def test_kaldi_directory_that_is_none(tmp_path):
    with pytest.raises(InputError, match="neither wav.scp nor text"):
        read_kaldi_dir(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        read_kaldi_dir(tmp_path / "x")


def test_kaldi_table_round_trip(tmp_path):
    write_table(tmp_path / "text", [("b", "zwei drei"), ("B", ""), ("a", "eins")])
    assert list(read_table(tmp_path / "text").items()) == [
        ("B", ""), ("a", "eins"), ("b", "zwei drei"),
    ]  # fmt: skip


def test_textgrid_long_and_short_are_the_same(shared_data):
    folder = shared_data / "formats" / "textgrid"
    log = ProblemLog()
    long = read_textgrid(folder / "michaelandsickmichael.TextGrid", log)
    short = read_textgrid(folder / "michaelandsickmichael_short_tg.TextGrid", log)
    assert [t.name for t in long] == ["michael", "sickmichael"] and not log.problems
    for a, b in zip(long, short):
        assert [i[:2] for i in a.intervals] == [i[:2] for i in b.intervals]
        assert [i.text.split() for i in a.intervals] == [i.text.split() for i in b.intervals]
    assert long[1].intervals[-2].text.endswith("alright thanks")
    tiers = read_textgrid(folder / "cold_corpus3.TextGrid", log)
    assert (tiers[0].name, len(tiers[0].intervals)) == ("words", 86) and not log.problems


def test_textgrid_quotes_points_and_truncation(write):
    text = (
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 2\n'
        'tiers? <exists>\nsize = 2\nitem []:\n    item [1]:\n        '
        'class = "TextTier"\n        name = "a ""b"""\n'
        "        xmin = 0\n        xmax = 2\n        points: size = 1\n        points [1]:\n"
        '            number = 1.5\n            mark = "5 ""six"" !"\n    item [2]:\n'
        '        class = "IntervalTier"\n        name = "x"\n        xmin = 0\n        xmax = 2\n'
        '        intervals: size = 1\n        intervals [1]:\n            xmin = 0\n'
        '            xmax = 1e0\n            text = "hi"\n'
    )
    tiers = read_textgrid(write(text))
    assert tiers[0].name == 'a "b"' and tiers[0].intervals[0][:3] == (1.5, 1.5, '5 "six" !')
    assert tiers[1].intervals[0][:3] == (0, 1, "hi")
    log = ProblemLog()
    cut = read_textgrid(write(text[:-20]), log)
    assert len(cut) == 2 and not cut[1].intervals and log.counts() == {"damaged TextGrid": 1}
    with pytest.raises(InputError, match="not a TextGrid"):
        read_textgrid(write("hello\n"))


@pytest.mark.parametrize("name", ["ref.stm", "hyp.stm", "hyp1.ctm", "ref.rttm"])
def test_public_examples_have_no_problems(shared_data, name):
    readers = {"stm": read_stm, "ctm": read_ctm, "rttm": read_rttm}
    log = ProblemLog(strict=True)
    path = shared_data / "formats" / "meeteval" / name
    entries = readers[name.rsplit(".", 1)[1]](path, log)
    assert len(entries) == len([x for x in path.read_text().splitlines() if x.strip()])


def test_kaldi_example_directory(shared_data):
    kaldi = read_kaldi_dir(shared_data / "formats" / "kaldi", ProblemLog(strict=True))
    assert len(kaldi.text) == len(kaldi.segments) == len(kaldi.wav_scp)
