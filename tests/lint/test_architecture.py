"""The pages agree with the tree.

docs/files.md repeats the first paragraph of each module's docstring, and every page mentions only
modules and folders that exist.
"""

import re
from pathlib import Path

import pytest

from tests.lint import file_map

ROOT = Path(__file__).resolve().parents[2]
#: All pages but the changelog, which names modules as they were named at the time.
PAGES = sorted(
    path
    for pattern in ("*.md", "*/*.md", "tests/*/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md" and not path.relative_to(ROOT).parts[0].startswith(".")
)
#: The folders below which a page may name a module without its leading folders.
TREES = ("sparklog", "driver", "executors", "storage_backends", "tests", "benchmarks", "examples")
MENTION = re.compile(r"(?<![\w./-])[\w./-]*\w\.(?:py|java)\b")
#: A path in backticks from the top of the repository on, with or without an extension.
PATH = re.compile(rf"`((?:{'|'.join(TREES)}|docs)/[\w./-]*)`")
#: Names of modules that belong to the reader, not to this tree.
READERS_OWN = {"job.py"}


def modules() -> set[str]:
    found = {path.name for path in ROOT.glob("*.py")}
    for tree in TREES:
        paths = (path for path in (ROOT / tree).rglob("*") if path.suffix in (".py", ".java"))
        found |= {path.relative_to(ROOT).as_posix() for path in paths}
    return found


#: Every path from any of its folders on: ``executors/log/log.py``, ``log/log.py`` and ``log.py``.
TAILS = {
    "/".join(parts[start:])
    for parts in (name.split("/") for name in modules())
    for start in range(len(parts))
}


def test_the_page_of_files_is_up_to_date() -> None:
    assert file_map.DOCUMENT.read_text() == file_map.due(), "run python -m tests.lint.file_map"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_mentions_only_modules_that_exist(page: Path) -> None:
    text = page.read_text()
    assert sorted(set(MENTION.findall(text)) - TAILS - READERS_OWN) == []
    paths = {path.rstrip("/") for path in PATH.findall(text)}
    assert [path for path in sorted(paths) if not exists(path)] == []


def exists(path: str) -> bool:
    return (ROOT / path).exists() or (ROOT / f"{path}.py").exists()


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/lifecycle.md"])
def test_the_design_names_only_what_the_code_names(page: str) -> None:
    quoted = re.findall(r"`([^`\n]+)`", (ROOT / page).read_text())
    mentioned = {word for text in quoted for word in re.findall(r"[A-Za-z_]\w{3,}", text)}
    assert sorted(mentioned - words_of_the_code()) == []


def words_of_the_code() -> set[str]:
    words = {word for name in modules() for word in re.findall(r"\w+", name)}
    for name in (*modules(), "pyproject.toml", "Makefile"):
        words.update(re.findall(r"[A-Za-z_]\w{3,}", (ROOT / name).read_text()))
    return words
