"""Dropout whose random numbers cost a quarter of torch's on AMD processors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from icefall_ctx.cpu import is_amd

LEVELS = 2**16
OWN_NUMBERS = is_amd()


class Dropout(nn.Dropout):
    """``nn.Dropout``, on AMD processors with 16 random bits an element.

    There the random numbers of torch's own dropout, which come from MKL, are a tenth of a
    training step of a small model; on Intel's they take half as long as these.  Four elements
    share one 64-bit number of torch's default generator, so seeds and resumed runs work as ever.
    The probability is rounded to a multiple of 2^-16 and the scale fits the rounded one, so the
    expectation is exact.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        own = OWN_NUMBERS or x.dtype == torch.float16  # which torch's cannot on a CPU
        if x.device.type != "cpu" or not own:
            return super().forward(x)
        return x * keep_mask(x, self.p)


def keep_mask(x: Tensor, p: float) -> Tensor:
    """Zeros with probability p, else ``1 / (1 - p)``: the shape and type of ``x``."""
    dropped = round(p * LEVELS)
    if dropped == LEVELS:
        return torch.zeros_like(x)
    words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[: x.numel()].view(x.shape)
    return (bits >= dropped - LEVELS // 2).to(x.dtype).mul_(LEVELS / (LEVELS - dropped))
