"""Opening and writing Lhotse manifests, with errors a user can act on."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Iterable, Iterator, Optional, Union

from lhotse import CutSet, FeatureSet, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.serialization import (
    NotALhotseManifest,
    deserialize_item,
    load_jsonl,
    resolve_manifest_set_class,
)

from icefall_ctx.errors import InputError, where
from icefall_ctx.files import atomic_path

Pathlike = Union[str, Path]

_KINDS = {
    "recordings": RecordingSet,
    "supervisions": SupervisionSet,
    "cuts": CutSet,
    "features": FeatureSet,
}
_SUFFIXES = (".jsonl", ".jsonl.gz")

# Damaged gzip, bytes that are no text, text that is no JSON, JSON that is no manifest item.
# Lhotse finds the kind of an item by its keys and says "no" in any of these ways.
_UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    AssertionError,
    NotALhotseManifest,
)


def manifest_kind(manifest: Any) -> str:
    """``"recordings"``, ``"supervisions"``, ``"cuts"`` or ``"features"``."""
    return next(kind for kind, cls in _KINDS.items() if isinstance(manifest, cls))


def open_manifest(path: Pathlike, *kinds: str) -> Any:
    """Open a ``.jsonl`` or ``.jsonl.gz`` manifest lazily, if it is one of ``kinds``.

    :param kinds: among ``"recordings"``, ``"supervisions"``, ``"cuts"``, ``"features"``;
        all if none is given.  The first decides what an empty file is.
    :raises InputError: if the file is missing, of another kind, or its first line unreadable.
    """
    check_manifest_path(path)
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    manifest = _open_lazily(path)
    kinds = kinds or tuple(_KINDS)
    if manifest is None:
        return _KINDS[kinds[0]].from_items([])
    found = manifest_kind(manifest)
    if found not in kinds:
        raise InputError(f"{path}: holds {found}; expected {' or '.join(kinds)}")
    return manifest


def check_manifest_path(path: Pathlike) -> None:
    """Raise :class:`InputError` unless the name ends as Lhotse's sequential manifests do."""
    if not str(path).endswith(_SUFFIXES):
        raise InputError(f"{path}: name does not end in {' or '.join(_SUFFIXES)}")


def _open_lazily(path: Pathlike) -> Any:
    try:
        first = next(iter(load_jsonl(path)), None)
        if first is None:
            return None
        return resolve_manifest_set_class(deserialize_item(first)).from_jsonl_lazy(path)
    except _UNREADABLE as error:
        raise InputError(f"{where(path, 1)}: no Lhotse manifest: {error}") from error


def read_manifest(path: Pathlike, *kinds: str) -> Any:
    """:func:`open_manifest`, read into memory whole; errors name the line."""
    manifest = open_manifest(path, *kinds)
    return type(manifest).from_items(iter_items(manifest, path))


def read_some(path: Pathlike, *kinds: str) -> Any:
    """:func:`read_manifest`, refused where nothing is in it."""
    return not_empty(read_manifest(path, *kinds), path)


def not_empty(items: Any, path: Pathlike) -> Any:
    """``items`` of ``path``, refused if there are none: later stages would succeed at nothing."""
    if not len(items):
        raise InputError(f"{path}: is empty; the step that wrote it has failed, or names another")
    return items


def iter_items(manifest: Any, path: Pathlike) -> Iterator[Any]:
    """The items of a lazily opened ``manifest``; an unreadable one ends with file and line."""
    line = 0
    iterator = iter(manifest)
    while True:
        line += 1
        try:
            item = next(iterator)
        except StopIteration:
            return
        except _UNREADABLE as error:
            raise InputError(f"{where(path, line)}: cannot be read: {error}") from error
        yield item


def write_manifest(manifest: Iterable[Any], path: Pathlike) -> None:
    """Write ``manifest`` to a ``.jsonl`` or ``.jsonl.gz`` file, atomically."""
    check_manifest_path(path)
    with atomic_path(path) as temporary:
        with SupervisionSet.open_writer(temporary) as writer:
            for item in manifest:
                writer.write(_to_dict(item))


def _to_dict(item: Any) -> dict:
    """As ``item.to_dict()``, which copies deeply and takes most of the time of a long manifest."""
    if type(item) is not SupervisionSegment or item.alignment or not _plain(item.custom):
        return item.to_dict()
    return {key: value for key, value in item.__dict__.items() if value is not None}


def _plain(custom: Optional[dict]) -> bool:
    return custom is None or all(type(v) in (str, int, float, list) for v in custom.values())


def iter_supervisions(items: Iterable[Any]) -> Iterator[SupervisionSegment]:
    """The supervisions of a manifest of supervisions or of cuts, as they are stored."""
    for item in items:
        if isinstance(item, SupervisionSegment):
            yield item
        elif hasattr(item, "supervisions"):
            yield from item.supervisions
        else:
            raise InputError(f"a {type(item).__name__} has no supervisions")
