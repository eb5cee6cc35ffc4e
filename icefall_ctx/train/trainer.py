"""One process of a training run: batches, updates, validation, checkpoints.

Everything random in a batch (dropout, SpecAugment, history noise) is seeded by the seed, the
epoch and the batch's place in it.  So a run that continues from a checkpoint is the run that was
interrupted, bit for bit on a CPU, and no state of a random number generator has to be kept.
"""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

from icefall_ctx.config import TrainConfig
from icefall_ctx.data.batch import Batch
from icefall_ctx.data.datamodule import AsrDataModule
from icefall_ctx.errors import InputError, ProblemLog
from icefall_ctx.models.asr import AsrModel
from icefall_ctx.train import checkpoint as ckpt
from icefall_ctx.train.augment import SpecAugment
from icefall_ctx.train.dist import Process, broadcast_buffers, reduce_gradients
from icefall_ctx.train.journal import Journal
from icefall_ctx.train.losses import LossFunction, compute_loss, is_finite
from icefall_ctx.train.metrics import Metrics, gather
from icefall_ctx.train.optim import BatchNormGuard, Noam, build_optimizer, freeze
from icefall_ctx.train.rng import seed_everything

MAX_BAD_BATCHES = 20  # in a row, before training is given up
MAX_NAMED = 200  # of each kind of problem; all are counted


class Trainer:
    """One process of a training run.

    Attributes:
      epoch: the current epoch, from 1.
      position: batches of this process used in the epoch.
      step: updates so far.
      valid_losses: by epoch.
      metrics: of the epoch so far.
      problems: what was skipped, each utterance or batch named once.
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
        self.problems = ProblemLog(max_shown=MAX_NAMED)
        self.epoch, self.position, self.step = 1, 0, 0
        self.valid_losses: Dict[int, float] = {}
        self.metrics = Metrics()
        self.plan = ""
        self._pending = 0.0  # utterances whose gradients wait for the update
        self._pending_ids: List[str] = []
        self._bad_batches = 0  # in a row
        self._reported: Set[Tuple[str, str]] = set()

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
        with self._bar(loader, f"epoch {self.epoch}", total) as bar:
            for batch in bar:
                self.train_batch(batch)
                if self.position % self.config.accum_grad == 0 or self.position == total:
                    self.update()
                    self._after_update()
                if bar.n % 10 == 0:
                    bar.set_postfix_str(str(self.metrics), refresh=False)

    def _bar(self, loader: DataLoader, title: str, total: int) -> tqdm:
        """A progress bar; none where standard error is not a terminal."""
        return tqdm(
            loader,
            desc=title,
            initial=total - len(loader),
            total=total,
            unit="batch",
            disable=None if self.process.is_main else True,
            leave=False,
        )

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
        self._report("batch without a finite loss", ", ".join(batch.cut_ids))
        self._count_bad()

    def _count_bad(self) -> None:
        self.metrics.count("skipped batches", 1)
        self._bad_batches += 1
        if self._bad_batches >= MAX_BAD_BATCHES:
            raise InputError(
                f"{self._bad_batches} batches in a row without a finite loss or gradient; "
                "lower --lr-factor, or look at the utterances named in the log"
            )

    def _report(self, reason: str, cut_ids: str) -> None:
        """Once each, not once an epoch."""
        if (reason, cut_ids) not in self._reported:
            self._reported.add((reason, cut_ids))
            self.problems.add(reason, cut_ids)

    def update(self) -> None:
        """One step of the optimiser with what was added since the last."""
        mine = self._pending > 0  # this process has gradients; others may have
        if mine:
            self.scaler.unscale_(self.optimizer)
        total = reduce_gradients(self.parameters, self._pending, self.process)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip)
        if total and is_finite(norm):
            self.scaler.step(self.optimizer) if mine else self.optimizer.step()
        elif total and not self.amp:  # with AMP this is how the scaler finds its scale
            self._report("update without a finite gradient", ", ".join(self._pending_ids))
            self._count_bad()
        if mine:
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()
        self.step += 1
        self._pending, self._pending_ids = 0.0, []

    def _after_update(self) -> None:
        if self.step % self.config.log_interval == 0:
            self.journal.log_interval(self.epoch, self.step, self.scheduler.rate)
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
        for batch in self._bar(loader, "validation", len(loader)):
            if batch is None:
                continue
            seed_everything(self.config.seed)
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
