"""Against NIST's sclite 2.10: its counts are pinned here, and it is run where it is installed."""

import random
import re
import shutil
import subprocess
import zlib

import pytest

from icefall_ctx.errors import InputError
from icefall_ctx.formats.ctm import read_ctm
from icefall_ctx.formats.stm import read_stm
from icefall_ctx.score.network import linear, map_words, parse_network, strip_attributes
from icefall_ctx.score.nist import assign_words, words_to_text
from icefall_ctx.score.sclite import align, align_any, align_networks
from icefall_ctx.score.wer import ErrorCounts, count_pairs

SCLITE = ["sctk", "sclite"] if shutil.which("sctk") else ["sclite"]
needs_sclite = pytest.mark.skipif(
    not shutil.which(SCLITE[0]), reason="NIST's sclite (Debian package sctk) is not installed"
)


def random_pairs(alphabet, longest, count=1000, seed=20):
    rng = random.Random(seed)

    def words():
        return [rng.choice(alphabet) for _ in range(rng.randrange(longest))]

    return [(words(), words()) for _ in range(count)]


def random_text(rng, alternations, optional, fragments):
    out = []
    for _ in range(rng.randrange(1, 9)):
        x = rng.random()
        if optional and x < 0.2:
            out.append(f"({rng.choice('abc')})")
        elif alternations and x < 0.45:
            choices = ["a", "b c", "@", "c", "a b"] + ["(a) b"] * optional
            some = (rng.choice(choices) for _ in range(rng.choice((2, 3))))
            out.append("{ " + " / ".join(some) + " }")
        elif fragments and x < 0.7:
            out.append(rng.choice(["ab-", "a-", "-c", "-bc"]))
        else:
            out.append(rng.choice(["ab", "abc", "b", "c", "bc"] if fragments else "abc"))
    return " ".join(out)


def scores(pairs):
    """(correct, substituted, deleted, inserted) as sclite prints them."""
    counts = count_pairs(pairs)
    return counts.correct, counts.subs, counts.dels, counts.ins


def run_sclite(folder, refs, hyps, *flags):
    """Counts of each utterance from sclite's own alignment dump."""
    for name, texts in (("ref", refs), ("hyp", hyps)):
        lines = "".join(f"{text} (s_{i})\n" for i, text in enumerate(texts))
        (folder / f"{name}.trn").write_text(lines)
    command = [*SCLITE, *flags, "-r", "ref.trn", "trn", "-h", "hyp.trn", "trn", "-i", "rm"]
    command += ["-o", "pra", "-O", ".", "-n", "out"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    found = {}
    for line in (folder / "out.pra").read_text().splitlines():
        if line.startswith("id:"):
            number = int(re.search(r"_(\d+)\)", line)[1])
        elif line.startswith("Scores:"):
            found[number] = tuple(map(int, line.split(")")[1].split()))
    return [found[i] for i in range(len(refs))]


def checksum(rows):
    return zlib.crc32(repr(rows).encode())


# (alphabet, longest) -> sums over 1,000 pairs and the CRC of all rows, from sclite itself
PINNED = {
    ("ab", 16): ((3946, 680, 2725, 2838), 1431933176),
    ("abcd", 25): ((5075, 1899, 4692, 4770), 2817362541),
}


@pytest.mark.parametrize("alphabet, longest", list(PINNED))
def test_a_thousand_random_pairs(alphabet, longest):
    rows = [scores(align(ref, hyp)) for ref, hyp in random_pairs(alphabet, longest)]
    sums = tuple(map(sum, zip(*rows)))
    assert (sums, checksum(rows)) == PINNED[alphabet, longest]


@needs_sclite
@pytest.mark.parametrize("alphabet, longest", list(PINNED))
def test_a_thousand_random_pairs_live(tmp_path, alphabet, longest):
    pairs = random_pairs(alphabet, longest, seed=21)
    expected = run_sclite(tmp_path, *([" ".join(side) for side in x] for x in zip(*pairs)))
    assert [scores(align(ref, hyp)) for ref, hyp in pairs] == expected


@needs_sclite
@pytest.mark.parametrize(
    "alternations, optional, fragments", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)]
)
def test_notation_live(tmp_path, alternations, optional, fragments):
    rng = random.Random(5)
    refs = [random_text(rng, alternations, optional, fragments) for _ in range(200)]
    hyps = [random_text(rng, 0, 0, 0) for _ in range(200)]
    flags = ["-D"] * optional + ["-F"] * fragments
    expected = run_sclite(tmp_path, refs, hyps, *flags)
    options = dict(optional=bool(optional), fragments=bool(fragments))
    found = [
        scores(align_any(parse_network(ref), parse_network(hyp), **options))
        for ref, hyp in zip(refs, hyps)
    ]
    # sclite breaks ties among alternatives of equal cost by its own order of arcs
    different = sum(a != b for a, b in zip(found, expected))
    assert different <= (1 if alternations else 0)


