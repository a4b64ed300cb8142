"""What runs in the simulation takes clocks, randomness and threads from outside.

Shells may use asyncio, whose loop the simulation supplies; everything else that differs from run to
run comes through ``sparklog.runtime_environment`` and ``storage_backends.blocking``.
"""

from pathlib import Path

import pytest

from tests.lint.test_purity import FORBIDDEN_CALLS, offences

ROOT = Path(__file__).resolve().parents[2]

#: Rooms that run in the simulation, and what in them does not.
ROOMS = (
    *("sparklog/client", "sparklog/service", "sparklog/transport", "sparklog/commit_log"),
    *("sparklog/remote_log", "sparklog/segment_files", "driver", "executors"),
)
OUTSIDE = frozenset(
    {
        "sparklog/remote_log/chunk_cache.py",
        *("sparklog/client/blocking.py", "sparklog/client/blocking_data_client.py"),
        *(
            "sparklog/client/event_loop_thread.py",
            "driver/__main__.py",
            "driver/launcher/control_plane_process.py",
        ),
        *(
            "driver/launcher/broker_keeper.py",
            "driver/launcher/launcher.py",
            "driver/launcher/member_calls.py",
        ),
        *(
            "driver/launcher/engines.py",
            "driver/launcher/slot_allocator.py",
            "driver/launcher/fleet.py",
        ),
        *(
            "driver/launcher/java.py",
            "driver/launcher/shipping.py",
            "driver/launcher/sigint.py",
            "driver/launcher/spares.py",
        ),
        *(
            "driver/launcher/spark_engine.py",
            "driver/launcher/spark_internals.py",
            "driver/launcher/removal.py",
        ),
        *("driver/launcher/death_report_batcher.py", "driver/launcher/worker_python.py"),
        *(
            "executors/__main__.py",
            "executors/cleaner/__main__.py",
            "executors/tiering/__main__.py",
            "executors/supervisor/supervisor.py",
            "executors/supervisor/death_report.py",
        ),
    }
)
#: Shells have a loop and sockets' constants.
ALLOWED = frozenset({"imports asyncio", "imports socket", "calls os.getpid()"})


def simulated_files() -> list[Path]:
    found = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return [path for path in found if str(path.relative_to(ROOT)) not in OUTSIDE]


@pytest.mark.parametrize("path", simulated_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_simulated_reaches_for_no_clock(path: Path) -> None:
    source = path.read_text()
    found = [line for line in offences(source) if line.partition(": ")[2] not in ALLOWED]
    imported = [line for line in source.splitlines() if line.startswith("from uuid import")]
    assert found == []
    assert not any("uuid4" in line or "uuid1" in line for line in imported)


def test_the_list_of_exceptions_names_files_that_are_there() -> None:
    assert {name for name in OUTSIDE if not (ROOT / name).is_file()} == set()
    assert "os.urandom" in FORBIDDEN_CALLS
