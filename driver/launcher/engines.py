"""The engines that run supervisors, as Spark tasks or as plain processes.

Owns: the interface between the launcher and an engine, and the engine for plain processes.  Must
not know what a supervisor does; the caller gives the supervisor's module and its JSON payload.
"""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from sparklog.driver.launcher.spark_internals import ExecutorSlots
from sparklog.errors import SparklogError
from sparklog.process import Child, ChildError, describe_end, python_command, start_child

#: The slots that a process engine reports: it takes any number of brokers.
UNLIMITED = 1_000_000
#: A job is killed when it is cancelled again this long after its first cancellation.
TERMINATE_SECONDS_MAX = 5.0


class JobLost(SparklogError):
    """A supervisor's job ended without a report: its executor died, or it was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One supervisor to run: its name, its payload (which holds the secret), and its executor.

    ``title`` and ``purpose`` are shown to users, for example in Spark's UI.
    """

    name: str
    title: str = ""
    purpose: str = ""
    payload: Mapping[str, Any] = field(repr=False)
    executor: ExecutorSlots


class Engine(Protocol):
    """Runs supervisors.  Every method may be called from any thread."""

    def require_slots(self, brokers: int, spares: int) -> None:
        """Check that there are slots for ``brokers`` brokers and ``spares`` spares.

        Raises:
            StartError: names the slots that are wanted, those that were found, and the remedy.
        """

    def prepare(self) -> None:
        """Check the executors and ship the code that they lack.

        Raises:
            StartError: an executor cannot run a supervisor.
        """

    def executors(self) -> tuple[ExecutorSlots, ...]:
        """The executors on which a supervisor can run now."""

    def run(self, job: Job) -> dict[str, Any]:
        """Run a supervisor and wait for its end.

        Returns:
            The supervisor's report.

        Raises:
            JobLost: the job ended without a report.
        """

    def cancel(self, name: str) -> None:
        """End a job without asking its broker over the network; its ``run`` returns or raises.

        A second call ``TERMINATE_SECONDS_MAX`` later ends the job at once.
        """

    def is_over(self) -> bool:
        """Whether the engine can run no more jobs."""

    def cancel_queries(self) -> None:
        """Cancel all jobs that do not belong to the cluster."""

    def close(self) -> None:
        """End all jobs that still run."""


class ProcessEngine:
    """Runs supervisors as plain processes on this machine, for tests and protocol work."""

    def __init__(self, module: str, host: str, log_folder: Path | None = None) -> None:
        self._module = module
        self._host = host
        self._log_folder = log_folder
        self._lock = threading.Lock()
        self._running: dict[str, Child] = {}
        self._cancelled: dict[str, float] = {}
        self._closed = False

    def require_slots(self, brokers: int, spares: int) -> None:
        """Accept any number of brokers and spares."""

    def prepare(self) -> None:
        """Do nothing: children use this process's Python and modules."""

    def executors(self) -> tuple[ExecutorSlots, ...]:
        return (ExecutorSlots(executor_id="local", host=self._host, slots=UNLIMITED),)

    def run(self, job: Job) -> dict[str, Any]:
        log = self._log_folder and self._log_folder / f"{job.name}-supervisor.log"
        try:
            child = start_child(python_command(self._module), json.dumps(job.payload), log)
        except ChildError as error:
            raise JobLost(str(error)) from error
        with self._lock:
            self._running[job.name] = child
            closed = self._closed
        try:
            if closed:
                child.terminate()
            line = child.read_line(None)
            if line is None:
                raise JobLost(f"the supervisor {describe_end(child, child.wait() or 0)}")
            child.wait()
            report = json.loads(line)
            assert isinstance(report, dict)
            return report
        finally:
            with self._lock:
                self._running.pop(job.name, None)
                self._cancelled.pop(job.name, None)
            child.close()

    def cancel(self, name: str) -> None:
        with self._lock:
            child = self._running.get(name)
            began = self._cancelled.setdefault(name, time.monotonic())
        if child is None:
            return
        if time.monotonic() - began < TERMINATE_SECONDS_MAX:
            child.terminate()  # the supervisor passes the signal on to its broker
        else:
            child.kill()  # its broker does not react, and is killed together with it

    def is_over(self) -> bool:
        return self._closed

    def cancel_queries(self) -> None:
        """Do nothing: a process engine runs no queries."""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for child in running:
            child.kill()
