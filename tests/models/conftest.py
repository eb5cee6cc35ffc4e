"""The small models, importable from the tests of this folder and of tests/decode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
