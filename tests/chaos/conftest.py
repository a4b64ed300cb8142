"""The history, the checkers and the fixtures of logs are those of other tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
for folder in (TESTS / "simulation", TESTS / "unit" / "log"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
