"""The training loop, from settings to checkpoints.

``train.py`` of a recipe calls :func:`main` with its defaults.  Everything random in a batch
(dropout, SpecAugment, history noise) is seeded by the seed, the epoch and the batch's place in
it.  So a run that continues from a checkpoint is the run that was interrupted, bit for bit on a
CPU, and no state of a random number generator has to be kept.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch
from torch.multiprocessing import ProcessExitedException
from torch.utils.data import DataLoader
from tqdm import tqdm

from icefall_ctx.config import (
    DataConfig,
    ModelConfig,
    TrainConfig,
    load_config,
    parse_configs,
    save_configs,
)
from icefall_ctx.data.batch import Batch
from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.data.statistics import feature_statistics
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.models.asr import AsrModel, build_model
from icefall_ctx.text.tokenizer import Tokenizer
from icefall_ctx.train import checkpoint as ckpt
from icefall_ctx.train.augment import SpecAugment
from icefall_ctx.train.dist import (
    Process,
    broadcast_buffers,
    launch,
    leave,
    reduce_gradients,
    this_process,
)
from icefall_ctx.train.journal import Journal
from icefall_ctx.train.losses import LossFunction, compute_loss, is_finite
from icefall_ctx.train.metrics import Metrics, gather
from icefall_ctx.train.optim import BatchNormGuard, Noam, build_optimizer, freeze
from icefall_ctx.train.rng import seed_everything

MAX_BAD_BATCHES = 20  # in a row, before training is given up


class Trainer:
    """One process of a training run.

    Attributes:
      epoch: the current epoch, from 1.
      position: batches of this process used in the epoch.
      step: updates so far.
      valid_losses: by epoch.
      metrics: of the epoch so far.
      problems: what was skipped, each utterance named once.
    """

    def __init__(
        self,
        model: AsrModel,
        data: AsrDataModule,
        config: TrainConfig,
        process: Process = Process(),
        loss_function: LossFunction = compute_loss,
    ) -> None:
        self.model = model.to(process.device)
        self.data = data
        self.config = config
        self.process = process
        self.loss_function = loss_function
        self.frozen = freeze(self.model, config.freeze)
        self.optimizer = build_optimizer(self.model, config)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.scheduler = Noam(self.optimizer, model.config.dim, config.warmup, config.lr_factor)
        self.amp = config.use_amp and process.device.type == "cuda"
        self.scaler = torch.cuda.amp.GradScaler(enabled=self.amp)
        self.batch_norm = BatchNormGuard(self.model)
        options = data.data
        self.augment = (
            SpecAugment(options.time_mask_frames, options.freq_mask_bins)
            if options.spec_augment
            else None
        )
        self.journal = Journal(config.exp_dir, process.is_main, config.tensorboard)
        self.problems = ProblemLog()
        self.epoch, self.position, self.step = 1, 0, 0
        self.valid_losses: Dict[int, float] = {}
        self.metrics = Metrics()
        self.plan = ""
        self._pending, self._pending_ids = 0.0, []
        self._bad_batches = 0

    # ------------------------------------------------------------------ the run

    def run(self) -> None:
        """Train from the current position to the end of the last epoch."""
        while self.epoch <= self.config.num_epochs:
            started = time.time()
            self.train_epoch()
            self.finish_epoch(time.time() - started)
        self.journal.close()

    def train_epoch(self) -> None:
        """The rest of the current epoch."""
        loader = self._train_loader()
        self.model.train()
        for module in self.frozen:
            module.eval()
        self.optimizer.zero_grad(set_to_none=True)
        total = self.position + len(loader)
        bar = tqdm(
            loader,
            desc=f"epoch {self.epoch}",
            initial=self.position,
            total=total,
            unit="batch",
            disable=None if self.process.is_main else True,
            leave=False,
        )
        for batch in bar:
            self.train_batch(batch)
            if self.position % self.config.accum_grad == 0 or self.position == total:
                self.update()
                self._after_update(bar)

    def _train_loader(self) -> DataLoader:
        place = self.process.rank, self.process.world_size
        loader = self.data.train_dataloader(self.epoch, self.position, *place)
        plan = loader.sampler.fingerprint
        if self.position and self.plan != plan:
            logging.warning(
                "the training cuts or the size of batches changed since the checkpoint was "
                "written: epoch %d starts again",
                self.epoch,
            )
            self.position, self.metrics = 0, Metrics()
            loader = self.data.train_dataloader(self.epoch, 0, *place)
        self.plan = plan
        return loader

    def train_batch(self, batch: Optional[Batch]) -> None:
        """Add the gradients of a batch; None is a batch of which nothing can be used."""
        seed = seed_everything(
            self.config.seed, self.epoch, self.position, self.process.rank
        )
        self.position += 1
        if batch is None:
            return
        batch = batch.to(self.process.device)
        if self.augment is not None:
            self.augment.seed(seed)
        self.batch_norm.remember()
        with torch.autocast("cuda") if self.amp else nullcontext():
            loss, metrics = self.loss_function(self.model, batch, self.config, self.augment)
        for reason, cut_id in metrics.skipped:
            self._report(reason, cut_id)
        if not is_finite(loss):
            self._skip(batch)
            return
        self._bad_batches = 0
        if metrics.totals["utterances"]:
            self.scaler.scale(loss).backward()
            self._pending += metrics.totals["utterances"]
            self._pending_ids += batch.cut_ids
        self.metrics += replace(metrics, skipped=[])
        self.journal.add(metrics)

    def _skip(self, batch: Batch) -> None:
        self.batch_norm.restore()
        for cut_id in batch.cut_ids:
            self._report("in a batch without a finite loss", cut_id)
        self._count_bad()

    def _count_bad(self) -> None:
        self.metrics.count("skipped batches", 1)
        self._bad_batches += 1
        if self._bad_batches >= MAX_BAD_BATCHES:
            raise InputError(
                f"{self._bad_batches} batches in a row without a finite loss or gradient; "
                "lower --lr-factor, or look at the utterances named in the log"
            )

    def _report(self, reason: str, cut_id: str) -> None:
        if not any(p.kind == reason and p.place == cut_id for p in self.problems.problems):
            self.problems.add(reason, cut_id)

    def update(self) -> None:
        """One step of the optimiser with what was added since the last."""
        self.scaler.unscale_(self.optimizer) if self._pending else None
        total = reduce_gradients(self.parameters, self._pending, self.process)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip)
        if not total:
            pass
        elif is_finite(norm):
            self.scaler.step(self.optimizer) if self._pending else self.optimizer.step()
        elif not self.amp:  # with AMP the scale is too large now and then; the scaler lowers it
            for cut_id in self._pending_ids:
                self._report("in an update without a finite gradient", cut_id)
            self._count_bad()
        self.scaler.update() if self._pending else None
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        self.step += 1
        self._pending, self._pending_ids = 0.0, []

    def _after_update(self, bar: Any) -> None:
        rate = self.scheduler.rate
        if self.step % self.config.log_interval == 0:
            self.journal.log_interval(self.epoch, self.step, rate)
        if bar.n % 10 == 0:
            bar.set_postfix_str(str(self.metrics), refresh=False)
        every = self.config.save_every_n
        if every and self.step % every == 0:
            self.save(ckpt.step_path(self.config.exp_dir, self.step))
            if self.process.is_main:
                ckpt.keep_newest(self.config.exp_dir, self.config.keep_last_k)

    # ------------------------------------------------------------------ between epochs

    def finish_epoch(self, seconds: float) -> None:
        """Validate, write ``epoch-N.pt`` and the curves, and go to the next epoch."""
        world_size = self.process.world_size
        valid = self.validate()
        train = gather(self.metrics, world_size)
        self.valid_losses[self.epoch] = valid.averages().get("loss", float("inf"))
        if self.problems:
            logging.warning("so far skipped: %s", self.problems.summary())
        self.journal.log_epoch(self.epoch, self.step, train, valid, seconds)
        epoch, self.epoch = self.epoch, self.epoch + 1
        self.position, self.metrics = 0, Metrics()
        self.save(ckpt.epoch_path(self.config.exp_dir, epoch))

    @torch.no_grad()
    def validate(self) -> Metrics:
        """Metrics of the validation set."""
        broadcast_buffers(self.model, self.process)
        self.model.eval()
        metrics = Metrics()
        loader = self.data.valid_dataloader(self.process.rank, self.process.world_size)
        for batch in tqdm(loader, desc="validation", disable=None, leave=False):
            if batch is None:
                continue
            seed_everything(self.config.seed, 0, 0, self.process.rank)
            loss, found = self.loss_function(
                self.model, batch.to(self.process.device), self.config, None
            )
            if is_finite(loss):
                metrics += found
            else:
                logging.warning("validation: loss is not finite: %s", ", ".join(batch.cut_ids))
        return gather(metrics, self.process.world_size)

    # ------------------------------------------------------------------ checkpoints

    def state(self) -> Dict[str, Any]:
        """Everything the run needs to go on, and what icefall's tools look for."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "grad_scaler": self.scaler.state_dict() if self.amp else None,
            "epoch": self.epoch,
            "step": self.step,
            "sampler": {"position": self.position, "plan": self.plan},
            "metrics": self.metrics.state_dict(),
            "valid_losses": self.valid_losses,
            "config": ckpt.plain(self.model.config),
            "fingerprint": ckpt.fingerprint(self.model.config),
            "world_size": self.process.world_size,
        }

    def save(self, path: Path) -> None:
        broadcast_buffers(self.model, self.process)
        self.metrics = self._gathered_metrics()
        if self.process.is_main:
            ckpt.save_checkpoint(path, self.state())
            logging.info("wrote %s", path)

    def _gathered_metrics(self) -> Metrics:
        """The sums of all processes on the first, nothing on the others: nothing counts twice."""
        together = gather(self.metrics, self.process.world_size)
        return together if self.process.is_main else Metrics()

    def load(self, path: Path, checkpoint: Dict[str, Any]) -> None:
        """Continue from a checkpoint of the same model."""
        ckpt.load_state(self.model, checkpoint["model"], str(path))
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.scheduler.load_state_dict(checkpoint["scheduler"])
        if self.amp and checkpoint["grad_scaler"]:
            self.scaler.load_state_dict(checkpoint["grad_scaler"])
        self.epoch, self.step = checkpoint["epoch"], checkpoint["step"]
        self.valid_losses = dict(checkpoint["valid_losses"])
        self.plan = checkpoint["sampler"]["plan"]
        if checkpoint["world_size"] == self.process.world_size:
            self.position = checkpoint["sampler"]["position"]
            if self.process.is_main:
                self.metrics = Metrics.from_state_dict(checkpoint["metrics"])
        elif checkpoint["sampler"]["position"]:
            logging.warning("another number of processes: epoch %d starts again", self.epoch)
        self.journal.forget_after(self.step)
        logging.info("continuing from %s: epoch %d, update %d", path, self.epoch, self.step)


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
    differ = [f"{name} {old[name]} there, {new[name]} here" for name in new if old[name] != new[name]]
    if differ:
        raise InputError(
            f"{exp_dir}: holds a different model ({'; '.join(differ)}); choose another --exp-dir"
        )


