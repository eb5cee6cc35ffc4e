import gzip
import json

import pytest
from click.testing import CliRunner

from icefall_ctx.cli.score import score
from icefall_ctx.errors import InputError
from icefall_ctx.formats.stm import read_stm
from icefall_ctx.formats.trn import read_trn


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        result = CliRunner().invoke(score, [str(a) for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture
def files(tmp_path):
    def write(**contents):
        for name, content in contents.items():
            name = name.replace("__", ".")
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)

    return write


def totals(result, kind="raw", report=0):
    counts = json.loads(result.stdout)["reports"][report][kind]["total"]
    return tuple(counts[k] for k in ("ref_words", "ins", "del", "sub", "utterances", "missing"))


SUPERVISIONS = [
    {"id": "u1", "recording_id": "r", "start": 0.0, "duration": 1.0, "channel": 0,
     "text": "a b c", "speaker": "s1", "custom": {"conv_id": "call", "turn": 0, "side": "A"}},
    {"id": "u2", "recording_id": "r", "start": 1.0, "duration": 1.0, "channel": 0,
     "text": "d", "speaker": "s2", "custom": {"conv_id": "call", "turn": 1, "side": "B"}},
]  # fmt: skip
SAME = {
    "ref__trn": "a b c (u1)\nd (u2)\n",
    "hyp__trn": "a x (u1)\nd d (u2)\n",
    "ref__txt": "u1 a b c\nu2 d\n",
    "hyp__txt": "u2 d d\nu1 a x\n",
    "recogs__txt": "u1:\tref=['a', 'b', 'c']\nu1:\thyp=['a', 'x']\n"
    "u2:\tref=['d']\nu2:\thyp=['d', 'd']\n",
    "ref__stm": "r 0 s1 0 1 a b c\nr 0 s2 1 2 d\n",
    "hyp__stm": "r 0 x 0 1 a x\nr 0 x 1 2 d d\n",
    "hyp__ctm": "r 0 0.1 0.1 a\nr 0 0.3 0.1 x\nr 0 1.1 0.1 d\nr 0 1.8 0.1 d\n",
    "ref__jsonl": "".join(json.dumps(s) + "\n" for s in SUPERVISIONS),
    "ref__jsonl__gz": gzip.compress("".join(json.dumps(s) + "\n" for s in SUPERVISIONS).encode()),
    "cuts__jsonl": json.dumps(
        {"id": "c", "start": 0.5, "duration": 2, "type": "MonoCut", "supervisions":
         [dict(s, start=s["start"] - 0.5) for s in SUPERVISIONS]}
    ) + "\n",
}  # fmt: skip


@pytest.mark.parametrize(
    "names",
    [
        ("ref.trn", "hyp.trn"),
        ("ref.txt", "hyp.txt"),
        ("recogs.txt",),
        ("ref.txt", "recogs.txt"),
        ("ref.jsonl", "hyp.txt"),
        ("ref.jsonl.gz", "hyp.trn"),
        ("cuts.jsonl", "hyp.txt"),
        ("cuts.jsonl", "hyp.ctm"),
        ("ref.jsonl", "hyp.stm"),
        ("ref.stm", "hyp.ctm"),
        ("ref.stm", "hyp.stm"),
    ],
)
@pytest.mark.parametrize("alignment", ["levenshtein", "sclite"])
def test_every_pair_of_formats_gives_the_same(run, files, names, alignment):
    files(**SAME)
    result = run(*names, "--json", "--bootstrap", 10, "--alignment", alignment, "--strict")
    assert totals(result) == (4, 1, 1, 1, 2, 0)


def test_groups_come_from_the_manifest(run, files):
    files(**SAME)
    options = ("--json", "--per", "conversation,speaker,side,turn")
    by_manifest = run("ref.jsonl", "hyp.txt", *options)
    added = run("recogs.txt", "--supervisions", "ref.jsonl", *options)
    groups = json.loads(by_manifest.stdout)["reports"][0]["raw"]["groups"]
    assert groups == json.loads(added.stdout)["reports"][0]["raw"]["groups"]
    assert groups["side"]["A"]["errors"] == 2 and groups["turn"]["1"]["ins"] == 1
    assert set(groups["conversation"]) == {"call"}


def test_missing_and_extra_utterances_are_counted(run, files):
    files(ref="u1 a b\nu2\nu3 c\n", hyp="u1 a b\nu2 x\nu9 y\n")
    result = run("ref", "hyp", "--json")
    assert totals(result) == (3, 1, 1, 0, 3, 1)
    problems = json.loads(result.stdout)["problems"]
    assert problems == {"utterance without output": 1, "output without reference": 1}
    with pytest.raises(InputError, match="u3"):
        run("ref", "hyp", "--strict")


def test_raw_and_official_rates_side_by_side(run, files):
    """Rules change what they name and nothing else."""
    text = "THE DAY BEFORE YESTERDAY\nDAY CARE\n20 mm\nOH\n(%hesitation) uh-huh [laughter] ok\n"
    lines = "".join(f"u{i} {line}\n" for i, line in enumerate(text.splitlines()))
    files(ref=lines, hyp=lines.lower().replace("(%hesitation) ", "").replace("[laughter] ", ""))
    result = run("ref", "hyp", "--normalizer", "english", "--bootstrap", 0)
    raw, official = result.stdout.splitlines()[:2]
    assert raw.startswith("WER, raw: 69.23 %") and "rules english: 0.00 %" in official
    counts = totals(run("ref", "hyp", "--normalizer", "english", "--json"), "normalized")
    assert counts[0] == 11  # 4 + 2 + 2 + 1 + 2 words


def test_unknown_normalizer_is_refused(run, files):
    files(ref="u a\n", hyp="u a\n")
    with pytest.raises(InputError, match="unknown normaliser 'englsh'"):
        run("ref", "hyp", "--normalizer", "englsh")


def test_swbd_and_callhome_lines(run, files):
    files(
        ref__stm=';; LABEL "O" "Overall" ""\nsw_1 A s1 0 1 <o,m> a b\nen_1 A s2 0 1 <o,f> c d\n'
        "en_1 A s2 1 2 <o,f> IGNORE_TIME_SEGMENT_IN_SCORING\n",
        hyp__ctm="sw_1 A 0.1 0.2 a\nen_1 A 0.1 0.2 x\nen_1 A 0.3 0.1 d\nen_1 A 1.2 0.2 zz\n",
    )
    groups = json.loads(run("ref.stm", "hyp.ctm", "--json").stdout)["reports"][0]["raw"]["groups"]
    errors = {name: (c["del"], c["sub"], c["ins"]) for name, c in groups["subset"].items()}
    assert errors == {
        "swbd": (1, 0, 0), "callhome": (0, 1, 0), "Overall": (1, 1, 0),
        "m": (1, 0, 0), "f": (0, 1, 0),
    }  # fmt: skip


def test_hubscr_with_nist_rules(run, shared_data):
    """Counts of csrfilt -dh and sclite -F -D on the same files, pinned."""
    folder = shared_data / "formats" / "sctk"
    result = run(folder / "lvc_ref.stm", folder / "lvc_hyp.ctm", "--glm",
                 folder / "en20030506.glm", "--json", "--bootstrap", 0)  # fmt: skip
    assert totals(result) == (1781, 170, 227, 539, 61, 0)
    assert totals(result, "normalized") == (1785, 201, 220, 551, 61, 0)
    groups = json.loads(result.stdout)["reports"][0]["normalized"]["groups"]["speaker"]
    errors = {speaker: counts["errors"] for speaker, counts in groups.items()}
    assert errors == {"2347-a": 136, "2347-b": 292, "3129-a": 168, "3129-b": 376}


def test_mandarin_as_sclite(run, shared_data):
    """sclite -e gb, and with -c NOASCII: characters, English words whole."""
    folder = shared_data / "formats" / "sctk"
    names = (folder / "mand_ref.stm", folder / "mand_hyp.ctm", "--encoding", "gb18030", "--json")
    assert totals(run(*names))[:5] == (37, 1, 1, 1, 10)
    assert totals(run(*names, "--unit", "mixed"))[:5] == (55, 3, 4, 1, 10)
    with pytest.raises(InputError, match="gb18030"):
        run(*names[:2])


def test_words_outside_the_reference_are_reported(run, shared_data):
    folder = shared_data / "formats" / "sctk"
    result = run(folder / "basic.stm", folder / "basic.ctm", "--json")
    assert json.loads(result.stdout)["problems"] == {"words of a channel without reference": 1}


def test_cpwer_and_two_systems(run, files, shared_data):
    folder = shared_data / "formats" / "meeteval"
    result = run(folder / "ref.stm", folder / "hyp.stm", "--cpwer", "--json")
    cpwer = json.loads(result.stdout)["cpwer"]
    assert sum(counts["errors"] for counts in cpwer.values()) == 25
    files(**SAME, better__txt="u1 a b c\nu2 d\n")
    result = run("ref.txt", "hyp.txt", "--compare", "better.txt")
    assert "second system against the first: difference -75.00 points" in result.stdout


def test_export_scores_the_same(run, files):
    files(**SAME)
    run("ref.jsonl", "hyp.ctm", "--export-dir", "out")
    assert [line.text for line in read_trn("out/hyp.trn")] == ["a x", "d d"]
    assert [s.text for s in read_stm("out/ref.stm")] == ["a b c", "d"]
    for names in (("out/ref.trn", "out/hyp.trn"), ("out/ref.stm", "out/hyp.ctm")):
        assert totals(run(*names, "--json")) == (4, 1, 1, 1, 2, 0)


@pytest.mark.parametrize(
    "names, message",
    [
        (("nowhere.txt", "hyp.txt"), "nowhere.txt: No such file"),
        (("ref.txt",), "holds no hypotheses"),
        (("ref.txt", "hyp.ctm"), "has no times"),
        (("ref.stm", "hyp.txt"), "has no times"),
        (("ref.txt", "other.txt"), "no utterance id"),
        (("ref.stm", "other.ctm"), "none of its recordings"),
        (("empty.txt", "hyp.txt"), "empty file"),
        (("ref.txt", "."), "Is a directory"),
        (("ref.txt", "hyp.txt", "--cpwer"), "--cpwer needs speakers"),
        (("ref.txt", "hyp.txt", "--glm", "hyp.txt"), "not a GLM file"),
    ],
)
def test_mistakes_end_with_one_line(run, files, names, message):
    files(**SAME, other__txt="x y\n", other__ctm="q A 0 1 a\n", empty__txt="\n")
    with pytest.raises(InputError, match=message):
        run(*names)


def test_misspelt_options_are_refused(run, files):
    files(**SAME)
    mistakes = (["--unit", "words"], ["--per", "speakers"], ["--bootstrap", "-1"], ["--gml", "x"])
    for extra in mistakes:
        result = run("ref.txt", "hyp.txt", *extra)
        assert result.exit_code == 2 and "Error" in result.output


def test_unreadable_alternation_is_skipped_and_counted(run, files):
    files(ref__trn="a { b (u1)\nc (u2)\n", hyp__trn="a (u1)\nc (u2)\n")
    result = run("ref.trn", "hyp.trn", "--json")
    assert totals(result) == (1, 0, 0, 0, 1, 0)
    assert json.loads(result.stdout)["problems"] == {"alternation not readable": 1}


def test_output_by_ids_becomes_a_ctm_with_the_times_of_the_manifest(run, files):
    """From a decoder's recogs to official scoring against a test set's own STM."""
    turns = [("u1", "A", 0, 0.5, "oh yes"), ("u2", "B", 1, 1.25, "no")]
    manifest = [
        {
            "id": name, "recording_id": "r", "channel": channel, "start": start, "duration": 1.0,
            "text": text, "custom": {"side": side},
        }
        for name, side, channel, start, text in turns
    ]  # fmt: skip
    files(
        refs__jsonl="".join(json.dumps(item) + "\n" for item in manifest),
        recogs__txt="u1:\tref=['oh', 'yes']\nu1:\thyp=['yes']\n"
        "u2:\tref=['no']\nu2:\thyp=['no', 'no']\n",
        official__stm="r A ann 0.5 1.5 (oh) yes\nr B bob 1.25 2.25 no\n",
    )
    assert run("refs.jsonl", "recogs.txt", "--export-dir", "out").exit_code == 0
    result = run("official.stm", "out/hyp.ctm", "--json", "--bootstrap", 0)
    assert totals(result)[1:4] == (1, 0, 0)  # the optional word may be missing
