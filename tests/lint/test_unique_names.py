"""Folders of tests are no packages: each of their modules needs a name that no other one has."""

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
#: pytest loads each by its folder.
ALLOWED = {"conftest.py", "__init__.py"}


def test_no_two_modules_of_tests_share_a_name() -> None:
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name not in ALLOWED)
    assert [name for name, times in names.items() if times > 1] == []
