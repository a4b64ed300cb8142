"""Keeps one broker running: picks an executor, submits its supervisor, and does so again.

Owns: the life of one broker's jobs, on a thread of its own, and when a directory that no executor
has is given up for a new one.  Must not know how jobs run (the engine does) nor what the control
plane decides.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from sparklog.driver.launcher.engines import Engine, Job, JobLost
from sparklog.driver.launcher.slot_allocator import SlotAllocator
from sparklog.driver.launcher.spares import Spare, SparePool
from sparklog.driver.launcher.spark_internals import ExecutorSlots
from sparklog.wire.protocol.private import AssignedBroker

log = logging.getLogger(__name__)

#: How long an executor's host may take to come back before others are asked.
HOST_RETURN_SECONDS_MAX = 15.0
POLL_SECONDS = 0.25
RETRY_SECONDS_MAX = 15.0


class MakePayload(Protocol):
    def __call__(self, executor: ExecutorSlots, new: bool) -> dict[str, Any]:
        """The supervisor's payload for a broker on this executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """``on_loss`` is told a broker id and a reason; ``on_failure``: it could not start at all.

    ``replacement_delay`` is in seconds; ``may_replace`` tells whether a broker's records are all
    led by others, so that it can do with an empty directory.
    """

    make_payload: MakePayload
    on_loss: Callable[[int, str], None]
    on_failure: Callable[[], None]
    may_replace: Callable[[int], bool]
    replacement_delay: float


class BrokerKeeper:
    """One broker's thread.  ``failure`` is set when it could not start at all."""

    def __init__(
        self,
        broker: AssignedBroker,
        options: KeeperOptions,
        *,
        engine: Engine,
        slot_allocator: SlotAllocator,
        spares: SparePool,
    ) -> None:
        self.broker_id = broker.broker_id
        self.failure: str | None = None
        self._host = broker.host
        self._new = broker.new
        self._options = options
        self._engine = engine
        self._slot_allocator = slot_allocator
        self._spares = spares
        self._spare: Spare | None = None
        self._registered = False
        self._is_permanent = False
        self._executor: ExecutorSlots | None = None
        self._stopping = threading.Event()
        self._retries = 0
        self._refused_by: frozenset[str] = frozenset()
        self._known_executors: frozenset[str] = frozenset()
        self._missing = False
        self._replacing = False
        self._last_ran = time.monotonic()
        name = f"keeper-{broker.broker_id}"
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @property
    def job_name(self) -> str:
        """The job that runs it: its own, or that of a spare."""
        spare = self._spare
        return f"broker-{self.broker_id}" if spare is None else spare.name

    @property
    def is_registered(self) -> bool:
        """Whether its broker was seen alive since this start."""
        return self._registered

    @property
    def is_missing(self) -> bool:
        """Whether no executor had its directory; it is looked for again and again."""
        return self._missing

    @property
    def absence_message(self) -> str:
        """What to say of that."""
        return (
            f"no executor has the directory of broker {self.broker_id}, which was last on "
            f"{self._host}; give the data_dir that it was started with"
        )

    @property
    def has_ended(self) -> bool:
        """Whether no job runs and none will."""
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def mark_registered(self) -> None:
        """The broker has been seen alive: it has a directory, and losses are to be mended."""
        executor = self._executor
        if executor is not None:
            self._host = executor.host
        self._registered = self._is_permanent = True
        self._missing = False

    def accept_absence(self) -> None:
        """The others can do without it until its directory is back or replaced."""
        self._is_permanent = True

    def ask_to_stop(self) -> None:
        """From now on an end of the job is final."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

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
                place = self._find_place()
                if isinstance(place, Spare):
                    self._run_in(place)
                elif place is not None:
                    self._run_on(place)
            except Exception as error:
                self._handle_error(error)
        if self.failure is not None and not self._stopping.is_set():
            self._options.on_failure()

    def _handle_error(self, error: Exception) -> None:
        """What the engine should not have raised, as a lost connection to the JVM."""
        if self._stopping.is_set():
            return
        log.exception("the keeper of broker %s failed", self.broker_id)
        if self._is_permanent:
            self._pause()  # a broker that has run is brought back
        else:
            self.failure = f"{type(error).__name__}: {error}"

    def _find_place(self) -> ExecutorSlots | Spare | None:
        """Wait for an executor to run on, or a spare to run in; None when it is time to stop."""
        while not self._stopping.is_set():
            if self._engine.is_over():
                self.failure = "the Spark application has ended"
                return None
            executors = self._engine.executors()
            self._clear_refusals(executors)
            if self._should_wait_for_host(executors):
                self._stopping.wait(POLL_SECONDS)
                continue
            if self._stopping.is_set():
                break
            place = self._choose_place(executors)
            if place is not None:
                return place
            if self._refused_by:
                self._missing = True
                self._replacing = self._is_due_for_replacement()
                if not self._replacing:
                    self._pause()
                self._refused_by = frozenset()
            else:
                self._replacing = False  # who leads its records now may not when there is room
            self._stopping.wait(POLL_SECONDS)
        return None

    def _choose_place(self, executors: Iterable[ExecutorSlots]) -> ExecutorSlots | Spare | None:
        """Its host comes first, and there a spare, which need not queue."""
        spares, excluded = self._spares, self._refused_by
        spare = spares.take(self._host, excluded, self._payload) if self._is_permanent else None
        if spare is not None:
            return spare
        chosen = self._slot_allocator.take(executors, self._host, excluded)
        if self._is_permanent and (chosen is None or chosen.host != self._host):
            spare = spares.take(None, excluded, self._payload)
        if spare is not None and chosen is not None:
            self._slot_allocator.release(chosen)
        return spare or chosen

    def _is_due_for_replacement(self) -> bool:
        waited = time.monotonic() - self._last_ran
        if not self._is_permanent or waited < self._options.replacement_delay:
            return False
        if not self._options.may_replace(self.broker_id):
            log.warning("%s, and it has records that nobody else can lead", self.absence_message)
            return False
        log.warning(
            "broker %s gets a new, empty directory: that on %s has not come back for %.0f s",
            self.broker_id,
            self._host,
            waited,
        )
        return True

    def _clear_refusals(self, executors: Iterable[ExecutorSlots]) -> None:
        """A changed list of executors makes refusals worth asking again."""
        ids = frozenset(executor.executor_id for executor in executors)
        if ids - self._known_executors and self._is_permanent:
            self._refused_by = frozenset()
        self._known_executors |= ids

    def _should_wait_for_host(self, executors: Iterable[ExecutorSlots]) -> bool:
        """After a loss the cluster manager usually starts an executor on the same host again."""
        recent = time.monotonic() - self._last_ran < HOST_RETURN_SECONDS_MAX
        away = self._host not in {executor.host for executor in executors}
        return self._registered and recent and away

    def _payload(self, executor: ExecutorSlots) -> dict[str, Any]:
        new = self._replacing or (self._new and not self._registered)
        return self._options.make_payload(executor, new)

    def _run_on(self, executor: ExecutorSlots) -> None:
        self._executor = executor
        job = Job(
            name=self.job_name,
            title=f"broker {self.broker_id}",
            purpose="runs until the cluster stops, and is started again when killed",
            payload=self._payload(executor),
            executor=executor,
        )
        log.info("%s goes to executor %s on %s", job.name, executor.executor_id, executor.host)
        try:
            report = self._engine.run(job)
        except JobLost as error:
            report = {"outcome": "lost", "error": str(error)}
        finally:
            self._slot_allocator.release(executor)
        self._handle_end(report, executor)

    def _run_in(self, spare: Spare) -> None:
        executor = spare.executor
        assert executor is not None
        self._executor, self._spare = executor, spare
        log.info("broker %s goes to %s on %s", self.broker_id, spare.name, executor.host)
        try:
            report = spare.result()
        except JobLost as error:
            report = {"outcome": "lost", "error": str(error)}
        finally:
            self._spare = None
        self._handle_end(report, executor)

    def _handle_end(self, report: Mapping[str, Any], executor: ExecutorSlots) -> None:
        if self._stopping.is_set():
            return
        outcome, error = report["outcome"], str(report.get("error", ""))
        log.warning("%s on executor %s: %s %s", self.job_name, executor.executor_id, outcome, error)
        if outcome == "elsewhere":
            return
        if outcome == "refused" and self._is_elsewhere(report):
            self._refused_by |= {executor.executor_id}
            return
        if not self._is_permanent:
            self.failure = error or f"its supervisor ended ({outcome})"
            return
        if outcome != "refused":
            self._missing = self._replacing = False
            self._last_ran = time.monotonic()
            self._host = executor.host
        with suppress(Exception):  # the session timeout fences it as well
            self._options.on_loss(self.broker_id, f"{outcome} {error}".strip())
        if outcome != "lost":
            self._pause()

    def _is_elsewhere(self, report: Mapping[str, Any]) -> bool:
        """Whether the directory has to be looked for on other executors."""
        kind = report.get("kind")
        return kind == "not_here" or (kind == "storage" and self._is_permanent)

    def _pause(self) -> None:
        self._retries += 1
        self._stopping.wait(min(RETRY_SECONDS_MAX, 0.5 * 2 ** min(self._retries, 10)))
