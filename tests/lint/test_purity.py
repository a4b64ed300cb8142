"""The state machines stay pure: clocks, randomness, threads, sockets and asyncio come from outside.

This is what makes the deterministic simulation possible, so it is a rule and not a habit.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Files and folders whose code decides and never does: relative to the repository.
PURE = (
    "sparklog/errors.py",
    "sparklog/types.py",
    "sparklog/config",
    "sparklog/metadata",
    "sparklog/metadata.py",
    "sparklog/wire",
    "sparklog/client/replica_plan.py",
    "sparklog/dataframe/options.py",
    "sparklog/dataframe/plan.py",
    "sparklog/dataframe/pushdown.py",
    "executors/partition.py",
    "executors/replica.py",
    "executors/readable.py",
    "executors/insync.py",
    "executors/followers.py",
    "executors/follower_role.py",
    "executors/replicated_batches.py",
    "executors/producer_entry.py",
    "executors/producer_state.py",
    "executors/timing_wheel.py",
    "executors/open_transactions.py",
    "executors/closest_replica.py",
    "executors/fetch_session.py",
    "executors/leader_fetch.py",
    "executors/replication_quota.py",
    "executors/fetch_sessions.py",
    "executors/session_eviction.py",
    "executors/log",
    "driver/placement.py",
    "driver/controller.py",
    "driver/controller",
)
#: Build-time tools inside a pure room.
EXEMPT = ("sparklog/wire/generate.py",)

FORBIDDEN_MODULES = frozenset(
    {
        *("asyncio", "concurrent", "multiprocessing", "random", "secrets", "select", "selectors"),
        *("signal", "socket", "ssl", "subprocess", "threading", "time", "_thread"),
    }
)
FORBIDDEN_CALLS = frozenset(
    {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "os.urandom"}
    | {"uuid.uuid1", "uuid.uuid4", "open", "os.open", "os.getpid", "datetime.datetime.now"}
)


def pure_files() -> list[Path]:
    found: list[Path] = []
    for entry in PURE:
        path = ROOT / entry
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []
    return [path for path in found if str(path.relative_to(ROOT)) not in EXEMPT]


def offences(source: str) -> Iterator[str]:
    """``line: what`` for every impure import or call in the source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in FORBIDDEN_CALLS:
            yield f"{node.lineno}: calls {ast.unparse(node.func)}()"
            continue
        else:
            continue
        for name in names:
            if name.split(".")[0] in FORBIDDEN_MODULES:
                yield f"{node.lineno}: imports {name}"


@pytest.mark.parametrize("path", pure_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_pure_module_reaches_for_nothing(path: Path) -> None:
    assert list(offences(path.read_text())) == []


def test_the_lint_sees_what_it_should() -> None:
    source = "import time\nfrom asyncio import run\nimport uuid\nx = uuid.uuid4()\ny = open('f')\n"
    assert list(offences(source)) == [
        "1: imports time",
        "2: imports asyncio",
        "4: calls uuid.uuid4()",
        "5: calls open()",
    ]


def test_the_pure_rooms_exist() -> None:
    names = {str(path.relative_to(ROOT)) for path in pure_files()}
    assert {"executors/partition.py", "driver/placement.py", "sparklog/wire/batch.py"} <= names
