"""The synthetic corpus, importable from the tests of this folder and of tests/data."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
