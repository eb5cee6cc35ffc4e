"""Kaldi archives of i-vectors, read into manifests and written from them."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterable, Union

import torch
from torch import Tensor

from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.features.ivector.stage import FIELD
from icefall_ctx.files import atomic_path


def read_archive(path: Union[str, Path]) -> Dict[str, Tensor]:
    """``{key: vector}`` of a Kaldi archive ``*.ark`` or index ``*.scp`` of float vectors."""
    import kaldi_native_io

    path = Path(path)
    if path.suffix not in (".ark", ".scp"):
        raise InputError(f"{path}: give a Kaldi archive (*.ark) or its index (*.scp)")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    vectors: Dict[str, Tensor] = {}
    try:
        with kaldi_native_io.SequentialFloatVectorReader(f"{path.suffix[1:]}:{path}") as reader:
            for key, value in reader:
                if key in vectors:
                    raise InputError(f"{path}: the key {key} occurs twice")
                vectors[key] = torch.from_numpy(value.copy())
    except RuntimeError as error:
        raise InputError(f"{path}: {_first_line(error)} (after {len(vectors)} vectors)") from error
    _check(vectors, path)
    return vectors


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["not readable"])[0]


def _check(vectors: Dict[str, Tensor], path: Path) -> None:
    if not vectors:
        raise InputError(f"{path}: no vector in it")
    dim = len(next(iter(vectors.values())))
    for key, vector in vectors.items():
        if len(vector) != dim:
            raise InputError(f"{path}: {key} has {len(vector)} dimensions, others have {dim}")
        if not bool(vector.isfinite().all()):
            raise InputError(f"{path}: {key} holds a value that is not finite")


def write_archive(vectors: Dict[str, Tensor], prefix: Union[str, Path]) -> None:
    """Write ``PREFIX.ark`` and its index ``PREFIX.scp``, in the order of the keys as Kaldi wants.

    The index names the archive by the path given here.
    """
    import kaldi_native_io

    ark, scp = Path(f"{prefix}.ark"), Path(f"{prefix}.scp")
    for key in vectors:
        if not key or any(c.isspace() for c in key):
            raise InputError(f"{key!r}: a Kaldi key is one word without blanks")
    with atomic_path(ark) as new_ark, atomic_path(scp) as new_scp:
        with kaldi_native_io.FloatVectorWriter(f"ark,scp:{new_ark},{new_scp}") as writer:
            for key in sorted(vectors):
                writer.write(key, vectors[key].float().numpy())
        text = new_scp.read_text(encoding="utf-8")
        new_scp.write_text(text.replace(str(new_ark), str(ark)), encoding="utf-8")


def vectors_of(cuts: Iterable, problems: ProblemLog) -> Dict[str, Tensor]:
    """``{supervision id: vector}`` of all supervisions of ``cuts`` that carry an i-vector."""
    vectors = {}
    for cut in cuts:
        for supervision in cut.supervisions:
            if FIELD in (supervision.custom or {}):
                vectors[supervision.id] = torch.from_numpy(supervision.load_ivector().copy())
            else:
                problems.add("no i-vector", supervision.id)
    if not vectors:
        raise InputError("no supervision of the manifest carries an i-vector")
    return vectors


def by_supervision(
    vectors: Dict[str, Tensor], cuts: Iterable, key: str, problems: ProblemLog
) -> Dict[str, Tensor]:
    """Vectors of an archive for the supervisions of ``cuts``; ``key``: "utterance" or "speaker".

    An utterance is looked up by its id and then, for augmented copies, by ``custom.utt_id``.
    """
    found = {}
    for cut in cuts:
        for supervision in cut.supervisions:
            if key == "speaker":
                names = [supervision.speaker]
            else:
                names = [supervision.id, (supervision.custom or {}).get("utt_id")]
            vector = next((vectors[name] for name in names if name in vectors), None)
            if vector is None:
                problems.add("no i-vector in the archive", supervision.id)
            else:
                found[supervision.id] = vector
    return found
