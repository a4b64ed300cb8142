"""docs/files.md, from the modules' docstrings.

``python tests/lint/file_map.py`` writes the page, and a test beside it fails when that is due.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "files.md"

_INTRODUCTION = """\
# Files

This page is made from the modules' docstrings by `python tests/lint/file_map.py`.
[ARCHITECTURE.md](../ARCHITECTURE.md) says what each package owns, what it must not know, and how
the packages work together.

`sparklog/wire/protocol/messages/` is left out: it is generated, one module per API, by
`python -m sparklog.wire.protocol.generate`.
"""

#: Folders in the order in which a reader of ARCHITECTURE.md meets them.
_FOLDERS = (
    "sparklog", "sparklog/cli",
    "sparklog/dataframe", "sparklog/dataframe/options", "sparklog/dataframe/read",
    "sparklog/dataframe/write", "sparklog/dataframe/jvm",
    "driver", "driver/control_plane", "driver/control_plane/controller",
    "driver/control_plane/handlers", "driver/control_plane/journal_repair", "driver/launcher",
    "executors", "executors/handlers", "executors/replica_manager", "executors/partition",
    "executors/log", "executors/log_dirs", "executors/replication", "executors/controller_link",
    "executors/fetch_sessions", "executors/purgatory", "executors/supervisor",
    "sparklog/client", "sparklog/service", "sparklog/transport", "storage_backends",
    "sparklog/metadata", "sparklog/wire/records", "sparklog/wire/protocol",
    "sparklog/wire/framing", "sparklog/config",
)  # fmt: skip
_ROOMS = ("sparklog", "driver", "executors", "storage_backends")
_GENERATED = "sparklog/wire/protocol/messages"


def due() -> str:
    """The document as the modules' docstrings make it."""
    top_level = _table([ROOT / "pyspark_sparklog.py"])
    return "\n".join((_INTRODUCTION, "## Top level\n", top_level, *map(_section, _folders())))


def _folders() -> list[str]:
    """The folders of ``_FOLDERS`` that exist, then the folders that it does not name."""
    found = {
        str(path.parent.relative_to(ROOT))
        for room in _ROOMS
        for path in (ROOT / room).rglob("*.py")
        if path.name != "__init__.py"
    } - {_GENERATED}
    placed = [folder for folder in _FOLDERS if folder in found]
    return placed + sorted(found.difference(placed))


def _section(folder: str) -> str:
    package = _summary(ROOT / folder / "__init__.py")
    modules = [path for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py"]
    return f"## `{folder}/`\n\n{package}.\n\n{_table(sorted(modules))}"


def _table(paths: list[Path]) -> str:
    rows = "".join(f"| `{path.name}` | {_summary(path)} |\n" for path in paths)
    return f"| file | what it holds |\n|---|---|\n{rows}"


def _summary(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line, without a final period."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    text = " ".join(docstring.split("\n\n")[0].split())
    return text.removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(due())
