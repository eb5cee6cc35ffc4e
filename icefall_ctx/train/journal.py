"""What a training run tells: log lines, TensorBoard, ``metrics.jsonl`` and the curves."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any, Dict, List

from icefall_ctx.files import write_text
from icefall_ctx.train.metrics import Metrics
from icefall_ctx.train.plot import plot_curves, read_metrics


class Journal:
    """Writes into ``exp_dir``; on other processes than the first it is silent."""

    def __init__(self, exp_dir: Path, enabled: bool = True, tensorboard: bool = True) -> None:
        self.exp_dir = Path(exp_dir)
        self.enabled = enabled
        self.tensorboard = enabled and tensorboard
        self.interval = Metrics()
        self._since = time.time()
        self._first_step = 0
        self._writer: Any = None

    @property
    def metrics_path(self) -> Path:
        return self.exp_dir / "metrics.jsonl"

    def add(self, metrics: Metrics) -> None:
        """A batch of the current interval."""
        self.interval += metrics

    def log_interval(self, epoch: int, step: int, rate: float) -> None:
        """One line about the batches since the last line."""
        elapsed = max(time.time() - self._since, 1e-9)
        speed = self.interval.totals.get("seconds", 0.0) / elapsed
        if self.enabled:
            logging.info(
                "epoch %d, update %d: %s, lr %.3g, %.0f audio s/s",
                epoch,
                step,
                self.interval,
                rate,
                speed,
            )
            self._scalars("train", {**self.interval.averages(), "lr": rate, "speed": speed}, step)
        self.interval, self._since = Metrics(), time.time()

    def log_epoch(
        self, epoch: int, step: int, train: Metrics, valid: Metrics, seconds: float
    ) -> None:
        """Log line, record and picture of a finished epoch."""
        self.interval, self._since = Metrics(), time.time()
        if not self.enabled:
            return
        logging.info("epoch %d: train: %s; valid: %s; %.0f s", epoch, train, valid, seconds)
        self._scalars("epoch/train", train.averages(), epoch)
        self._scalars("epoch/valid", valid.averages(), epoch)
        record = {
            "epoch": epoch,
            "step": step,
            "seconds": round(seconds, 1),
            "train": {**train.averages(), **train.totals},
            "valid": {**valid.averages(), **valid.totals},
        }
        records = [r for r in read_metrics(self.metrics_path) if r["epoch"] < epoch] + [record]
        self._write(records)
        plot_curves(records, self.exp_dir / "curves.png")

    def _write(self, records: List[Dict[str, Any]]) -> None:
        write_text(self.metrics_path, "".join(json.dumps(record) + "\n" for record in records))

    def forget_after(self, step: int) -> None:
        """Drop records of epochs that a run continuing from ``step`` will do again."""
        self._first_step = step + 1
        if self.enabled and self.metrics_path.exists():
            self._write([r for r in read_metrics(self.metrics_path) if r["step"] <= step])

    def _scalars(self, prefix: str, values: Dict[str, float], step: int) -> None:
        if not self.tensorboard:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # What an interrupted run wrote for updates that are done again is hidden.
            folder = str(self.exp_dir / "tensorboard")
            self._writer = SummaryWriter(folder, purge_step=self._first_step or None)
        for name, value in values.items():
            self._writer.add_scalar(f"{prefix}/{name}", value, step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
