"""The state machines stay pure: clocks, randomness, threads, sockets and asyncio come from outside.

This is what makes the deterministic simulation possible, so it is a rule and not a habit.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Packages and modules whose code decides and never does.
PURE = (
    "sparklog.errors",
    "sparklog.types",
    "sparklog.config",
    "sparklog.commit_log",  # the store that it writes to comes from outside, too
    "sparklog.metadata",
    "sparklog.remote_log.divergence",
    "sparklog.remote_log.json_values",
    "sparklog.remote_log.manifest",
    "sparklog.remote_log.manifest_draft",
    "sparklog.remote_log.manifest_records",
    "sparklog.remote_log.names",
    "sparklog.remote_log.open_manifests",  # the store comes from outside, too
    "sparklog.remote_log.remote_segment",
    "sparklog.remote_log.segment_list",
    "sparklog.remote_log.service",
    "sparklog.remote_log.sweep",
    "sparklog.remote_log.takeover",
    "sparklog.remote_log.signed_segments",
    "sparklog.remote_log.time_ranges",
    "sparklog.wire",
    "sparklog.client.fetch_buffer",
    "sparklog.client.groups.assignors",
    "sparklog.client.groups.consumer_protocol",
    "sparklog.client.groups.group_topics",
    "sparklog.client.groups.in_flight_requests",
    "sparklog.client.groups.member_events",
    "sparklog.client.groups.member_partitions",
    "sparklog.client.groups.member_requests",
    "sparklog.client.groups.member_timers",
    "sparklog.client.groups.membership",
    "sparklog.client.groups.offset_requests",
    "sparklog.client.groups.sticky_assignors",
    "sparklog.client.find_coordinator_api",
    "sparklog.client.producer_options",
    "sparklog.client.producer_sequences",
    "sparklog.client.transactions.producer_state",
    "sparklog.client.transactions.transaction_errors",
    "sparklog.client.transactions.transaction_manager",
    "sparklog.client.transactions.transaction_requests",
    "sparklog.client.replica_plan",
    "sparklog.byte_quota",
    "sparklog.dataframe.options",
    "sparklog.dataframe.read.plan",
    "sparklog.dataframe.read.pushdown",
    "sparklog.dataframe.read.remote_plan",
    "sparklog.executors.coordinator.operation_errors",
    "sparklog.executors.coordinator.record_batches",
    "sparklog.executors.cleaner.choice",
    "sparklog.executors.cleaner.plan",
    "sparklog.executors.cleaner.transactions",
    "sparklog.executors.coordinator.state_machine",
    "sparklog.executors.fetch_sessions",
    "sparklog.executors.groups",
    "sparklog.executors.log",
    "sparklog.executors.partition",
    "sparklog.executors.purgatory.timing_wheel",
    "sparklog.executors.replica_manager.replica_selector",
    "sparklog.executors.replica_manager.replication_quota",
    "sparklog.executors.replication.fetch_session_handler",
    "sparklog.executors.tiering.fetch_quota",
    "sparklog.driver.control_plane.controller",
    "sparklog.driver.control_plane.placement",
    "sparklog.driver.transactions",
    "sparklog.remote_log.chunk_index",
    "sparklog.remote_log.read_ahead",
    "sparklog.segment_files",
)
#: Build-time tools inside a pure room.
EXEMPT = ("sparklog/wire/protocol/generate.py",)

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


def files_of(name: str) -> list[Path]:
    """The files of a package or of a module.  Raises LookupError when there is neither."""
    path = ROOT.joinpath(*name.split("."))
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    if not found or not found[0].is_file():
        raise LookupError(f"{name} does not exist; mend PURE")
    return found


def pure_files() -> list[Path]:
    found = [path for name in PURE for path in files_of(name)]
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


@pytest.mark.parametrize("name", ["sparklog.no_such_module", "sparklog.wire.no_such_module"])
def test_a_name_that_does_not_exist_fails(name: str) -> None:
    with pytest.raises(LookupError, match=name):
        files_of(name)