def prepare_exp_dir(
    model: ModelConfig, data: DataConfig, config: TrainConfig, tokenizer: Tokenizer
) -> None:
    """Settings and tokenizer into ``exp_dir``, so that decoding repeats no option."""
    Path(config.exp_dir).mkdir(parents=True, exist_ok=True)
    ckpt.remove_leftovers(config.exp_dir)
    save_configs(Path(config.exp_dir) / "config.yaml", model, data, config)
    tokenizer.save(Path(config.exp_dir) / ckpt.LANG)


def start_or_resume(trainer: Trainer) -> None:
    """Load the checkpoint to continue from; without one, statistics and ``--init-from``.

    Raises:
      InputError: ``--start-epoch N`` without ``epoch-(N-1).pt``.
    """
    config = trainer.config
    if config.start_epoch > 1:
        path = ckpt.epoch_path(config.exp_dir, config.start_epoch - 1)
        trainer.load(path, ckpt.read_checkpoint(path))
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
    loss_function: LossFunction = compute_loss,
    process: Process = Process(),
) -> Trainer:
    """Train a model, or continue to.

    Args:
      datamodule: default: made from the settings.
      loss_function: see :mod:`icefall_ctx.train.losses`.

    Returns:
      The trainer after the last epoch.
    """
    if train_config.num_threads:
        torch.set_num_threads(train_config.num_threads)
    data = datamodule or AsrDataModule.from_config(data_config, model_config, train_config.seed)
    model_config = with_tokenizer(model_config, data.tokenizer)
    check_same_experiment(train_config.exp_dir, model_config)
    if process.is_main:
        prepare_exp_dir(model_config, data_config, train_config, data.tokenizer)
    seed_everything(train_config.seed)
    model = build_model(model_config)
    trainer = Trainer(model, data, train_config, process, loss_function)
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
    logging.basicConfig(
        level=logging.INFO if process.is_main else logging.ERROR,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
    )
    try:
        model, data, config = configs
        train(model, data, config, process=process)
    except InputError as error:
        sys.exit(_one_line(error))
    finally:
        leave()


def _one_line(error: InputError) -> int:
    print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
    return 2


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
    try:
        arguments: Optional[List[str]] = None if argv is None else list(argv)
        configs = parse_configs(
            (ModelConfig, DataConfig, TrainConfig), arguments, description, defaults
        )
        launch(_train_process, configs, configs[-1].world_size)
    except InputError as error:
        sys.exit(_one_line(error))
    except ProcessExitedException as error:  # the process has said why
        sys.exit(error.exit_code)
