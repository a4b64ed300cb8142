"""docs/files.md, from the docstrings of modules and the first comments of Java files.

``python -m tests.lint.file_map`` writes the page, and a test beside it fails when that is due.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "files.md"

_INTRODUCTION = """\
# Files

This page is made from the first sentences of the files by `python -m tests.lint.file_map`.
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
    "sparklog/client", "sparklog/client/groups", "sparklog/service", "sparklog/transport",
    "storage_backends",
    "sparklog/metadata", "sparklog/wire/records", "sparklog/wire/protocol",
    "sparklog/wire/framing", "sparklog/config",
)  # fmt: skip
_ROOMS = ("sparklog", "driver", "executors", "storage_backends")
_GENERATED = "sparklog/wire/protocol/messages"


def due() -> str:
    """The page as the files make it."""
    top_level = _table([ROOT / "pyspark_sparklog.py"])
    return "\n".join((_INTRODUCTION, "## Top level\n", top_level, *map(_section, _folders())))


def _folders() -> list[str]:
    """The folders of ``_FOLDERS`` that exist, then the folders that it does not name."""
    found = {
        str(path.parent.relative_to(ROOT))
        for room in _ROOMS
        for path in (ROOT / room).rglob("*")
        if path.suffix in _SUMMARIES and path.name != "__init__.py"
    } - {_GENERATED}
    placed = [folder for folder in _FOLDERS if folder in found]
    return placed + sorted(found.difference(placed))


def _section(folder: str) -> str:
    package = ROOT / folder / "__init__.py"
    introduction = f"{_summary(package)}.\n\n" if package.exists() else ""
    found = [path for path in (ROOT / folder).iterdir() if path.suffix in _SUMMARIES]
    files = sorted(path for path in found if path != package)
    return f"## `{folder}/`\n\n{introduction}{_table(files)}"


def _table(paths: list[Path]) -> str:
    rows = "".join(f"| `{path.name}` | {_summary(path)} |\n" for path in paths)
    return f"| file | what it holds |\n|---|---|\n{rows}"


def _summary(path: Path) -> str:
    """The first paragraph that a file says of itself, on one line, without a final period."""
    paragraph = _SUMMARIES[path.suffix](path.read_text()).split("\n\n")[0]
    return " ".join(paragraph.split()).removesuffix(".").replace("|", "\\|")


def _docstring(text: str) -> str:
    return ast.get_docstring(ast.parse(text)) or ""


def _java_comment(text: str) -> str:
    """The first block comment, without its stars."""
    comment = re.search(r"/\*+(.*?)\*/", text, re.DOTALL)
    return re.sub(r"(?m)^ \* ?", "", comment.group(1)).strip() if comment else ""


#: How files are read, by their suffix.
_SUMMARIES = {".py": _docstring, ".java": _java_comment}


if __name__ == "__main__":
    DOCUMENT.write_text(due())
