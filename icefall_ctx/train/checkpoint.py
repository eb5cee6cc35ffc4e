"""Checkpoints: written whole or not at all, read without running code, averaged in one place.

Files have icefall's names and its key ``model``, so that its own tools read them:
``epoch-N.pt`` after an epoch, ``checkpoint-STEP.pt`` inside one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from icefall_ctx.config import ModelConfig, load_config
from icefall_ctx.errors import InputError
from icefall_ctx.files import read_torch, write_torch
from icefall_ctx.models.asr import AsrModel, build_model
from icefall_ctx.models.encoder import Conv2dSubsampling
from icefall_ctx.text.tokenizer import Tokenizer

Checkpoint = Dict[str, Any]
State = Dict[str, Tensor]
LANG = "lang"  # the tokenizer's folder in exp_dir
_EPOCH = re.compile(r"epoch-(\d+)\.pt$")
_STEP = re.compile(r"checkpoint-(\d+)\.pt$")


def plain(config: Any) -> Dict[str, Any]:
    """A config as JSON can hold it."""
    values = dataclasses.asdict(config)
    return {k: str(v) if isinstance(v, Path) else v for k, v in values.items()}


def fingerprint(config: ModelConfig) -> str:
    """16 hex digits that are the same for the same model settings."""
    text = json.dumps(plain(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def epoch_path(exp_dir: Path, epoch: int) -> Path:
    return Path(exp_dir) / f"epoch-{epoch}.pt"


def step_path(exp_dir: Path, step: int) -> Path:
    return Path(exp_dir) / f"checkpoint-{step}.pt"


def epoch_checkpoints(exp_dir: Path) -> Dict[int, Path]:
    """The checkpoints of whole epochs, oldest first."""
    return _numbered(exp_dir, _EPOCH)


def step_checkpoints(exp_dir: Path) -> Dict[int, Path]:
    """The checkpoints inside epochs, by update, oldest first."""
    return _numbered(exp_dir, _STEP)


def _numbered(exp_dir: Path, pattern: "re.Pattern[str]") -> Dict[int, Path]:
    found = ((pattern.match(path.name), path) for path in Path(exp_dir).glob("*.pt"))
    return dict(sorted((int(match.group(1)), path) for match, path in found if match))


# ---------------------------------------------------------------------------- one file


def _map(value: Any, convert: Callable[[Any], Any]) -> Any:
    """Apply ``convert`` to everything in nested dictionaries, lists and tuples."""
    if isinstance(value, dict):
        return {key: _map(item, convert) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_map(item, convert) for item in value)
    return convert(value)


def _pack(value: Any) -> Any:
    """Floats as tensors: the safe loader of torch 1.13 knows no plain floats."""
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value


def _unpack(value: Any) -> Any:
    is_float = isinstance(value, Tensor) and value.dtype == torch.float64 and value.dim() == 0
    return value.item() if is_float else value


def _convert(checkpoint: Checkpoint, convert: Callable[[Any], Any]) -> Checkpoint:
    return {k: v if k == "model" else _map(v, convert) for k, v in checkpoint.items()}


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write atomically: a reader, or the next start after a kill, meets only whole files."""
    write_torch(path, _convert(checkpoint, _pack))


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint onto the CPU, as data: nothing in the file is run.

    Raises:
      InputError: no such file, cut off, not a checkpoint, or holding more than plain data.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: no such checkpoint")
    checkpoint = read_torch(path)
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise InputError(f"{path}: holds no 'model'; expected a checkpoint of train.py")
    return _convert(checkpoint, _unpack)


def load_state(model: nn.Module, state: Mapping[str, Tensor], source: str) -> None:
    """Load parameters and buffers; every name and shape has to agree.

    Raises:
      InputError: naming what is missing, unexpected, or of another shape.
    """
    problems = _differences(model.state_dict(), state)
    if problems:
        raise InputError(f"{source}: is of a different model: {'; '.join(problems)}")
    model.load_state_dict(state, strict=True)


