"""Every command line: a mistake ends with one line that says what to do, and status 2."""

import errno
import os
import resource
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from icefall_ctx.cli import COMMANDS, main
from icefall_ctx.command_line import OneLineParser, number, one_line_errors
from icefall_ctx.errors import InputError
from icefall_ctx.files import check_output, only_one, read_torch, write_torch

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted((ROOT / "local").glob("*.py"))


def line_of(capsys, function, *arguments, status: int = 2) -> str:
    """The one line on standard error with which ``function`` ends."""
    with pytest.raises(SystemExit) as left:
        function(*arguments)
    assert left.value.code == status
    output = capsys.readouterr()
    assert output.err.count("\n") == 1, output.err
    return output.err


def fail(error: BaseException):
    with one_line_errors("prog"):
        raise error


@pytest.mark.parametrize(
    "error, shown",
    [
        (InputError("a.txt:3: a word\nhere"), "prog: a.txt:3: a word here\n"),
        (OSError(errno.ENOSPC, "No space left", "b.pt"), "prog: b.pt: No space left; free some"),
        (OSError(errno.ENOSPC, "No space left"), "prog: No space left; free some"),
        (FileNotFoundError(errno.ENOENT, "No such file", "c"), "prog: c: No such file; name an"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "d"), "prog: d: Is a directory; name"),
    ],
)
def test_one_line(error, shown, capsys):
    assert line_of(capsys, fail, error).startswith(shown)


def test_an_interruption_has_a_status_of_its_own(capsys):
    assert line_of(capsys, fail, KeyboardInterrupt(), status=130) == "prog: interrupted\n"


class Refusing(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        raise InputError("cut-7: no features")


def test_an_error_in_a_worker_is_one_line(capsys):
    def load():
        with one_line_errors("prog"):
            list(torch.utils.data.DataLoader(Refusing(), num_workers=1))

    assert line_of(capsys, load) == "prog: cut-7: no features\n"


def test_a_file_that_ends_early_is_no_interruption(monkeypatch):
    """click says "aborted" of both."""

    def read(*args, **kwargs):
        raise EOFError("ends early")

    monkeypatch.setattr("icefall_ctx.data.manifests.open_manifest", read)
    with pytest.raises(EOFError):
        main(["validate", "a.jsonl"])


@pytest.mark.parametrize("error", [ValueError("a bug"), OSError(errno.EIO, "a broken disk")])
def test_faults_of_the_program_keep_their_trace(error):
    with pytest.raises(type(error)):
        fail(error)


def parser() -> OneLineParser:
    parser = OneLineParser(prog="prog")
    parser.add_argument("--num-jobs", type=number(int, 1, 8), required=True)
    parser.add_argument("file", nargs="?")
    return parser


@pytest.mark.parametrize(
    "given, shown",
    [
        (["--num-job", "1"], "unknown option '--num-job'; did you mean --num-jobs?"),
        (["--num-job=1"], "unknown option '--num-job'; did you mean --num-jobs?"),
        ([], "required: --num-jobs"),
        (["--num-jobs", "x"], "invalid int value: 'x'"),
        (["--num-jobs", "0"], "0 must be between 1 and 8"),
        (["--num-jobs", "1", "a", "b"], "unexpected argument 'b'"),
    ],
)
def test_options(given, shown, capsys):
    line = line_of(capsys, parser().parse_args, given)
    assert line.startswith("prog: ") and shown in line and "--help" in line


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-0.1"])
def test_numbers_are_finite(value, capsys):
    parser = OneLineParser()
    parser.add_argument("--rate", type=number(float, 0))
    assert f"{value} must be at least 0" in line_of(capsys, parser.parse_args, [f"--rate={value}"])


@pytest.mark.parametrize(
    "command", [[name] for name in COMMANDS] + [["ivector", "train"], ["memory", "lists"]]
)
def test_commands_refuse_a_typo(command, capsys):
    line = line_of(capsys, main, [*command, "--sart-stage", "1"])
    assert line.startswith(f"icefall-ctx {' '.join(command)}: No such option")


def test_a_command_that_is_none(capsys):
    assert "No such command 'lnk'" in line_of(capsys, main, ["lnk"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_refuse_a_typo(script, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(script), "--sart-stage", "1"])
    line = line_of(capsys, lambda: runpy.run_path(str(script), run_name="__main__"))
    assert line.startswith(f"{script.name}: unknown option '--sart-stage'")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    """A limit on file sizes stands in for it: torch's own writer would abort the process."""
    path = tmp_path / "model.pt"
    write_torch(path, torch.zeros(2))
    limit = 20_000
    code = (
        "import sys, torch\n"
        "from icefall_ctx.command_line import one_line_errors\n"
        "from icefall_ctx.files import check_output, only_one, read_torch, write_torch\n"
        "with one_line_errors('prog'):\n"
        "    write_torch(sys.argv[1], torch.zeros(100_000))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "file sizes" in done.stderr
    assert os.listdir(tmp_path) == ["model.pt"] and read_torch(path).shape == (2,)


def test_a_folder_in_the_place_of_the_output_is_named_by_its_name(tmp_path):
    with pytest.raises(IsADirectoryError) as error:
        write_torch(tmp_path, 1)
    assert error.value.filename == str(tmp_path) and error.value.filename2 is None
    with pytest.raises(InputError, match="is a folder"):
        check_output(tmp_path)


@pytest.mark.parametrize("name", ["x" * 300, "file/below"])
def test_an_output_that_cannot_be_is_named_before_the_work(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"{name}: cannot be written"):
        check_output(tmp_path / name)


def test_checking_an_output_leaves_nothing(tmp_path):
    check_output(tmp_path / "new" / "a.pt")
    assert os.listdir(tmp_path / "new") == []


def test_only_one_process_at_a_time(tmp_path):
    with only_one(tmp_path):
        with pytest.raises(InputError, match="another process is writing"):
            with only_one(tmp_path):
                pass
    with only_one(tmp_path):
        pass


@pytest.mark.parametrize("content", [b"", b"some text", "cut"])
def test_a_file_that_is_no_checkpoint(tmp_path, content):
    """Without the advice of torch's message, to run what is in it."""
    path = tmp_path / "a.pt"
    write_torch(path, {"model": torch.zeros(1000)})
    path.write_bytes(path.read_bytes()[:-1000] if content == "cut" else content)
    with pytest.raises(InputError, match="a.pt: not a language model") as error:
        read_torch(path, what="a language model")
    assert "weights_only" not in str(error.value) and "\n" not in str(error.value)
