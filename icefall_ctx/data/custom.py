"""Custom fields of a supervision, checked when they are set.

Lhotse stores ``custom`` as JSON and looks at the keys of nested dictionaries to find arrays and
recordings.  A value that JSON cannot hold fails hours later, when the manifest is saved, and a
nested dictionary with a key ``width`` or ``array`` does not come back.  Both are refused here.
"""

from __future__ import annotations

import math
from typing import Any

from lhotse import SupervisionSegment
from lhotse.utils import fastcopy

from icefall_ctx.errors import InputError

_SCALARS = frozenset({str, int, bool, type(None)})
# Lhotse takes a nested dictionary with such a key for an image or a stored array.
_LHOTSE_KEYS = ("width", "array")


def check_custom(value: Any, place: str) -> None:
    """Raise :class:`InputError` unless ``value`` comes back unchanged from a saved manifest.

    Strings, whole numbers, finite floats, booleans, ``None``, and lists and dictionaries of
    these pass, and so do Lhotse's own objects (arrays, recordings), which know how to save
    themselves.  ``place`` opens the message: the supervision and the field.
    """
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is float:
        if not math.isfinite(value):
            raise InputError(f"{place}: {value} is not a number that JSON can hold; leave it out")
    elif kind is list:
        for item in value:
            check_custom(item, place)
    elif kind is dict:
        _check_dict(value, place)
    elif not kind.__module__.startswith("lhotse."):
        name = f"{kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
        raise InputError(
            f"{place}: a {name} does not survive saving; "
            "use plain strings, numbers, lists and dictionaries"
        )


def _check_dict(value: dict, place: str) -> None:
    for key, item in value.items():
        if type(key) is not str:
            raise InputError(f"{place}: key {key!r} is no string, and would come back as one")
        if key in _LHOTSE_KEYS:
            raise InputError(f"{place}: Lhotse reads the key {key!r} as its own; rename it")
        check_custom(item, f"{place}.{key}")


def check_supervision(supervision: SupervisionSegment) -> None:
    """Check every custom field of ``supervision``; see :func:`check_custom`."""
    for key, value in (supervision.custom or {}).items():
        if type(value) is not str:  # by far the most frequent
            check_custom(value, f"{supervision.id}: custom field {key!r}")


def with_custom(supervision: SupervisionSegment, **fields: Any) -> SupervisionSegment:
    """A copy of ``supervision`` with ``fields`` set in a custom dictionary of its own.

    Lhotse's copies share that dictionary with their original, so that setting a field of one
    changes the other; this never does.
    """
    for key, value in fields.items():
        check_custom(value, f"{supervision.id}: custom field {key!r}")
    return fastcopy(supervision, custom={**(supervision.custom or {}), **fields})
