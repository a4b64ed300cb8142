"""The file map of ARCHITECTURE.md, from the modules' docstrings: ``python tests/lint/file_map.py``
writes it anew, and the test beside it says when that is due."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "ARCHITECTURE.md"
HEADING = "## File map"

#: Folders by the name they are shown under, in the order a reader wants them.
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
    "sparklog/wire/framing",
)  # fmt: skip
_ROOMS = ("sparklog", "driver", "executors", "storage_backends")
_GENERATED = "sparklog/wire/protocol/messages"


def head() -> str:
    """What stands in the document before the map."""
    return DOCUMENT.read_text().split(HEADING)[0]


def written() -> str:
    """The map as it stands in the document."""
    return DOCUMENT.read_text().split(HEADING)[1]


def due() -> str:
    """The map as the modules' docstrings make it."""
    introduction = written().split("\n**top**")[0]
    parts = [introduction + "\n" + _table("top", [ROOT / "pyspark_sparklog.py"])]
    parts += [_table(f"`{folder}/`", sorted(_modules(folder))) for folder in _folders()]
    return "\n".join(parts)


def _folders() -> list[str]:
    """Known ones first; a folder that nobody has placed comes last."""
    found = {
        str(path.parent.relative_to(ROOT))
        for room in _ROOMS
        for path in (ROOT / room).rglob("*.py")
        if path.name != "__init__.py"
    } - {_GENERATED}
    placed = [folder for folder in _FOLDERS if folder in found]
    return placed + sorted(found.difference(placed))


def _modules(folder: str) -> list[Path]:
    return [path for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py"]


def _table(title: str, paths: list[Path]) -> str:
    rows = "".join(f"| `{path.name}` | {_says(path)} |\n" for path in paths)
    return f"**{title}**\n\n| file | what |\n|---|---|\n{rows}"


def _says(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    text = " ".join(docstring.split("\n\n")[0].split())
    return text.removesuffix(".").replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(head() + HEADING + due())
