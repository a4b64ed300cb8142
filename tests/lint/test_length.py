"""A ratchet on module length: when a file grows, find the concept that hides in it."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_LINES = 500
FOLDERS = ("sparklog", "driver", "executors", "storage_backends", "tests", "benchmarks", "examples")

#: Files allowed beyond the limit, with the length they may not exceed.  Only ever lower a number.
ALLOWED: dict[str, int] = {}


def modules() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if not is_generated(path)]


def is_generated(path: Path) -> bool:
    with path.open() as file:
        return "@generated" in file.read(200)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_is_short(path: Path) -> None:
    limit = ALLOWED.get(str(path.relative_to(ROOT)), LIMIT_LINES)
    assert len(path.read_text().splitlines()) <= limit


def test_the_ratchet_holds_no_slack() -> None:
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in ALLOWED}
    assert lengths == ALLOWED
