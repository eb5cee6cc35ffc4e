"""A small world in which everything can be computed densely."""

import pytest
import torch

from icefall_ctx.features.ivector.gmm import Gmm


def random_gmm(num: int, dim: int, full: bool, seed: int = 0) -> Gmm:
    generator = torch.Generator().manual_seed(seed)
    rand = torch.rand(num, generator=generator, dtype=torch.float64) + 0.2
    means = 2 * torch.randn(num, dim, generator=generator, dtype=torch.float64)
    if full:
        root = torch.randn(num, dim, dim, generator=generator, dtype=torch.float64)
        covariances = root @ root.transpose(1, 2) + 0.3 * torch.eye(dim, dtype=torch.float64)
    else:
        covariances = 0.3 + torch.rand(num, dim, generator=generator, dtype=torch.float64)
    return Gmm(rand / rand.sum(), means, covariances)


@pytest.fixture(params=[False, True], ids=["diagonal", "full"])
def gmm(request) -> Gmm:
    return random_gmm(5, 3, request.param)


@pytest.fixture
def frames() -> list:
    """Twelve utterances of 5 to 60 frames, each with a shift of its own."""
    generator = torch.Generator().manual_seed(1)
    return [
        2 * torch.randn(5 + 5 * k, 3, generator=generator) + torch.randn(3, generator=generator)
        for k in range(12)
    ]
