"""The supervisor: it holds a task slot, runs one broker as a child process, and restarts it.

Owns: the life of one broker's processes on one executor, and reporting their deaths to the control
plane.  Must not know Spark (the supervisor only reads the executor's id from the command line of
the executor process above it) nor the launcher.  The launcher gets the outcome in the supervisor's
report.

The supervisor is the body of a one-task barrier job (``run_task``), or a plain process
(``python -m sparklog.executors.supervisor``, one JSON line in, one JSON line out).  It returns when
the broker has stopped on request or cannot run on this executor.  It fails when the broker does not
stay up.
"""

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from sparklog.errors import SparklogError
from sparklog.process import (
    Child,
    ChildError,
    describe_end,
    die_with_parent,
    local_folder,
    python_command,
    set_parent_death_signal,
    spawn_child,
)
from sparklog.types import Endpoint

if TYPE_CHECKING:
    from sparklog.executors.supervisor.death_report import DeathReporter
    from sparklog.executors.supervisor.standby import Standby

log = logging.getLogger(__name__)

#: Kinds of start errors that an immediate retry cannot fix; the launcher decides what to do.
FINAL_KINDS = frozenset({"not_here", "locked", "foreign_cluster", "storage", "config"})
#: Time limit of the last report of a death, before the supervisor ends.
REPORT_SECONDS_MAX = 1.0


