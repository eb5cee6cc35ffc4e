"""Every recipe from its corpus to its error rate, on a small tree in the corpus' own layout.

The commands are those of a user, ``prepare.sh`` stage by stage, ``train.py``, ``decode.py``, in a
copy of the recipe's folder beside a link to ``local/``.  The model is as small as it gets.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, NamedTuple, Sequence

import make_dialog
import make_fsdd
import make_harpervalley
import make_hkust
import make_newwords
import make_swbd
import make_tedlium2
import pytest
from tree import voices, write_text, write_wav

ROOT = Path(__file__).resolve().parents[2]
TINY_MODEL = (
    "--encoder-layers 1 --decoder-layers 1 --dim 16 --ff-dim 16 --heads 2 --subsampling-channels 4 "
    "--num-epochs 1 --num-buckets 1 --max-duration 20 --warmup 10 --num-threads 1 "
    "--tensorboard false"
).split()
DECODE = "--avg 1 --beam-size 2 --num-threads 1".split()
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "OMP_NUM_THREADS": "1",
}


class Recipe(NamedTuple):
    name: str
    make: Callable[[Path], object]  # writes the corpus
    prepare: str  # options of prepare.sh; {tree} is where the corpus was written
    preset: str
    parts: str
    train: str = ""  # more options of train.py
    ivectors: bool = False
    lm: bool = False
    decode: str = ""  # more options of decode.py


RECIPES = [
    Recipe(
        "hkust",
        make_hkust.make_hkust,
        "--corpus-dir {tree}/LDC2005S15 --transcript-dir {tree}/LDC2005T32 --num-valid-calls 1 "
        "--max-lost 0.2",
        "conformer-all-ivector",
        "train valid dev",
        "--speaker-dim 3",  # LDA of two training calls: four speakers, three dimensions
        ivectors=True,
    ),
    Recipe(
        "swbd",
        make_swbd.make_all,
        "--corpus-dir {tree}/LDC97S62 --transcript-dir {tree}/swb_ms98_transcriptions "
        "--eval-dir {tree}/LDC2002S09 --eval-transcript-dir {tree}/LDC2002T43 "
        "--fisher-dirs {tree}/LDC2004T19 --num-dev-calls 1 --speed-parts= --vocab-size 40",
        "transformer-conditional2",
        "train dev eval2000",
        "--lang-dir data/lang_bpe_40",
    ),
    Recipe(
        "tedlium2",
        make_tedlium2.make_tedlium2,
        "--corpus-dir {tree}/TEDLIUM_release2 --speed-parts= --vocab-size 40",
        "conformer-context",
        "train dev test",
        "--lang-dir data/lang_bpe_40",
        lm=True,
    ),
    Recipe(
        "datatang_dialog",
        make_dialog.make_datatang_dialog,
        "--corpus-dir {tree}/datatang --speed-parts=",
        "transformer-residual",
        "train dev test",
    ),
    Recipe(
        "magicdata_ramc",
        make_dialog.make_magicdata_ramc,
        "--corpus-dir {tree}/MagicData-RAMC --speed-parts=",
        "conformer-conditional1",
        "train dev test",
    ),
    Recipe(
        "harpervalley",
        make_harpervalley.make_harpervalley,
        "--corpus-dir {tree}/harpervalley --speed-parts= --vocab-size 40",
        "conformer-all",
        "train dev test",
        "--lang-dir data/lang_bpe_40",
    ),
    Recipe(
        "newwords",
        make_newwords.make_newwords,
        "--librispeech {tree}/librispeech --commonvoice {tree}/commonvoice --mustc {tree}/mustc "
        "--europarl-st {tree}/europarl_st --how2 {tree}/how2 --tedlium3 {tree}/tedlium3 "
        "--num-words 2 --vocab-size 50",
        "2mem-permute",
        "train dev test new_words",
        "--lang-dir data/lang_bpe_50 --memory-encoder-layers 1 --memory-decoder-layers 1",
        decode="--words house,hill",  # the letters of the tree's new words are in no other word
    ),
]


def copy_recipe(name: str, folder: Path) -> Path:
    """The recipe in ``folder``, with nothing that was made in the checkout."""
    (folder / "local").symlink_to(ROOT / "local")
    target = folder / "egs" / name / "ASR"
    made = shutil.ignore_patterns("data", "exp", "download", "__pycache__")
    shutil.copytree(ROOT / "egs" / name / "ASR", target, ignore=made)
    return target


def run(folder: Path, *command: object, status: int = 0) -> str:
    """What the command prints, both streams; its exit status has to be ``status``."""
    arguments = [str(argument) for argument in command]
    done = subprocess.run(
        arguments,
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == status, f"{' '.join(arguments)}\n{done.stdout}"
    return done.stdout


def marks(folder: Path) -> List[str]:
    return sorted(path.name for path in (folder / "data/.done").iterdir())


def prepare(folder: Path, options: List[str], ivectors: bool) -> None:
    """All stages, stopped once in the middle."""
    script = "./prepare.sh"
    options = [*options, "--num-jobs", "1"]
    run(folder, script, *options, "--stop-stage", "1")
    assert marks(folder) == ["0", "1"]
    rest = run(folder, script, *options)
    assert "stage 1: manifests: done before" in rest and "stage 2: conversation links\n" in rest
    assert marks(folder) == list("0123456")
    again = run(folder, script, *options)
    assert again.count("done before") == 7
    if ivectors:
        sizes = "--num-gaussians 2 --dim 6 --lda-dim 3 --iters 1 --ubm-iters 1 --num-ceps 5"
        run(folder, script, *options, "--stage", "7", "--ivector-options", sizes)
        assert marks(folder) == list("01234567")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_from_corpus_to_error_rate(recipe: Recipe, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    recipe.make(tree)
    folder = copy_recipe(recipe.name, tmp_path)
    prepare(folder, recipe.prepare.format(tree=tree).split(), recipe.ivectors)
    cuts = [f"{recipe.name}_cuts_{part}.jsonl.gz" for part in recipe.parts.split()]
    assert sorted(path.name for path in (folder / "data/fbank").glob("*.gz")) == sorted(cuts)
    exp = train_and_decode(folder, recipe.preset, recipe.train.split(), recipe.decode.split())
    if recipe.lm:
        decode_with_lm(folder, exp)


def train_and_decode(
    folder: Path, preset: str, options: Sequence[str], decode: Sequence[str] = ()
) -> Path:
    exp = folder / "exp/tiny"
    arguments = ("--config", f"conf/{preset}.yaml", "--exp-dir", exp, *TINY_MODEL, *options)
    run(folder, "./train.py", *arguments)
    assert (exp / "epoch-1.pt").is_file()
    output = run(folder, "./decode.py", "--exp-dir", exp, *DECODE, *decode)
    assert "real-time factor" in output
    assert list(exp.glob("beam/errs-*")) and list(exp.glob("beam/wer-summary-*"))
    return exp


def decode_with_lm(folder: Path, exp: Path) -> None:
    train = (ROOT / "local/train_lm.py", "data/lm/train.txt", "--dev", "data/lm/dev.txt")
    sizes = ("--lang-dir", exp / "lang", "--exp-dir", "exp/lm", "--size", "tiny", "--epochs", "1")
    run(folder, sys.executable, *train, *sizes)
    lm = ("--lm-exp-dir", "exp/lm", "--lm-scale", "0.3", "--carry-lm-state", "true")
    run(folder, "./decode.py", "--exp-dir", exp, *DECODE, *lm)
    assert list(exp.glob("beam/errs-*lm0.3-carried*"))


@pytest.mark.slow
def test_imported_calls_make_a_recipe_that_runs(tmp_path: Path) -> None:
    for number in range(4):
        write_wav(tmp_path / f"calls/c{number}.wav", voices(2, 4.0, 8000, number), 8000)
        text = "0.5 1.5 A: hello there\n1.2 2.0 B: yes who is it\n2.5 3.9 A: good bye\n"
        write_text(tmp_path / f"calls/c{number}.txt", text)
    folder = tmp_path / "egs/mine/ASR"
    run(tmp_path, "icefall-ctx", "import", "calls", "--name", "mine", "--output", folder)
    run(folder, "./prepare.sh", "--num-jobs", "1", "--vocab-size", "30", "--speed-parts=")
    train_and_decode(folder, "tiny", ["--lang-dir", "data/lang_bpe_30"])


@pytest.mark.slow
def test_digit_calls_from_recordings_to_error_rate(tmp_path: Path) -> None:
    tree = make_fsdd.make_fsdd(tmp_path / "fsdd")
    folder = copy_recipe("digits_dialog", tmp_path)
    hours = "--train-hours 0.03 --test-hours 0.01 --vocab-size 30"
    prepare(folder, ["--fsdd-dir", str(tree), *hours.split()], False)
    train_and_decode(folder, "tiny-conformer-history", ["--lang-dir", "data/lang_bpe_30"])


@pytest.mark.slow
def test_rendered_dialogues_from_nothing_to_error_rate(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader", reason="mini_dialog is rendered with espeakng-loader")
    folder = copy_recipe("mini_dialog", tmp_path)
    hours = "--train-hours 0.03 --test-hours 0.02 --vocab-size 60"
    prepare(folder, [*hours.split(), "--parts", "train dev test"], False)
    train_and_decode(folder, "demo", ["--lang-dir", "data/lang_bpe_60"])


NAMES = sorted(path.parts[-3] for path in ROOT.glob("egs/*/ASR/prepare.sh"))


@pytest.mark.parametrize("name", NAMES)
def test_a_mistyped_option_is_one_line(name: str, tmp_path: Path) -> None:
    folder = copy_recipe(name, tmp_path)
    for arguments, message in (
        (["--stages", "1"], "prepare.sh: unknown option '--stages' (--help lists the options)"),
        (["--stage", "x"], "prepare.sh: --stage wants a number, got 'x'"),
        (["now"], "prepare.sh: unexpected argument 'now' (--help lists the options)"),
        (["--num-jobs"], "prepare.sh: --num-jobs wants a value"),
        (["--num-jobs=0"], "prepare.sh: --num-jobs '0' is not a whole number above zero"),
        (["--stage=9"], "prepare.sh: --stage 9 is no stage; there are 0 to 7"),
        (["--unit=words"], "prepare.sh: --unit 'words' is neither bpe nor char"),
        (["--stage=3", "--stop-stage=2"],
         "prepare.sh: --stage 3 comes after --stop-stage 2: nothing to do"),
    ):
        assert run(folder, "./prepare.sh", *arguments, status=2) == message + "\n"
    assert not (folder / "data").exists()
    assert "--num-jobs" in run(folder, "./prepare.sh", "--help")


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_corpus_that_is_not_there_is_one_line(recipe: Recipe, tmp_path: Path) -> None:
    folder = copy_recipe(recipe.name, tmp_path)
    options = recipe.prepare.format(tree=tmp_path / "none").split()
    lines = run(folder, "./prepare.sh", *options, status=2).splitlines()
    assert len(lines) == 2 and "stage 0" in lines[0]
    assert lines[1].startswith("prepare.sh: no folder '") and "README.md" in lines[1]
    assert marks(folder) == []
