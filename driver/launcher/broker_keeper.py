"""The keeper of one broker: it chooses an executor, submits a supervisor job, and resubmits it.

Owns: the sequence of one broker's jobs, on a thread of its own, and the decision to replace a
missing broker directory by a new one.  Must not know how jobs run (the engine does) nor what the
control plane decides.
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

#: How long the keeper waits for an executor on the former host before it tries other hosts.
HOST_RETURN_SECONDS_MAX = 15.0
POLL_SECONDS = 0.25
RETRY_SECONDS_MAX = 15.0


class MakePayload(Protocol):
    def __call__(self, executor: ExecutorSlots, new: bool) -> dict[str, Any]:
        """The supervisor's payload for a broker on this executor.

        Args:
            new: whether the broker may create its directory.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """The callbacks and limits of a keeper.

    Args:
        make_payload: makes the supervisor's payload for one executor.
        on_death: called with the broker id and a reason when a running broker has died.
        on_failure: called when the broker could not be started at all.
        may_replace: whether other brokers lead all partitions of a broker, so that an empty
            directory loses no records.
        replacement_delay: seconds until a missing directory may be replaced by an empty one.
    """

    make_payload: MakePayload
    on_death: Callable[[int, str], None]
    on_failure: Callable[[], None]
    may_replace: Callable[[int], bool]
    replacement_delay: float


class BrokerKeeper:
    """Keeps one broker running, on a thread of its own.

    ``failure`` is the reason why the broker could not be started at all; None otherwise.  Every
    method may be called from any thread.
    """

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
        """The name of the job that runs the broker: its own job, or that of a spare."""
        spare = self._spare
        return f"broker-{self.broker_id}" if spare is None else spare.name

    @property
    def is_registered(self) -> bool:
        """Whether the broker has registered since the cluster was started."""
        return self._registered

    @property
    def is_missing(self) -> bool:
        """Whether no executor had the broker's directory; the keeper goes on looking for it."""
        return self._missing

    @property
    def absence_message(self) -> str:
        """The text that tells users about a missing directory."""
        return (
            f"no executor has the directory of broker {self.broker_id}, which was last on "
            f"{self._host}; give the data_dir that it was started with"
        )

    @property
    def has_ended(self) -> bool:
        """Whether no job runs for this broker and none will be submitted."""
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def mark_registered(self) -> None:
        """Record that the broker is alive: it has a directory, and is restarted when it dies."""
        executor = self._executor
        if executor is not None:
            self._host = executor.host
        self._registered = self._is_permanent = True
        self._missing = False

    def accept_absence(self) -> None:
        """Let the cluster start without this broker until its directory is back or replaced."""
        self._is_permanent = True

    def ask_to_stop(self) -> None:
        """Do not submit another job once the present one has ended."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def join(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the end of the job.  Returns whether it has ended."""
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
                    self._run_in_spare(place)
                elif place is not None:
                    self._run_on_executor(place)
            except Exception as error:
                self._handle_error(error)
        if self.failure is not None and not self._stopping.is_set():
            self._options.on_failure()

    def _handle_error(self, error: Exception) -> None:
        """Handle an unexpected error of the engine, such as a lost connection to the JVM."""
        if self._stopping.is_set():
            return
        log.exception("the keeper of broker %s failed", self.broker_id)
        if self._is_permanent:
            self._pause()  # a broker that has run is brought back
        else:
            self.failure = f"{type(error).__name__}: {error}"

    def _find_place(self) -> ExecutorSlots | Spare | None:
        """Wait for an executor or a spare supervisor; None when the keeper has to stop."""
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
                self._replacing = False  # leadership may have changed when a slot becomes free
            self._stopping.wait(POLL_SECONDS)
        return None

    def _choose_place(self, executors: Iterable[ExecutorSlots]) -> ExecutorSlots | Spare | None:
        """Prefer the broker's last host, and there a spare, which need not queue for a slot."""
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
        """Forget earlier refusals when new executors have come."""
        ids = frozenset(executor.executor_id for executor in executors)
        if ids - self._known_executors and self._is_permanent:
            self._refused_by = frozenset()
        self._known_executors |= ids

    def _should_wait_for_host(self, executors: Iterable[ExecutorSlots]) -> bool:
        """Whether the cluster manager may be about to replace a lost executor on the same host."""
        recent = time.monotonic() - self._last_ran < HOST_RETURN_SECONDS_MAX
        away = self._host not in {executor.host for executor in executors}
        return self._registered and recent and away

    def _payload(self, executor: ExecutorSlots) -> dict[str, Any]:
        new = self._replacing or (self._new and not self._registered)
        return self._options.make_payload(executor, new)

    def _run_on_executor(self, executor: ExecutorSlots) -> None:
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

    def _run_in_spare(self, spare: Spare) -> None:
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
        if outcome == "refused" and self._may_be_elsewhere(report):
            self._refused_by |= {executor.executor_id}
            return
        if not self._is_permanent:
            self.failure = error or f"its supervisor ended ({outcome})"
            return
        if outcome != "refused":
            self._missing = self._replacing = False
            self._last_ran = time.monotonic()
            self._host = executor.host
        with suppress(Exception):  # otherwise the session timeout fences the broker
            self._options.on_death(self.broker_id, f"{outcome} {error}".strip())
        if outcome != "lost":
            self._pause()

    def _may_be_elsewhere(self, report: Mapping[str, Any]) -> bool:
        """Whether the directory may be on another executor."""
        kind = report.get("kind")
        return kind == "not_here" or (kind == "storage" and self._is_permanent)

    def _pause(self) -> None:
        self._retries += 1
        self._stopping.wait(min(RETRY_SECONDS_MAX, 0.5 * 2 ** min(self._retries, 10)))
