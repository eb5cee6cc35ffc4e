"""SpecAugment on whole batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class SpecAugment:
    """Masks blocks of time and of frequency with 0, the mean of normalised features.

    Args:
      time_mask_frames: frames of the longest time mask.
      freq_mask_bins: bins of the widest frequency mask.
      time_masks, freq_masks: how many of each an utterance gets.
      max_time_share: no time mask covers more than this share of the utterance.
    """

    time_mask_frames: int = 40
    freq_mask_bins: int = 27
    time_masks: int = 2
    freq_masks: int = 2
    max_time_share: float = 0.2

    def __post_init__(self) -> None:
        self.generator = torch.Generator()

    def seed(self, seed: int) -> None:
        """What is masked next depends on this seed only, not on what was masked before."""
        self.generator.manual_seed(seed)

    def __call__(self, features: Tensor, lens: Tensor) -> Tensor:
        """(N, T, C), of which ``lens`` (N,) frames are valid, to the same with blocks of 0."""
        n, frames, bins = features.shape
        lens = lens.cpu()
        longest = (lens * self.max_time_share).long().clamp(max=self.time_mask_frames)
        widest = torch.full((n,), min(self.freq_mask_bins, bins))
        time = self._mask(longest, lens, self.time_masks, frames)
        freq = self._mask(widest, torch.full((n,), bins), self.freq_masks, bins)
        mask = (time.unsqueeze(2) | freq.unsqueeze(1)).to(features.device, non_blocking=True)
        return features.masked_fill(mask, 0.0)

    def _mask(self, widest: Tensor, sizes: Tensor, blocks: int, size: int) -> Tensor:
        """(N, size), True inside ``blocks`` blocks of 0 .. ``widest`` (N,) cells each."""
        draws = torch.rand(2, sizes.numel(), blocks, generator=self.generator)
        widths = (draws[0] * (widest.unsqueeze(1) + 1)).long()
        starts = (draws[1] * (sizes.unsqueeze(1) - widths + 1)).long()
        cells = torch.arange(size)
        inside = (cells >= starts.unsqueeze(2)) & (cells < (starts + widths).unsqueeze(2))
        return inside.any(dim=1)
