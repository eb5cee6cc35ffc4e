"""Graphs on disk: ``as_dict()`` files as icefall writes them, and G as OpenFst text."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import List
from urllib.parse import quote

import torch

from icefall_ctx.errors import InputError, Pathlike, ProblemLog, where
from icefall_ctx.files import write_torch
from icefall_ctx.formats.lines import read_lines
from icefall_ctx.lattice.k2_import import k2, require_k2

# All that an as_dict() file may name: tensors and ragged tensors.
_ALLOWED = {
    "_k2.ragged RaggedTensor",
    "torch._utils _rebuild_tensor_v2",
    "collections OrderedDict",
    *(f"torch {kind}Storage" for kind in ("Int", "Long", "Float", "Double", "Bool")),
}
_OTHER_IMPORTS = {"STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"}


def _refuse_code(path: Pathlike) -> None:
    """Read the names in the pickle, without running it, and refuse all but tensors.

    ``weights_only`` knows no ragged tensors, and torch 1.13 ignores ``pickle_module``.
    """
    data = torch._C.PyTorchFileReader(str(path)).get_record("data.pkl")
    for operation, argument, _ in pickletools.genops(data):
        name = argument if operation.name == "GLOBAL" else operation.name
        if (operation.name == "GLOBAL" and name not in _ALLOWED) or name in _OTHER_IMPORTS:
            raise InputError(f"{path}: not a graph, it names {name!r}, which has no place there")


def save_fsa(path: Pathlike, fsa: k2.Fsa) -> None:
    """Write ``fsa.as_dict()``; attributes such as its fingerprints travel inside."""
    write_torch(path, fsa.as_dict())


def save_lattice(folder: Pathlike, utt_id: str, lattice: k2.Fsa) -> Path:
    """One file an utterance, named by its id; what a file name cannot hold is %-escaped."""
    path = Path(folder) / f"{quote(utt_id, safe='')}.pt"
    save_fsa(path, lattice)
    return path


def load_fsa(path: Pathlike, device: str = "cpu") -> k2.Fsa:
    """Read what :func:`save_fsa` or icefall wrote; a file with anything but tensors is refused."""
    require_k2()
    if not Path(path).is_file():
        raise InputError(f"{path}: no such graph; compile it with local/compile_hlg.py")
    try:
        _refuse_code(path)
        content = torch.load(path, map_location=device, weights_only=False)
    except (pickle.UnpicklingError, RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: not a graph ({str(error).splitlines()[0]})") from error
    if not isinstance(content, dict) or "arcs" not in content:
        raise InputError(f"{path}: not a graph, it has no arcs")
    return k2.Fsa.from_dict(content)


def read_openfst(path: Pathlike) -> k2.Fsa:
    """G out of ``G_3_gram.fst.txt``: word ids as labels and ``aux_labels``, scores = -weights.

    Every arc needs four numbers and a weight, every final state a weight.
    Raises :class:`InputError` with file and line otherwise.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such G; write it with local/compile_hlg.py")
    lines = []
    for number, line in read_lines(path, ProblemLog(strict=True)):
        _check_openfst_line(line.split(), where(path, number))
        lines.append(line)
    if not any(len(line.split()) == 2 for line in lines):
        raise InputError(f"{path}: G has no final state")
    return k2.Fsa.from_openfst("\n".join(lines) + "\n", acceptor=False)


def _check_openfst_line(fields: List[str], place: str) -> None:
    if len(fields) in (1, 4):
        raise InputError(f"{place}: the weight is missing")
    if len(fields) not in (2, 5):
        raise InputError(f"{place}: expected 'from to label label weight' or 'state weight'")
    if any(not _is_number(field) for field in fields):
        raise InputError(f"{place}: not a number in {' '.join(fields)!r}; word ids are expected")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
