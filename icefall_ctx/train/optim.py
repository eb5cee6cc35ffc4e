"""Optimiser and learning rate."""

from __future__ import annotations

import logging
from typing import Any, Dict, List

import torch
from torch import nn

from icefall_ctx.config import TrainConfig
from icefall_ctx.errors import InputError


def noam_rate(step: int, dim: int, warmup: int, factor: float) -> float:
    """``factor * d^-0.5 * min(step^-0.5, step * warmup^-1.5)`` for ``step`` 1, 2, ..."""
    return factor * dim**-0.5 * min(step**-0.5, step * warmup**-1.5)


class Noam:
    """Sets the learning rate before each update: linear warm-up, then ``step^-0.5``."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, dim: int, warmup: int, factor: float = 1.0
    ) -> None:
        if warmup < 1:
            raise InputError(f"--warmup {warmup} is less than 1 update")
        self.optimizer = optimizer
        self.dim = dim
        self.warmup = warmup
        self.factor = factor
        self.step_number = 0
        self._set()

    @property
    def rate(self) -> float:
        """The rate of the coming update."""
        return noam_rate(self.step_number + 1, self.dim, self.warmup, self.factor)

    def _set(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate

    def step(self) -> None:
        """Call after every update."""
        self.step_number += 1
        self._set()

    def state_dict(self) -> Dict[str, Any]:
        """The number of updates; the shape of the curve comes from the settings."""
        return {"step_number": self.step_number}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.step_number = state["step_number"]
        self._set()


def freeze(model: nn.Module, prefixes: str) -> List[nn.Module]:
    """Exclude parameters whose name begins with one of the comma-separated ``prefixes``.

    Returns:
      The modules in which nothing is left to learn; keep them in eval mode, so that neither
      dropout nor running statistics change what they compute.
    """
    for prefix in filter(None, (p.strip() for p in prefixes.split(","))):
        found = [p for name, p in model.named_parameters() if name.startswith(prefix)]
        if not found:
            names = sorted({name.split(".")[0] for name, _ in model.named_parameters()})
            raise InputError(
                f"--freeze {prefix}: no parameter begins so; there are {', '.join(names)}"
            )
        for parameter in found:
            parameter.requires_grad_(False)
        logging.info("%s: %d parameters stay as they are", prefix, sum(p.numel() for p in found))
    return [module for module in model.modules() if _is_frozen(module)]


def _is_frozen(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    return bool(parameters) and not any(p.requires_grad for p in parameters)


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """AdamW(0.9, 0.98) over what is not frozen; without weight decay this is Adam."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise InputError(f"--freeze {config.freeze}: nothing is left to train")
    return torch.optim.AdamW(
        parameters, lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=config.weight_decay
    )


class BatchNormGuard:
    """Takes a batch back out of the running statistics of batch normalisation."""

    def __init__(self, model: nn.Module) -> None:
        kinds = nn.modules.batchnorm._BatchNorm
        layers = [module for module in model.modules() if isinstance(module, kinds)]
        self._buffers = [buffer for layer in layers for buffer in layer.buffers()]
        self._copies: List[torch.Tensor] = []

    def remember(self) -> None:
        """Call before a batch that may have to be taken back."""
        self._copies = [buffer.clone() for buffer in self._buffers]

    def restore(self) -> None:
        for buffer, copy in zip(self._buffers, self._copies):
            buffer.copy_(copy)
