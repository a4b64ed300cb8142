"""ARCHITECTURE.md's file map names every module, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("sparklog", "driver", "executors", "storage_backends")


def modules() -> set[str]:
    found = {path for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    names = {str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"}
    mapped = {name for name in names if not name.startswith("sparklog/wire/messages/")}
    return mapped | {"pyspark_sparklog.py"}


def file_map() -> set[str]:
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## File map")[1]
    found = set()
    folder = ""
    for line in text.splitlines():
        heading = re.fullmatch(r"\*\*(?:`(.+)`|top)\*\*", line)
        row = re.match(r"\| `(.+?\.py)` \|", line)
        if heading:
            folder = heading[1] or ""
        elif row:
            found.add(folder + row[1])
    return found


def test_the_file_map_is_complete() -> None:
    assert file_map() == modules()