def score_files(ref, hyp, **options):
    total = ErrorCounts()
    for entry in assign_words(read_stm(ref), read_ctm(hyp)):
        if not entry.segment.ignored:
            networks = parse_network(entry.segment.text), parse_network(words_to_text(entry.words))
            total += count_pairs(align_any(*networks, **options))
    return (total.utterances, total.ref_words, total.correct, total.subs, total.dels, total.ins)


PLAIN = dict(optional=False, fragments=False)


@pytest.mark.parametrize(
    "ref, options, expected",
    [
        ("lvc_ref.stm", PLAIN, (61, 1779, 1013, 540, 226, 171)),
        ("lvc_ref.stm", {}, (61, 1781, 1015, 539, 227, 170)),
        ("lvc_refe.stm", {}, (58, 1674, 959, 502, 213, 164)),
    ],
)
def test_nist_example_files(shared_data, ref, options, expected):
    """Default flags are sclite's -D -F, as NIST's hubscr calls it."""
    folder = shared_data / "formats" / "sctk"
    assert score_files(folder / ref, folder / "lvc_hyp.ctm", **options) == expected
    if shutil.which(SCLITE[0]):
        flags = [] if options else ["-D", "-F"]
        command = [*SCLITE, *flags, "-r", ref, "stm", "-h", "lvc_hyp.ctm", "ctm"]
        command += ["-o", "rsum", "stdout"]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        line = next(line for line in run.stdout.splitlines() if "| Sum" in line)
        assert tuple(map(int, re.findall(r"\d+", line)))[:6] == expected


def test_linear_networks_align_as_lists():
    for ref, hyp in random_pairs("abc", 12, count=200, seed=3):
        assert align_networks(linear(ref), linear(hyp)) == align(ref, hyp)


def test_long_texts_are_quick():
    rng = random.Random(0)
    ref = [rng.choice("abcdefgh") for _ in range(2500)]
    hyp = [word for word in ref if rng.random() < 0.9]
    counts = count_pairs(align(ref, hyp))
    assert (counts.dels, counts.ins, counts.subs) == (len(ref) - len(hyp), 0, 0)


@pytest.mark.parametrize(
    "ref, hyp, expected",
    [
        ("a { x y / @ } b", "a b", (2, 0, 0, 0)),
        ("a { x y / @ } b", "a x b", (3, 0, 1, 0)),
        ("a { x y / z } b", "a q b", (2, 1, 0, 0)),
        ("a (uh) b", "a b", (3, 0, 0, 0)),
        ("a (uh) b", "a x uh b", (3, 0, 0, 1)),
        ("a th- b", "a the b", (3, 0, 0, 0)),
        ("(%hesitation) uh-huh [laughter] ok", "uh-huh ok", (3, 0, 1, 0)),
        ("a { b / { c / d e } } f", "a d e f", (4, 0, 0, 0)),
        ("{a / ah /} separe", "separe", (1, 0, 1, 0)),  # an empty alternative is none
        ("and/or { x/y / z }", "and/or x/y", (1, 1, 0, 0)),
        ("a;b;c d\\;e", "A d\\;e", (2, 0, 0, 0)),
        ("a } b", "a b", (2, 0, 1, 0)),
        ("{ a / @ }", "", (0, 0, 0, 0)),
        ("", "a b", (0, 0, 0, 2)),
        ("", "", (0, 0, 0, 0)),
    ],
)
def test_notation_as_sclite_reads_it(ref, hyp, expected):
    assert scores(align_any(parse_network(ref), parse_network(hyp))) == expected


def test_an_open_brace_is_refused():
    with pytest.raises(InputError, match="without its }"):
        parse_network("a { b / c")


def test_notation_stays_when_words_change():
    change = str.upper

    def upper(run):
        return [] if run == "um" else change(run).split()

    assert map_words("a { um / uh } (um) (x) b;tag and/or", upper) == "A { @ / UH } (X) B AND/OR"
    assert strip_attributes("a\\;s;tag") == "a;s"
