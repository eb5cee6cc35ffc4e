"""Makes the generators of distribution trees importable: ``from make_hkust import make_hkust``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "fixtures"))
