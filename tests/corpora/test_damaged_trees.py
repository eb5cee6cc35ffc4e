"""Whatever happens to a transcript: an InputError, or every line found or counted; no crash.

Each example damages one transcript of a generated tree: cut short, lines in another order,
random bytes put in, another encoding, nothing left.  A turn of a sound line must then be in the
manifests or in the list of problems.
"""

from __future__ import annotations

import json
import random

import pytest
from checks import turns_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from make_dialog import make_datatang_dialog, make_magicdata_ramc
from make_harpervalley import make_harpervalley
from make_hkust import make_hkust
from make_swbd import make_eval2000, make_fisher, make_swbd
from make_tedlium2 import make_tedlium2
from tree import voices, write_text, write_wav

from icefall_ctx.corpora.datatang_dialog import prepare_datatang_dialog
from icefall_ctx.corpora.eval2000 import prepare_eval2000
from icefall_ctx.corpora.fisher import fisher_calls
from icefall_ctx.corpora.harpervalley import prepare_harpervalley
from icefall_ctx.corpora.hkust import prepare_hkust
from icefall_ctx.corpora.importing import read_calls
from icefall_ctx.corpora.magicdata_ramc import prepare_magicdata_ramc
from icefall_ctx.corpora.swbd import prepare_swbd
from icefall_ctx.corpora.tedlium2 import prepare_tedlium2
from icefall_ctx.errors import InputError, ProblemLog

CORPORA = {  # name -> (make the tree, read it, the transcripts that are damaged)
    "hkust": (make_hkust, prepare_hkust, "*.txt"),
    "swbd": (make_swbd, prepare_swbd, "*-trans.text"),
    "swbd table": (make_swbd, prepare_swbd, "call_con_tab.csv"),
    "eval2000": (make_eval2000, prepare_eval2000, "*.stm"),
    "tedlium2": (
        make_tedlium2,
        lambda root, **k: prepare_tedlium2(root / "TEDLIUM_release2", **k),
        "*.stm",
    ),
    "ramc": (make_magicdata_ramc, prepare_magicdata_ramc, "TXT/*.txt"),
    "ramc parts": (make_magicdata_ramc, prepare_magicdata_ramc, "*.tsv"),
    "datatang": (make_datatang_dialog, prepare_datatang_dialog, "*.txt"),
    "harpervalley": (
        lambda root: make_harpervalley(root, num_calls=3),
        lambda root, **k: prepare_harpervalley(root / "harpervalley", **k),
        "transcript/*.json",
    ),
    "harpervalley metadata": (
        lambda root: make_harpervalley(root, num_calls=3),
        lambda root, **k: prepare_harpervalley(root / "harpervalley", **k),
        "metadata/*.json",
    ),
    "fisher": (
        make_fisher,
        lambda root, problems: {
            "lm": {"supervisions": list(fisher_calls([root], problems)) and ()}
        },
        "trans/000/*.txt",
    ),
}  # fmt: skip

