"""Fixtures every test may use."""

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # pytest-xdist runs one process a core

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real recordings and files in real-world formats, where the checkout has them beside it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder ../shared/data is not beside this checkout")
    return SHARED_DATA
