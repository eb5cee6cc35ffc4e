"""Mean and standard deviation of the training features."""

from __future__ import annotations

import random
from typing import Sequence, Tuple

import torch
from lhotse.cut import Cut
from torch import Tensor

from icefall_ctx.data.dataset import load_features
from icefall_ctx.errors import InputError


def feature_statistics(
    cuts: Sequence[Cut], feature_dim: int, seed: int = 0, max_cuts: int = 500
) -> Tuple[Tensor, Tensor]:
    """Mean and standard deviation, each (C,), over the frames of a seeded sample of cuts."""
    count = 0
    total = torch.zeros(feature_dim, dtype=torch.float64)
    squares = torch.zeros(feature_dim, dtype=torch.float64)
    for cut in random.Random(seed).sample(list(cuts), min(max_cuts, len(cuts))):
        features = load_features(cut, feature_dim).double()
        if torch.isfinite(features).all():
            count += features.size(0)
            total += features.sum(dim=0)
            squares += features.square().sum(dim=0)
    if count == 0:
        raise InputError("no training cut has features that are finite numbers")
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0.0)
    return mean.float(), variance.sqrt().float()
