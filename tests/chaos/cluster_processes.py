"""The processes of a running cluster, found by what they hold, and signals for them.

Owns: who is who.  Must not know why one is killed.

A broker's directory is locked by its process; above it are its supervisor and, in Spark, the worker
daemon and the executor.  The control plane is the only child that runs its module.
"""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

BROKER, CONTROL_PLANE, EXECUTOR = "sparklog.executors", "sparklog.driver", "--executor-id"
CLEANER, TIERING = "sparklog.executors.cleaner", "sparklog.executors.tiering"
LOCK_FILE = ".lock"
LOCK_SECONDS_MAX = 5.0


class ClusterProcesses:
    """Those of a cluster that this process started, with its data below ``data_dir``."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def log_dir(self, broker_id: int) -> Path:
        return self._data_dir / f"broker-{broker_id}"

    def broker(self, broker_id: int) -> psutil.Process | None:
        """The broker that holds its directory; None while none does."""
        with suppress(OSError, ValueError, IndexError, psutil.Error):
            pid = int((self.log_dir(broker_id) / LOCK_FILE).read_text().split()[0])
            process = psutil.Process(pid)
            if BROKER in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                return process
        return None

    def supervisor(self, broker_id: int) -> psutil.Process | None:
        broker = self.broker(broker_id)
        with suppress(psutil.Error):
            return broker.parent() if broker is not None else None
        return None

    def executor(self, broker_id: int) -> psutil.Process | None:
        """The executor that a broker runs in; None for plain processes."""
        broker = self.broker(broker_id)
        with suppress(psutil.Error):
            for above in broker.parents() if broker is not None else ():
                if EXECUTOR in above.cmdline():
                    return above
        return None

    def control_plane(self) -> psutil.Process | None:
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                running = child.status() != psutil.STATUS_ZOMBIE
                if running and child.cmdline()[-1:] == [CONTROL_PLANE]:
                    return child
        return None

    def cleaner(self, broker_id: int) -> psutil.Process | None:
        """The process that cleans a log of a broker; None while none does."""
        return self._child(broker_id, CLEANER)

    def tiering(self, broker_id: int) -> psutil.Process | None:
        """The process of a broker that talks to the remote_dir; None while there is none."""
        return self._child(broker_id, TIERING)

    def _child(self, broker_id: int, module: str) -> psutil.Process | None:
        broker = self.broker(broker_id)
        with suppress(psutil.Error):
            for child in broker.children() if broker is not None else ():
                if module in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE:
                    return child
        return None

    def brokers_in(self, executor: psutil.Process, broker_ids: list[int]) -> list[int]:
        """Which of the brokers run in an executor."""
        return [id_ for id_ in broker_ids if self.executor(id_) == executor]


def send(process: psutil.Process, number: int) -> bool:
    """Whether the process was there to get the signal."""
    try:
        process.send_signal(number)
    except psutil.Error:
        return False
    return True


@contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    """It stands still meanwhile."""
    send(process, signal.SIGSTOP)
    try:
        yield
    finally:
        send(process, signal.SIGCONT)


@contextmanager
def nobody_in(log_dir: Path) -> Iterator[bool]:
    """Wait until nobody holds a broker's directory, and keep everybody out meanwhile.

    False when that takes too long, or there is no directory.  Its next broker waits for the lock;
    one whose directory is gone by then finds that out.
    """
    try:
        descriptor = os.open(log_dir / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _locked(descriptor)
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    end = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        late = time.monotonic() > end  # before the try, so that a pause does not cost the last one
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if late:
                return False
            time.sleep(0.001)  # less than a new broker needs to get there
