"""A broker as a process: its line in, its line out, its memory, its end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog.process import Child, ChildError, python_command, spawn_child
from tests.support.running import has_ended
from tests.support.waiting import wait_for

pytestmark = pytest.mark.process

#: Resident memory that an idle broker may have.
IDLE_KB_MAX = 80 * 1024


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Child]:
    line = json.dumps({"journal_dir": str(tmp_path / "journal")})
    child = spawn_child(python_command("sparklog.driver"), line, tmp_path / "control.log")
    yield child
    child.close()


@pytest.fixture
def spawn(tmp_path: Path, control: Child) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(**changes: Any) -> Child:
        options = {
            "cluster_id": control.ready["cluster_id"],
            "broker_id": 1,
            "data_dir": str(tmp_path / "data"),
            "new": True,
            "controller": f"127.0.0.1:{control.ready['port']}",
            "secret": control.ready["secret"],
            "lock_wait_s": 0.2,
            **changes,
        }
        children.append(
            spawn_child(
                python_command("sparklog.executors"), json.dumps(options), tmp_path / "broker.log"
            )
        )
        return children[-1]

    yield start
    for child in children:
        child.close()


def resident_kb(pid: int) -> int:
    fields = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(fields["VmRSS"].split()[0])


def test_a_broker_is_small_and_stops_cleanly(spawn: Callable[..., Child], tmp_path: Path) -> None:
    broker = spawn()
    assert broker.ready["pid"] == broker.pid
    assert resident_kb(broker.pid) < IDLE_KB_MAX
    os.kill(broker.pid, signal.SIGTERM)
    assert broker.wait(60) == 0
    assert (tmp_path / "data/broker-1/.kafka_cleanshutdown").exists()
    again = spawn(new=False)
    assert again.ready["directory_id"] == broker.ready["directory_id"]
    assert again.ready["incarnation"] != broker.ready["incarnation"]


def test_a_second_broker_is_locked_out_until_the_first_is_dead(
    spawn: Callable[..., Child],
) -> None:
    first = spawn()
    with pytest.raises(ChildError) as caught:
        spawn()
    assert caught.value.kind == "locked"
    assert str(first.pid) in str(caught.value)
    first.kill()
    spawn(new=False)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"new": False}, "not_here"),
        ({"cluster_id": "other"}, "foreign_cluster"),
        ({"settings": {"no.such.setting": "1"}}, "config"),
        ({"secret": "00"}, "config"),
        ({"data_dir": "/proc/nowhere"}, "storage"),
        ({"unknown_option": 1}, "config"),
    ],
)
def test_a_broker_that_cannot_start_says_why(
    spawn: Callable[..., Child], changes: dict[str, Any], kind: str
) -> None:
    with pytest.raises(ChildError) as caught:
        spawn(**changes)
    assert caught.value.kind == kind


def test_a_broker_dies_with_its_parent(tmp_path: Path, control: Child) -> None:
    options = {
        "cluster_id": control.ready["cluster_id"],
        "broker_id": 1,
        "data_dir": str(tmp_path / "data"),
        "new": True,
        "controller": f"127.0.0.1:{control.ready['port']}",
        "secret": control.ready["secret"],
    }
    parent = (
        "import sys, time; from pathlib import Path;"
        "from sparklog.process import python_command, spawn_child;"
        "child = spawn_child(python_command('sparklog.executors'), sys.argv[1], Path(sys.argv[2]));"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", parent, json.dumps(options), str(tmp_path / "broker.log")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    wait_for(lambda: has_ended(pid))


def test_a_broker_loads_nothing_heavy() -> None:
    heavy = ("pyspark", "pyarrow", "numpy", "pandas", "fsspec", "kio")
    code = (
        "import sys, sparklog.executors.__main__;"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
