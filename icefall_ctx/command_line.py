"""What every command line has in common: one line for what a user can put right, and status 2."""

from __future__ import annotations

import argparse
import difflib
import errno
import math
import os
import sys
from contextlib import contextmanager
from typing import Callable, Iterator

from icefall_ctx.errors import InputError

# What the file system refuses for a reason that is the user's to remove.  Other errors of the
# operating system are faults of the program and keep their stack trace.
REFUSED = {
    errno.ENOENT: "name an existing file or folder",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "a file stands where a folder is needed",
    errno.EEXIST: "a file stands where a folder is needed",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EACCES: "check its permissions, or choose another folder",
    errno.EPERM: "check its permissions, or choose another folder",
    errno.EROFS: "choose a folder that can be written",
    errno.ENOSPC: "free some space and run again",
    errno.EDQUOT: "free some space and run again",
    errno.EFBIG: "raise the limit on file sizes and run again",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
}
USAGE, INTERRUPTED = 2, 130  # exit statuses


@contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """End the program with one line on standard error and status 2 for bad input, a file that
    cannot be read or written, or a full disk; quietly where nobody reads standard output."""
    try:
        yield
    except InputError as error:
        end(program, _message(error))
    except BrokenPipeError:  # as of "| head"; python would complain again when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        end(program, refusal(error))
    except KeyboardInterrupt:
        end(program, "interrupted", INTERRUPTED)


def _message(error: InputError) -> str:
    """Without the trace that a worker process of a data loader puts into the message."""
    text = str(error)
    if text.startswith("Caught InputError in "):
        return text.rstrip().rpartition(f"{InputError.__module__}.InputError: ")[2]
    return text


def end(program: str, message: str, status: int = USAGE) -> None:
    """Leave with one line on standard error."""
    print(f"{program}: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


def refusal(error: OSError) -> str:
    """``FILE: reason; what to do``"""
    place = f"{error.filename}: " if error.filename is not None else ""
    return f"{place}{error.strerror}; {REFUSED[error.errno]}"


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line that says what to do."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def parse_args(self, args=None, namespace=None):  # noqa: D102
        given = sys.argv[1:] if args is None else list(args)
        self._refuse_unknown(given)
        namespace, unknown = self.parse_known_args(given, namespace)
        if unknown:
            self.error(f"unexpected argument '{unknown[0]}'")
        return namespace

    def _refuse_unknown(self, given: list) -> None:
        """Before argparse does: it names what is missing rather than what is misspelt."""
        known = [flag for action in self._actions for flag in action.option_strings]
        for name in (text.partition("=")[0] for text in _until_dashes(given)):
            if name.startswith("--") and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                guess = f"; did you mean {near[0]}?" if near else ""
                self.error(f"unknown option '{name}'{guess}")

    def error(self, message: str) -> None:
        self.exit(USAGE, f"{self.prog}: {message} (--help lists the options)\n")


def _until_dashes(given: list) -> list:
    return given[: given.index("--")] if "--" in given else given


def number(kind: Callable[[str], float], low: float, high: float = math.inf) -> Callable:
    """An argparse type: a finite number between ``low`` and ``high``, both included."""

    def parse(text: str) -> float:
        value = kind(text)
        if not low <= value <= high or math.isinf(value):
            allowed = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
            raise argparse.ArgumentTypeError(f"{text} must be {allowed}")
        return value

    parse.__name__ = kind.__name__  # argparse names it where kind refuses the text
    return parse
