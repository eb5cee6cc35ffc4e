"""The one place that imports k2, at the first use and not before.

Everything but lattices works without k2, whose wheel has to match the installed torch.
"""

from __future__ import annotations

import importlib
from typing import Any

from icefall_ctx.errors import InputError

HOW_TO_GET_K2 = (
    "this method needs k2, which could not be imported ({error}): with torch 1.13.1 on Linux "
    "run 'pip install --no-deps -r local/requirements/k2.txt'; with another torch take the wheel "
    "built for it from https://k2-fsa.github.io/k2/installation/from_wheels.html; "
    "or use a decoding method without lattices, such as ctc-greedy or beam"
)


class _LazyK2:
    """Stands for the module ``k2`` and loads it when its first attribute is asked for."""

    def __getattr__(self, name: str) -> Any:
        try:
            module = importlib.import_module("k2")
        except ImportError as error:
            raise InputError(HOW_TO_GET_K2.format(error=error)) from error
        return getattr(module, name)


k2 = _LazyK2()


def require_k2() -> None:
    """Fail now, with the way to get k2, rather than after minutes of work."""
    k2.Fsa  # noqa: B018  (the attribute access is the check)