def _differences(expected: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> List[str]:
    missing = [name for name in expected if name not in state]
    unexpected = [name for name in state if name not in expected]
    shapes = [
        f"{name} {tuple(state[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in expected
        if name in state and state[name].shape != expected[name].shape
    ]
    groups = (("missing", missing), ("unexpected", unexpected), ("other shape", shapes))
    return [f"{kind}: {_some(names)}" for kind, names in groups if names]


def _some(names: Sequence[str], shown: int = 5) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest


# ---------------------------------------------------------------------------- start and resume


def latest_checkpoint(exp_dir: Path) -> Optional[Tuple[Path, Checkpoint]]:
    """The readable checkpoint of most updates; one that cannot be read is named and passed by."""
    found = (
        _newest_readable(list(step_checkpoints(exp_dir).values())),
        _newest_readable(list(epoch_checkpoints(exp_dir).values())),
    )
    # Of two after the same update, the one that also holds the epoch's validation (the last).
    newest = None
    for item in filter(None, found):
        if newest is None or item[1]["step"] >= newest[1]["step"]:
            newest = item
    return newest


def _newest_readable(paths: Sequence[Path]) -> Optional[Tuple[Path, Checkpoint]]:
    for path in reversed(paths):
        try:
            return path, read_checkpoint(path)
        except InputError as error:
            logging.warning("%s; trying an older one", error)
    return None


def warn_of_later(exp_dir: Path, step: int, epoch: int) -> None:
    """Checkpoints of a run that is being done again would be taken up by the next start."""
    later = [p for e, p in epoch_checkpoints(exp_dir).items() if e >= epoch]
    later += [p for s, p in step_checkpoints(exp_dir).items() if s > step]
    if later:
        names = _some([path.name for path in later])
        logging.warning(
            "%s: of an earlier run from here; delete them if this one replaces it", names
        )


def remove_leftovers(exp_dir: Path) -> None:
    """Delete what a killed process had begun to write."""
    for path in Path(exp_dir).glob(".tmp-*.pt"):
        path.unlink()


def keep_newest(exp_dir: Path, keep: int) -> None:
    """Delete all but the ``keep`` newest checkpoints inside epochs."""
    paths = list(step_checkpoints(exp_dir).values())
    for path in paths[: max(0, len(paths) - keep)]:
        path.unlink()


INIT_AVERAGE = 3  # epochs averaged where --init-from names a folder


def init_from(model: nn.Module, path: Path, vocab_fingerprint: str) -> List[str]:
    """Start ``model`` from a trained model that lacks some of its modules.

    A module is either in the checkpoint whole or not at all, and nothing in the checkpoint is
    without a place.  A model without a word memory becomes the baseline of one with it, and one
    without speaker features starts as if it did not hear them.

    Args:
      path: a checkpoint, or an experiment's folder: the mean of its best three epochs.

    Returns:
      The names of the modules that keep their fresh parameters.
    """
    paths = best_checkpoints(path, INIT_AVERAGE) if Path(path).is_dir() else [path]
    state = average_checkpoints(paths)
    known = read_checkpoint(paths[0]).get("config", {}).get("vocab_fingerprint", vocab_fingerprint)
    if known != vocab_fingerprint:
        raise InputError(f"--init-from {path}: was trained with another tokenizer; use its own")
    has_memory = isinstance(model, AsrModel) and model.has_memory
    fresh_memory = has_memory and not any(name.startswith(BASELINE) for name in state)
    if fresh_memory:
        state = {as_baseline(name): value for name, value in state.items()}
    if isinstance(model, AsrModel) and model.config.speaker_features != "none":
        _add_speaker_columns(model, state)
    expected = model.state_dict()
    new = sorted({_module(name) for name in expected} - {_module(name) for name in state})
    rest = {name: value for name, value in expected.items() if _module(name) not in new}
    problems = _differences(rest, state)
    if problems or not rest:
        raise InputError(f"--init-from {path}: does not fit: {'; '.join(problems) or 'no module'}")
    model.load_state_dict(state, strict=False)
    if fresh_memory:
        model.decoder.start_from_baseline()
    logging.info("started from %s; new modules: %s", path, ", ".join(new) or "none")
    return new


def _add_speaker_columns(model: nn.Module, state: State) -> None:
    """Give a baseline's input layer zeros for the i-vector that it has never seen."""
    for name, module in model.named_modules():
        weight = state.get(f"{name}.out.weight")
        if isinstance(module, Conv2dSubsampling) and module.fits(weight):
            state[f"{name}.out.weight"] = module.widened(weight)


BASELINE = "decoder.baseline."


def as_baseline(name: str) -> str:
    """The name that a parameter of a model without a word memory has in one with it."""
    head, decoder, tail = name.partition("decoder.")
    return BASELINE + tail if decoder and not head else name


def _module(name: str) -> str:
    return name.rpartition(".")[0]


# ---------------------------------------------------------------------------- averaging


def average_checkpoints(paths: Sequence[Path]) -> State:
    """The mean of the parameters of several checkpoints.

    Sums are in float64; whole numbers become the mean, rounded.  A name is averaged once, also
    where two names share their values.  Of checkpoints after the same update one is used.

    Raises:
      InputError: no paths, an unreadable file, or different names or shapes.
    """
    if not paths:
        raise InputError("no checkpoints to average")
    sums: State = {}
    types: Dict[str, torch.dtype] = {}
    seen: Dict[Any, Path] = {}
    for path in paths:
        checkpoint = read_checkpoint(path)
        step = checkpoint.get("step", str(path))
        if step in seen:
            logging.warning("%s: same update as %s; used once", path, seen[step])
            continue
        seen[step] = path
        _accumulate(sums, types, checkpoint["model"], path)
    return {name: _divide(total, len(seen), types[name]) for name, total in sums.items()}


def _accumulate(sums: State, types: Dict[str, torch.dtype], state: State, path: Path) -> None:
    if sums:
        problems = _differences(sums, state)
        if problems:
            raise InputError(f"{path}: cannot be averaged with the others: {'; '.join(problems)}")
    for name, value in state.items():
        types.setdefault(name, value.dtype)
        wide = value.to(torch.float64 if value.is_floating_point() else torch.int64)
        sums[name] = sums[name] + wide if name in sums else wide


def _divide(total: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    if total.is_floating_point():
        return (total / count).to(dtype)
    return torch.div(2 * total + count, 2 * count, rounding_mode="floor").to(dtype)


def chosen_checkpoints(exp_dir: Path, epoch: int, avg: int) -> List[Path]:
    """The ``avg`` epochs that end with ``epoch``; for epoch 0 the best by validation loss.

    Raises:
      InputError: if there are fewer than ``avg``.
    """
    if avg < 1:
        raise InputError(f"--avg {avg} is less than 1")
    paths = epoch_checkpoints(exp_dir)
    if not paths:
        raise InputError(f"{exp_dir}: holds no epoch-N.pt; train first, or name another --exp-dir")
    if epoch == 0:
        chosen = best_epochs(exp_dir)[:avg]
    else:
        chosen = [e for e in range(epoch - avg + 1, epoch + 1) if e in paths]
    if len(chosen) < avg:
        kind = "best epochs" if epoch == 0 else f"epochs {epoch - avg + 1} .. {epoch}"
        raise InputError(
            f"{exp_dir}: holds {len(chosen)} of the {avg} {kind} to average; "
            f"there are {_some([str(e) for e in paths], 20)}; lower --avg or change --epoch"
        )
    return [paths[e] for e in chosen]


def best_checkpoints(exp_dir: Path, most: int) -> List[Path]:
    """The best epochs by validation loss, ``most`` of them or as many as there are."""
    return chosen_checkpoints(exp_dir, 0, max(1, min(most, len(best_epochs(exp_dir)))))


def best_epochs(exp_dir: Path) -> List[int]:
    """The epochs that have a checkpoint, lowest validation loss first."""
    paths = epoch_checkpoints(exp_dir)
    losses = read_checkpoint(paths[max(paths)])["valid_losses"] if paths else {}
    return sorted((e for e in paths if e in losses), key=lambda e: (losses[e], e))


def load_model(
    exp_dir: Path, epoch: int = 0, avg: int = 1
) -> Tuple[AsrModel, Tokenizer, ModelConfig]:
    """The trained model in eval mode, averaged as asked for, with its tokenizer and settings.

    Raises:
      InputError: see :func:`chosen_checkpoints`; or a tokenizer that is not the model's.
    """
    exp_dir = Path(exp_dir)
    config = load_config(exp_dir / "config.yaml", ModelConfig)
    tokenizer = Tokenizer.load(exp_dir / LANG)
    if tokenizer.fingerprint != config.vocab_fingerprint:
        raise InputError(f"{exp_dir / LANG}: is not the tokenizer that the model was trained with")
    paths = chosen_checkpoints(exp_dir, epoch, avg)
    logging.info("averaging %s", ", ".join(path.name for path in paths))
    model = build_model(config)
    load_state(model, average_checkpoints(paths), str(exp_dir))
    return model.eval(), tokenizer, config
