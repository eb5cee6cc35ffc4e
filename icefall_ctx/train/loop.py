"""From settings to a trained model.

``train.py`` of a recipe calls :func:`main` with its defaults; a program calls :func:`train`.
"""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch.multiprocessing import ProcessExitedException

from icefall_ctx.command_line import one_line_errors
from icefall_ctx.config import (
    DataConfig,
    ModelConfig,
    TrainConfig,
    load_config,
    parse_configs,
    save_configs,
)
from icefall_ctx.cpu import keep_freed_memory
from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.data.statistics import feature_statistics
from icefall_ctx.errors import InputError
from icefall_ctx.files import only_one
from icefall_ctx.models.asr import build_model
from icefall_ctx.text.tokenizer import Tokenizer
from icefall_ctx.train import checkpoint as ckpt
from icefall_ctx.train.dist import Process, launch, leave, this_process
from icefall_ctx.train.losses import LossFunction
from icefall_ctx.train.memory_loss import MemoryLoss, loss_of
from icefall_ctx.train.rng import seed_everything
from icefall_ctx.train.trainer import Trainer

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


def with_tokenizer(config: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """The settings with the vocabulary of ``tokenizer``."""
    return replace(
        config, vocab_size=tokenizer.vocab_size, vocab_fingerprint=tokenizer.fingerprint
    )


def check_same_experiment(exp_dir: Path, config: ModelConfig) -> None:
    """Refuse to continue in the folder of another model.

    Raises:
      InputError: naming the options that differ.
    """
    path = Path(exp_dir) / "config.yaml"
    if not path.exists() or not (ckpt.epoch_checkpoints(exp_dir) or ckpt.step_checkpoints(exp_dir)):
        return
    old, new = ckpt.plain(load_config(path, ModelConfig)), ckpt.plain(config)
    differ = [
        f"{name} {old[name]} there, {new[name]} here" for name in new if old[name] != new[name]
    ]
    if differ:
        raise InputError(
            f"{exp_dir}: holds a different model ({'; '.join(differ)}); choose another --exp-dir"
        )


def make_exp_dir(exp_dir: Path) -> None:
    """Raises :class:`InputError` where there can be no such folder."""
    try:
        Path(exp_dir).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--exp-dir {exp_dir}: {error.strerror}") from error


def prepare_exp_dir(
    model: ModelConfig, data: DataConfig, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    """Settings and tokenizer into ``exp_dir``, so that decoding repeats no option."""
    make_exp_dir(config.exp_dir)
    ckpt.remove_leftovers(config.exp_dir)
    save_configs(Path(config.exp_dir) / "config.yaml", model, data, config)
    tokenizer.save(Path(config.exp_dir) / ckpt.LANG)


def log_to(path: Path) -> None:
    """Append what is logged to ``path`` too."""
    root = logging.getLogger()
    known = [getattr(handler, "baseFilename", None) for handler in root.handlers]
    if str(path.resolve()) not in known:
        handler = logging.FileHandler(path.resolve(), encoding="utf-8")
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        root.addHandler(handler)


def start_or_resume(trainer: Trainer) -> None:
    """Load the checkpoint to continue from; without one, statistics and ``--init-from``.

    Raises:
      InputError: ``--start-epoch N`` without ``epoch-(N-1).pt``.
    """
    config = trainer.config
    if config.start_epoch > 1:
        path = ckpt.epoch_path(config.exp_dir, config.start_epoch - 1)
        trainer.load(path, ckpt.read_checkpoint(path))
        ckpt.warn_of_later(config.exp_dir, trainer.step, config.start_epoch)
        return
    found = ckpt.latest_checkpoint(config.exp_dir)
    if found is not None:
        trainer.load(*found)
        return
    if config.init_from is not None:  # brings the statistics it was trained with
        fingerprint = trainer.model.config.vocab_fingerprint
        ckpt.init_from(trainer.model, config.init_from, fingerprint)
        return
    dim = trainer.model.config.feature_dim
    trainer.model.set_feature_stats(
        *feature_statistics(trainer.data.train_cuts, dim, config.seed)
    )


def train(
    model_config: ModelConfig,
    data_config: DataConfig,
    train_config: TrainConfig,
    datamodule: Optional[AsrDataModule] = None,
    loss_function: Optional[LossFunction] = None,
    process: Process = Process(),
) -> Trainer:
    """Train a model, or continue to.

    Args:
      datamodule: default: made from the settings.
      loss_function: see :mod:`icefall_ctx.train.losses`; default: the one of the model.

    Returns:
      The trainer after the last epoch.
    """
    if train_config.num_threads:
        torch.set_num_threads(train_config.num_threads)
    keep_freed_memory()
    data = datamodule or AsrDataModule.from_config(data_config, model_config, train_config.seed)
    model_config = with_tokenizer(model_config, data.tokenizer)
    check_same_experiment(train_config.exp_dir, model_config)
    if process.is_main:
        prepare_exp_dir(model_config, data_config, train_config, data.tokenizer)
        log_to(Path(train_config.exp_dir) / "train.log")
    seed_everything(train_config.seed)
    model = build_model(model_config)
    loss_function = loss_function or loss_of(model_config, data, train_config)
    trainer = Trainer(model, data, train_config, process, loss_function)
    if isinstance(loss_function, MemoryLoss):
        loss_function.updates = lambda: trainer.step
    logging.info(
        "%.2f M parameters, %d training cuts, %d validation cuts",
        sum(p.numel() for p in model.parameters()) / 1e6,
        len(data.train_cuts),
        len(data.valid_cuts),
    )
    start_or_resume(trainer)
    trainer.run()
    return trainer


def _train_process(*configs: Any) -> None:
    """What every process of a run does."""
    process = this_process()
    model, data, config = configs
    level = logging.INFO if process.is_main else logging.ERROR
    logging.basicConfig(level=level, format=LOG_FORMAT, datefmt="%H:%M:%S")
    try:
        with one_line_errors(Path(sys.argv[0]).name):
            make_exp_dir(config.exp_dir)
            with only_one(config.exp_dir) if process.is_main else nullcontext():
                train(model, data, config, process=process)
    finally:
        leave()


def main(
    defaults: Optional[Dict[str, Dict[str, Any]]] = None,
    argv: Optional[Sequence[str]] = None,
    description: str = "Train a model.  Continues where an interrupted run stopped.",
) -> None:
    """The command line of a recipe's ``train.py``.

    Args:
      defaults: the recipe's defaults by section, as in a preset.
      argv: default ``sys.argv[1:]``.

    Ends with status 2 and one line for what a user can put right.
    """
    with one_line_errors(Path(sys.argv[0]).name):
        arguments: Optional[List[str]] = None if argv is None else list(argv)
        configs = parse_configs(
            (ModelConfig, DataConfig, TrainConfig), arguments, description, defaults
        )
        try:
            launch(_train_process, configs, configs[-1].world_size)
        except ProcessExitedException as error:  # the process has said why
            sys.exit(error.exit_code)