TEXTGRID = """File type = "ooTextFile"
Object class = "TextGrid"

0
4
<exists>
1
"IntervalTier"
"ann"
0
4
2
0
1
"hello"
1
2
"yes"
"""
SOURCES = {  # file of one's own -> content
    "c1.stm": "c1 A ann 0 1 hello\nc1 B bob 1 2 yes\n",
    "c1.txt": "0 1 A: hello\n1 2 B: yes\n",
    "c1.TextGrid": TEXTGRID,
    "c1.json": json.dumps([
        {"channel": 1, "start": 0, "end": 1, "text": "hello"},
        {"channel": 2, "start": 1, "duration": 1, "text": "yes"},
    ], indent=1),
    "c1.ctm": "c1 1 0.1 0.5 hello\nc1 1 1.2 0.5 yes\n",
    "c1.rttm": "SPEAKER c1 1 0 1 <NA> <NA> ann <NA> <NA>\n"
    "SPEAKER c1 1 1 1 <NA> <NA> bob <NA> <NA>\n",
    "text": "u1 hello\nu2 yes\n",
    "segments": "u1 c1 0 1\nu2 c1 1 2\n",
    "utt2spk": "u1 ann\nu2 bob\n",
    "wav.scp": "c1 /nowhere/c1.wav\n",
}  # fmt: skip


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _shuffle(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _noise(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(len(data) + 1)
        data = data[:place] + rng.randbytes(rng.randrange(1, 8)) + data[place + rng.randrange(4) :]
    return data


def _utf16(data: bytes, rng: random.Random) -> bytes:
    return data.decode("latin-1").encode(rng.choice(["utf-16", "utf-16-le", "utf-32"]))


def _latin1(data: bytes, rng: random.Random) -> bytes:
    return data.replace(b"e", b"\xe9")


def _empty(data: bytes, rng: random.Random) -> bytes:
    return rng.choice([b"", b"\n\n", b"\x00" * 9, b"\xef\xbb\xbf"])


def _fields(data: bytes, rng: random.Random) -> bytes:
    """Blanks doubled or lost, numbers replaced by what is no number."""
    changes = [(b" ", b""), (b" ", b"  "), (b"1", b"nan"), (b"0", b"-9e99"), (b".", b",")]
    old, new = rng.choice(changes)
    return data.replace(old, new, rng.randrange(1, 5))


DAMAGE = (_cut, _shuffle, _noise, _utf16, _latin1, _empty, _fields)
SETTINGS = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    made = {}
    for name, (make, _, _) in CORPORA.items():
        made[name] = tmp_path_factory.mktemp(name.replace(" ", "_"))
        make(made[name])
    return made


def _read(read, root, strict):
    """Turns and problems, or None for a clean error."""
    problems = ProblemLog(strict=strict, max_shown=0)
    try:
        return turns_of(read(root, problems=problems)), problems
    except InputError as error:
        assert "\n" not in str(error) and str(error)
        return None


@pytest.mark.parametrize("name", CORPORA)
@SETTINGS
@given(seed=st.integers(0, 2**32), damage=st.sampled_from(DAMAGE), strict=st.booleans())
def test_damaged_corpus(trees, name, seed, damage, strict):
    _, read, pattern = CORPORA[name]
    root, rng = trees[name], random.Random(seed)
    path = rng.choice(sorted(root.rglob(pattern)))
    data = path.read_bytes()
    try:
        path.write_bytes(damage(data, rng))
        result = _read(read, root, strict)
    finally:
        path.write_bytes(data)
    if result is None or damage is not _shuffle or strict or path.suffix == ".json":
        return
    turns, problems = result
    whole, _ = _read(read, root, False)
    assert {turn._replace(speaker="") for turn in turns} == {
        turn._replace(speaker="") for turn in whole
    } or problems


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    root = tmp_path_factory.mktemp("own")
    write_wav(root / "audio/c1.wav", voices(2, 4.0, 8000), 8000)
    for name, text in SOURCES.items():
        kind = "kaldi" if "." not in name or name == "wav.scp" else name.split(".")[1]
        write_text(root / kind.replace("ctm", "rttm") / name, text)
    return root


@pytest.mark.parametrize("name", SOURCES)
@SETTINGS
@given(seed=st.integers(0, 2**32), damage=st.sampled_from(DAMAGE), strict=st.booleans())
def test_damaged_import(own, name, seed, damage, strict):
    rng = random.Random(seed)
    path = next(own.rglob(name))
    data = path.read_bytes()
    problems = ProblemLog(strict=strict, max_shown=0)
    try:
        path.write_bytes(damage(data, rng))
        manifests, met = read_calls(
            path.parent, audio_dir=own / "audio", problems=problems
        )
    except InputError as error:
        assert "\n" not in str(error) and str(error)
        return
    finally:
        path.write_bytes(data)
    kept = len(manifests["supervisions"])
    assert 0 < kept <= met
    assert met - kept <= len(problems)
    # two turns are there in sound input: a missing one has been counted, or its line is gone
    gone = damage in (_cut, _noise, _fields, _empty)
    assert kept >= 2 or problems or gone
