"""A dead broker's directory is ours until we are done with it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sparklog.errors import LockedError
from sparklog.storage_backends.local import FileLock
from tests.chaos.cluster_processes import LOCK_FILE, ClusterProcesses, nobody_in, send, stopped

#: What a broker is to whoever looks at its directory: the holder of its lock.
HOLDER = """
import sys, time
from sparklog.storage_backends.local import FileLock
lock = FileLock(sys.argv[1])
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    path = tmp_path / "broker-1"
    path.mkdir()
    return path


@pytest.fixture
def holder(log_dir: Path) -> Iterator[psutil.Process]:
    command = [sys.executable, "-c", HOLDER, str(log_dir / LOCK_FILE), "sparklog.executors"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield psutil.Process(process.pid)
        process.kill()


def test_a_killed_broker_s_directory_is_kept_from_the_next_one(
    log_dir: Path, holder: psutil.Process
) -> None:
    processes = ClusterProcesses(log_dir.parent)
    assert processes.broker(1) == holder
    assert (processes.executor(1), processes.supervisor(1)) == (None, psutil.Process())
    assert send(holder, signal.SIGKILL)
    with nobody_in(log_dir) as alone:
        assert alone
        assert processes.broker(1) is None
        with pytest.raises(LockedError):
            FileLock(str(log_dir / LOCK_FILE))
    FileLock(str(log_dir / LOCK_FILE)).release()


def test_the_cleaner_of_a_broker_is_its_child(log_dir: Path) -> None:
    """The holder of the directory starts one, as a broker does."""
    child = "import time; time.sleep(600)"
    cleaner = f"subprocess.Popen([sys.executable, '-c', {child!r}, 'sparklog.executors.cleaner'])"
    source = f"import subprocess, sys\ncleaner = {cleaner}\n{HOLDER}\n"
    processes = ClusterProcesses(log_dir.parent)
    assert processes.cleaner(1) is None
    command = [sys.executable, "-c", source, str(log_dir / LOCK_FILE), "sparklog.executors"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        found = processes.cleaner(1)
        assert found in psutil.Process(process.pid).children()
        assert found is not None
        assert send(found, signal.SIGKILL)
        process.kill()


def test_a_directory_that_is_not_there_is_nobody_s(tmp_path: Path) -> None:
    with nobody_in(tmp_path / "broker-7") as alone:
        assert not alone
    assert ClusterProcesses(tmp_path).broker(7) is None


def test_what_stands_still_goes_on_afterwards(holder: psutil.Process) -> None:
    with stopped(holder):
        while holder.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
    while holder.status() == psutil.STATUS_STOPPED:
        time.sleep(0.01)
