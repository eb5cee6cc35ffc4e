"""Dropout by shared random bits: its rate, scale, gradient, seeds and the independence of cells."""

import pytest
import torch

from icefall_ctx.models.dropout import LEVELS, Dropout, keep_mask


@pytest.mark.parametrize("p", [0.0001, 0.1, 0.25, 0.5, 0.9])
def test_rate_and_expectation(p):
    torch.manual_seed(0)
    mask = keep_mask(torch.ones(1000, 1001), p)
    kept = LEVELS - round(p * LEVELS)
    assert mask.unique().tolist() == pytest.approx([0.0, LEVELS / kept])
    deviation = (p * (1 - p) / mask.numel()) ** 0.5
    assert abs(float((mask == 0).double().mean()) - p) < 5 * deviation + 1 / LEVELS


def test_neighbours_are_independent():
    """Four cells share a 64-bit number: each pair of lanes is dropped together as by chance."""
    torch.manual_seed(0)
    dropped = (keep_mask(torch.ones(400_000, 4), 0.3) == 0).double()
    together = dropped.T @ dropped / len(dropped)
    expected = torch.full((4, 4), 0.09).double().fill_diagonal_(0.3)
    torch.testing.assert_close(together, expected, atol=5e-3, rtol=0)


def test_gradient_is_the_mask():
    x = torch.randn(7, 5, requires_grad=True)
    out = Dropout(0.4)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)
    assert (x.grad == 0).any() and (x.grad != 0).any()


def test_seeds_modes_and_ends_of_the_range():
    module, x = Dropout(0.5), torch.randn(3, 11)
    torch.manual_seed(4)
    first = module(x)
    torch.manual_seed(4)
    assert torch.equal(module(x), first)
    assert not torch.equal(module(x), first)
    assert module.eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert not Dropout(1.0)(x).any()
    assert Dropout(0.5)(torch.zeros(0, 3)).shape == (0, 3)
    assert Dropout(0.5)(x.half().T).dtype == torch.float16