class SupervisorError(SparklogError):
    """The broker does not stay up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorPayload:
    """The launcher's order to a supervisor.

    Args:
        broker: the options of the broker process, secret included.
        executor_id: the executor that the launcher has chosen; None for any executor.
        command: the command of the broker process; empty for ``python -m sparklog.executors``.
        spare: the name of a spare supervisor, which is given the rest of ``broker`` later.
        ready_timeout: seconds that the broker may take to serve.
        fast_seconds: a broker that ends within this time counts as a fast failure.
        fast_failures_max: fast failures in a row after which the supervisor fails.
        backoff: seconds, from which the growing pauses between restarts are computed.
    """

    broker: dict[str, Any] = field(repr=False)
    executor_id: str | None = None
    command: list[str] = field(default_factory=list)
    spare: str = ""
    ready_timeout: float = 600.0
    fast_seconds: float = 10.0
    fast_failures_max: int = 5
    backoff: float = 0.2

    @classmethod
    def from_json(cls, text: str | bytes) -> "SupervisorPayload":
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorReport:
    """The result of a supervisor: ``outcome`` is ``stopped``, ``elsewhere``, ``refused`` or
    ``failed``.

    ``elsewhere``: the task runs on another executor than requested, and nothing was done.
    ``refused``: the broker cannot run on this executor, and ``kind`` says why.  ``failed``: the
    broker does not stay up.
    """

    outcome: str
    executor_id: str | None = None
    kind: str = ""
    error: str = ""
    restarts: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def run_task(payloads: Iterator[bytes]) -> Iterator[bytes]:
    """The body of a Spark task: one payload in, one report out.

    Raises:
        SupervisorError: the broker does not stay up.
    """
    for payload in payloads:
        with _dying_with_parent():
            asked = SupervisorPayload.from_json(bytes(payload))
            report = Supervisor(asked, own_executor_id()).run()
        if report.outcome == "failed":
            raise SupervisorError(report.error)
        yield report.to_json().encode()


def main() -> int:
    """The body of a plain process."""
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    payload = SupervisorPayload.from_json(sys.stdin.readline())
    supervisor = Supervisor(payload, payload.executor_id)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.stop())
    report = supervisor.run()
    sys.stdout.write(report.to_json() + "\n")
    sys.stdout.flush()
    return 1 if report.outcome == "failed" else 0


class Supervisor:
    """Runs one broker until the broker is asked to stop or cannot run.

    Args:
        payload: the launcher's order.
        executor_id: the executor on which this process runs; None if unknown.
    """

    def __init__(self, payload: SupervisorPayload, executor_id: str | None) -> None:
        self._payload = payload
        self._executor_id = executor_id
        self._broker = dict(payload.broker)
        self._command: Sequence[str] = payload.command or python_command("sparklog.executors")
        self._child: Child | None = None
        self._deaths: DeathReporter | None = None
        self._standby: Standby | None = None
        self._stopping = False
        self._restarts = -1
        self._fast_failures = 0

    def run(self) -> SupervisorReport:
        wanted = self._payload.executor_id
        if wanted is not None and self._executor_id not in (None, wanted):
            return self._report("elsewhere", error=f"this is executor {self._executor_id}")
        if self._payload.spare and not self._take_work():
            return self._report("stopped")
        missing = self._missing_directory()
        if missing:
            return self._report("refused", kind="not_here", error=missing)
        self._broker["executor_id"] = self._executor_id or self._broker.get("executor_id", "")
        try:
            while not self._stopping:
                report = self._run_once()
                if report is not None:
                    return report
            return self._report("stopped")
        finally:
            if self._deaths is not None:
                self._deaths.finish(REPORT_SECONDS_MAX)

    def stop(self) -> None:
        """Ask the broker for a clean end.  Signal handlers may call this."""
        self._stopping = True
        standby, child = self._standby, self._child
        if standby is not None:
            standby.stop()
        if child is not None and child.poll() is None:
            child.terminate()

    def _take_work(self) -> bool:
        """Wait for a broker to run.  Returns False if the supervisor has to stop instead."""
        from sparklog.executors.supervisor.standby import Standby

        broker = self._broker
        controller, secret = Endpoint.parse(broker["controller"]), bytes.fromhex(broker["secret"])
        self._standby = Standby(controller, secret, self._payload.spare)
        if self._stopping:
            return False
        work = self._standby.wait()
        self._standby = None
        self._broker |= (work or {}).get("broker", {})
        return "broker_id" in self._broker

    def _missing_directory(self) -> str:
        """The text for a missing broker directory; empty if the directory is here or may be new."""
        locations = (self._broker["data_dir"], *self._broker.get("more_data_dirs", ()))
        data_dirs = [local_folder(location) for location in locations]
        name = f"broker-{self._broker['broker_id']}"
        if self._broker.get("new") or any(f is None or (f / name).is_dir() for f in data_dirs):
            return ""
        return f"there is no {' and no '.join(str(f / name) for f in data_dirs if f)}"

    def _run_once(self) -> SupervisorReport | None:
        """Run the broker once.  Returns a report if the supervisor has to end; None to restart."""
        began = time.monotonic()
        try:
            child = self._spawn()
        except ChildError as error:
            if error.kind == "stopped":  # the broker was stopped before it was ready
                return self._report("stopped")
            if error.kind in FINAL_KINDS:
                return self._report("refused", kind=error.kind, error=str(error))
            self._broker["port"] = 0  # the old port may be taken by now
            return self._handle_failure(began, str(error))
        self._child = child
        try:
            if self._stopping:
                child.terminate()
            deaths = self._death_reporter()
            code = child.wait()
            assert code is not None
            if code == 0:
                return self._report("stopped")
            deaths.report(UUID(child.ready["incarnation"]))
            return self._handle_failure(began, f"the broker {describe_end(child, code)}")
        finally:
            self._child = None
            child.close()

    def _spawn(self) -> Child:
        self._restarts += 1
        child = spawn_child(
            self._command,
            json.dumps(self._broker),
            self._log_path(),
            ready_timeout=self._payload.ready_timeout,
        )
        self._broker |= {"new": False, "port": child.ready["port"]}
        log.info("broker %s runs as process %s", self._broker["broker_id"], child.pid)
        return child

    def _death_reporter(self) -> "DeathReporter":
        """The reporter, created with its modules while the broker runs.

        So neither the broker's start nor the report of its death waits for the imports.
        """
        if self._deaths is None:
            from sparklog.executors.supervisor.death_report import DeathReporter

            broker = self._broker
            self._deaths = DeathReporter(
                Endpoint.parse(broker["controller"]),
                bytes.fromhex(broker["secret"]),
                broker["broker_id"],
            )
        return self._deaths

    def _handle_failure(self, began: float, error: str) -> SupervisorReport | None:
        log.warning("broker %s: %s", self._broker["broker_id"], error)
        lived = time.monotonic() - began
        self._fast_failures = self._fast_failures + 1 if lived < self._payload.fast_seconds else 1
        if self._fast_failures >= self._payload.fast_failures_max:
            return self._report(
                "failed",
                error=f"broker {self._broker['broker_id']} failed {self._fast_failures} times "
                f"in a row; the last time: {error}",
            )
        # The first restart is immediate, because most brokers die only once.
        self._sleep(min(5.0, self._payload.backoff * (2 ** (self._fast_failures - 1) - 1)))
        return None

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _log_path(self) -> Path | None:
        data_dir = local_folder(self._broker["data_dir"])
        return data_dir and data_dir / "logs" / f"broker-{self._broker['broker_id']}.log"

    def _report(self, outcome: str, kind: str = "", error: str = "") -> SupervisorReport:
        return SupervisorReport(
            outcome=outcome,
            executor_id=self._executor_id,
            kind=kind,
            error=error,
            restarts=max(0, self._restarts),
        )


def own_executor_id() -> str | None:
    """The id of the Spark executor above this process, from the executor's command line.

    The result is None if the id is unknown, and in local mode, where the executor is a part of the
    driver's JVM.
    """
    pid = os.getppid()
    with suppress(OSError, ValueError, IndexError):
        while pid > 1:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--executor-id" in words:
                return words[words.index("--executor-id") + 1]
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


@contextmanager
def _dying_with_parent() -> Iterator[None]:
    """Arm the parent-death signal for a while: later tasks may reuse this Spark worker."""
    set_parent_death_signal(signal.SIGKILL)
    try:
        yield
    finally:
        set_parent_death_signal(0)
