"""Keeps one broker running: picks an executor, submits its supervisor, and does so again.

Owns: the choice of executors (``choose_executor`` is pure) and the life of one broker's jobs, on a
thread of its own.  Must not know how jobs run (the engine does) nor what the control plane decides.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from sparklog.driver.engines import Engine, Job, JobLost
from sparklog.driver.spark_jobs import ExecutorSlots

log = logging.getLogger(__name__)

#: How long an executor's host may take to come back before others are asked.
HOST_SECONDS_MAX = 15.0
LOOK_SECONDS = 0.25
RETRY_SECONDS_MAX = 15.0


def choose_executor(
    executors: Iterable[ExecutorSlots],
    used: Mapping[str, int],
    host: str | None,
    excluded: frozenset[str] = frozenset(),
) -> ExecutorSlots | None:
    """The executor for a broker that was last on ``host``: that host first, then the emptiest.

    ``used`` counts our brokers by executor id.  None when no executor has a free slot.
    """
    free = [
        executor
        for executor in executors
        if executor.executor_id not in excluded
        and used.get(executor.executor_id, 0) < executor.slots
    ]
    return min(free, key=lambda e: _rank(e, used.get(e.executor_id, 0), host), default=None)


def _rank(executor: ExecutorSlots, used: int, host: str | None) -> tuple[bool, int, int, str]:
    return (executor.host != host, used, used - executor.slots, executor.executor_id)


class Placer:
    """Which of our brokers sit on which executor."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}

    def take(
        self, executors: Iterable[ExecutorSlots], host: str | None, excluded: frozenset[str]
    ) -> ExecutorSlots | None:
        with self._lock:
            chosen = choose_executor(executors, self._used, host, excluded)
            if chosen is not None:
                self._used[chosen.executor_id] = self._used.get(chosen.executor_id, 0) + 1
            return chosen

    def used(self, executor_id: str) -> int:
        """How many of our brokers sit there."""
        with self._lock:
            return self._used.get(executor_id, 0)

    def give_back(self, executor: ExecutorSlots) -> None:
        with self._lock:
            self._used[executor.executor_id] -= 1


class MakePayload(Protocol):
    def __call__(self, executor: ExecutorSlots, new: bool) -> dict[str, Any]:
        """The supervisor's payload for a broker on this executor."""


class BrokerKeeper:
    """One broker's thread.  ``failure`` is set when it could not start at all."""

    def __init__(
        self,
        *,
        broker_id: int,
        host: str | None,
        new: bool,
        engine: Engine,
        placer: Placer,
        make_payload: MakePayload,
        on_loss: Callable[[int, str], None],
        on_failure: Callable[[], None],
    ) -> None:
        self.broker_id = broker_id
        self.failure: str | None = None
        self._host = host
        self._new = new
        self._engine = engine
        self._placer = placer
        self._make_payload = make_payload
        self._on_loss = on_loss
        self._on_failure = on_failure
        self._registered = False
        self._executor: ExecutorSlots | None = None
        self._stopping = threading.Event()
        self._retries = 0
        self._refused_by: frozenset[str] = frozenset()
        self._seen: frozenset[str] = frozenset()
        name = f"keeper-{broker_id}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @property
    def job_name(self) -> str:
        return f"broker-{self.broker_id}"

    @property
    def is_registered(self) -> bool:
        """Whether its broker was seen alive since this start."""
        return self._registered

    @property
    def has_ended(self) -> bool:
        """Whether no job runs and none will."""
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def note_registered(self) -> None:
        """The broker has been seen alive: it has a directory, and losses are to be mended."""
        executor = self._executor
        if executor is not None:
            self._host = executor.host
        self._registered = True

    def ask_to_stop(self) -> None:
        """From now on an end of the job is final."""
        self._stopping.set()

    def join(self, timeout: float) -> bool:
        """Whether the job has ended; waits for it."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout))
        return self.has_ended

    def cancel(self) -> None:
        self._engine.cancel(self.job_name)

    def _work(self) -> None:
        while not self._stopping.is_set() and self.failure is None:
            try:
                executor = self._find_executor()
                if executor is not None:
                    self._run_on(executor)
            except Exception as error:
                self._handle_error(error)
        if self.failure is not None and not self._stopping.is_set():
            self._on_failure()

    def _handle_error(self, error: Exception) -> None:
        """What the engine should not have raised, as a lost connection to the JVM."""
        if self._stopping.is_set():
            return
        log.exception("the keeper of broker %s failed", self.broker_id)
        if self._registered:
            self._pause()  # a broker that has run is brought back
        else:
            self.failure = f"{type(error).__name__}: {error}"

    def _find_executor(self) -> ExecutorSlots | None:
        """Wait for an executor to run on; None when it is time to stop."""
        end_of_patience = time.monotonic() + HOST_SECONDS_MAX
        while not self._stopping.is_set():
            if self._engine.is_over():
                self.failure = "the Spark application has ended"
                return None
            executors = self._engine.executors()
            self._forgive(executors)
            if self._is_worth_waiting(executors) and time.monotonic() < end_of_patience:
                self._stopping.wait(LOOK_SECONDS)
                continue
            if self._stopping.is_set():
                break
            chosen = self._placer.take(executors, self._host, self._refused_by)
            if chosen is not None:
                return chosen
            if self._refused_by and not self._registered:
                self.failure = (
                    f"no executor has the directory of broker {self.broker_id}, which was last on "
                    f"{self._host}; give the data_dir that it was started with"
                )
                return None
            if self._refused_by:
                self._pause()
                self._refused_by = frozenset()
            self._stopping.wait(LOOK_SECONDS)
        return None

    def _forgive(self, executors: Iterable[ExecutorSlots]) -> None:
        """A changed list of executors makes refusals worth asking again."""
        ids = frozenset(executor.executor_id for executor in executors)
        if ids - self._seen and self._registered:
            self._refused_by = frozenset()
        self._seen |= ids

    def _is_worth_waiting(self, executors: Iterable[ExecutorSlots]) -> bool:
        """After a loss the cluster manager usually starts an executor on the same host again."""
        return self._registered and self._host not in {executor.host for executor in executors}

    def _run_on(self, executor: ExecutorSlots) -> None:
        payload = self._make_payload(executor, self._new and not self._registered)
        self._executor = executor
        job = Job(name=self.job_name, payload=payload, executor=executor)
        log.info("%s goes to executor %s on %s", job.name, executor.executor_id, executor.host)
        try:
            report = self._engine.run(job)
        except JobLost as error:
            report = {"outcome": "lost", "error": str(error)}
        finally:
            self._placer.give_back(executor)
        if not self._stopping.is_set():
            self._handle_end(report, executor)

    def _handle_end(self, report: Mapping[str, Any], executor: ExecutorSlots) -> None:
        outcome, error = report["outcome"], str(report.get("error", ""))
        log.warning("%s on executor %s: %s %s", self.job_name, executor.executor_id, outcome, error)
        if outcome == "elsewhere":
            return
        if outcome == "refused" and report.get("kind") == "not_here":
            self._refused_by |= {executor.executor_id}
            if self._registered:
                self._pause()
            return
        if not self._registered:
            self.failure = error or f"its supervisor ended ({outcome})"
            return
        self._host = executor.host
        with suppress(Exception):  # the session timeout fences it as well
            self._on_loss(self.broker_id, f"{outcome} {error}".strip())
        if outcome != "lost":
            self._pause()

    def _pause(self) -> None:
        self._retries += 1
        self._stopping.wait(min(RETRY_SECONDS_MAX, 0.5 * 2 ** min(self._retries, 10)))
