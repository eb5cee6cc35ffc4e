import random
import shutil
import subprocess
from pathlib import Path

import pytest

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.score.glm import read_glm, split_inner_hyphens

CSRFILT = Path("/usr/lib/sctk/bin/csrfilt.sh")


@pytest.fixture(scope="module")
def nist_file(shared_data):
    return shared_data / "formats" / "sctk" / "en20030506.glm"


@pytest.fixture(scope="module")
def nist(nist_file):
    return read_glm(nist_file)


@pytest.fixture
def rules(tmp_path):
    def read(text):
        (tmp_path / "m.glm").write_text(text)
        return read_glm(tmp_path / "m.glm")

    return read


def test_first_rule_wins_contexts_come_from_the_input(rules):
    """The expected line is what NIST's csrfilt makes of the same rules."""
    glm = rules(
        '* name "x"\nAB => X\nABC => Y\nDEF => Y\nDE => X\nP => Q / [O] __\nO => Z\n'
        "R => S / __ [T]\nT => U\nLM => N / [ ] __ [ ]\nLM => K\nJ J => J\n"
        "[G H] => [{G / H}] / [ ] __ [ ]\nW =>\nV => [] / [ ] __ [ ]\n"
    )
    assert glm.name == "x"
    text = "abc ab def de op orp rt t xlmx lm j j j j g h g h w v a v b awb"
    expected = "XC X Y X ZQ ZRP SU U XKX N J J {G / H} {G / H} A B AB"
    assert glm.apply(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("okay so he's gaddafi's t. shirt", "O. K. SO HE'S QADDHAFI'S TEE SHIRT"),
        ("uh-huh uh (uh) well-known th-", "%BCACK %HESITATION (%HESITATION) WELL KNOWN TH-"),
        ("gonna { can't / @ } advisery", "GOING TO { CAN'T / @ } ADVISORY"),
        ("ok okay ok (mr.) (gonna)", "O. K. O. K. O. K. (MISTER) (GOING) (TO)"),
        ("the vincents saint vincents", "THE VINCENTS SAINT VINCENT'S"),
        ("the day before yesterday", "THE DAY BEFORE YESTERDAY"),
        ("day care 20 mm", "DAY CARE 20 %HESITATION"),
        ("", ""),
    ],
)
def test_nist_rules_on_references(nist, text, expected):
    assert nist.apply(text) == expected


def test_contractions_are_for_hypotheses_only(nist):
    assert nist.apply("can't") == "CAN'T"
    assert nist.apply("can't", hypothesis=True) == "{CAN NOT / CANNOT}"
    assert nist.apply_to_words(["t.", "shirt", "gonna"]) == ["T.", "SHIRT", "GOING", "TO"]
    assert (len(nist.rules), len(nist.hyp_rules)) == (463, 1612)


def test_hyphens_inside_words_only():
    assert split_inner_hyphens("a-b-c- -a-b (a-b) (th-)") == "a b c- -a b (a b) (th-)"


def test_other_files_are_refused_and_bad_lines_named(tmp_path):
    path = tmp_path / "x.glm"
    path.write_text("hello\n")
    with pytest.raises(InputError, match="no rule of the form"):
        read_glm(path)
    log = ProblemLog()
    path.write_text("A => B\nhello\n=> C\n[] => D\n")
    assert len(read_glm(path, log).rules) == 1
    assert [p.place.rsplit(":", 1)[1] for p in log.problems] == ["2", "3", "4"]


@pytest.mark.skipif(
    not (CSRFILT.exists() and shutil.which("perl")), reason="NIST's csrfilt is not installed"
)
def test_random_lines_as_csrfilt(nist, nist_file):
    rng = random.Random(0)
    vocabulary = sorted({w for r in nist.rules for w in (r.source + r.left + r.right).split()})
    lines = []
    for _ in range(300):
        words = []
        while len(words) < 12:
            rule, word, x = rng.choice(nist.rules), rng.choice(vocabulary), rng.random()
            if x < 0.3:
                words += (rule.left + rule.source + rule.right).split()
            else:
                words.append(f"({word})" if x < 0.4 else word + rng.choice(["", "-", "'s", "-x"]))
        lines.append(" ".join(words))
    command = f"PATH=$PATH:{CSRFILT.parent} {CSRFILT} -dh -i txt {nist_file}"
    run = subprocess.run(
        command, shell=True, input="\n".join(lines) + "\n", capture_output=True, text=True
    )
    expected = [line.upper().split() for line in run.stdout.splitlines()]
    assert [nist.apply(line).split() for line in lines] == expected
