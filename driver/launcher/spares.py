"""The pool of spare supervisors, which hold slots for brokers that lose their executor.

Owns: the spares' jobs, each on a thread of its own, and the handover of a spare.  Must not know
the work that a spare is given.

Spark does not preempt: a job that is submitted again waits behind the tasks of queries.  A spare
supervisor runs already.  It is given a broker through the control plane, and another spare takes
its place in the pool.
"""

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from sparklog.driver.launcher.engines import Engine, Job, JobLost
from sparklog.driver.launcher.slot_allocator import SlotAllocator
from sparklog.driver.launcher.spark_internals import ExecutorSlots
from sparklog.errors import SparklogError

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
RETRY_SECONDS = 1.0
GIVE_AGAIN_SECONDS = 1.0
#: After this many attempts that find the spare not waiting, it is assumed to have its work.
UNANSWERED_MAX = 3
STOP_WORK: Mapping[str, Any] = {}

#: Makes the payload of a spare with this name on an executor.
MakeSparePayload = Callable[[str, ExecutorSlots], dict[str, Any]]
#: Gives a spare its work and returns whether the spare was waiting.  Raises SparklogError.
GiveWork = Callable[[str, bytes], bool]
#: Makes the payload of a supervisor on an executor.
MakeWork = Callable[[ExecutorSlots], Mapping[str, Any]]


class Spare:
    """One spare supervisor, which waits for a broker or runs the broker that it was given."""

    def __init__(self, name: str, pool: "SparePool") -> None:
        self.name = name
        self.executor: ExecutorSlots | None = None
        self.taken = False
        self._pool = pool
        self._work = b""
        self._report: dict[str, Any] | JobLost = JobLost("it has not run")
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the end of the job.  Returns whether it has ended."""
        return self._ended.wait(max(0.0, timeout))

    def give(self, work: Mapping[str, Any]) -> bool:
        """Give the spare its work.  Returns whether the spare was waiting and took the work.

        The secret is left out, because the spare has it already.
        """
        broker = {key: value for key, value in work.get("broker", {}).items() if key != "secret"}
        self._work = json.dumps({"broker": broker}).encode()
        with suppress(SparklogError):
            return self._pool.give_work(self.name, self._work)
        return False

    def result(self) -> dict[str, Any]:
        """Wait for the end of the spare's work.

        A control plane that dies forgets the work, so the work is given again until the spare does
        not wait any more.

        Returns:
            The report of the supervisor.

        Raises:
            JobLost: the job ended without a report.
        """
        silent = 0
        while not self._ended.wait(GIVE_AGAIN_SECONDS if silent < UNANSWERED_MAX else None):
            with suppress(SparklogError):
                silent = 0 if self._pool.give_work(self.name, self._work) else silent + 1
        if isinstance(self._report, JobLost):
            raise self._report
        return self._report

    def _run(self) -> None:
        executor = self._pool.find_executor()
        if executor is not None:
            self.executor = executor
            try:
                self._report = self._pool.run(self.name, executor)
            except JobLost as error:
                self._report = error
            except Exception as error:  # a lost connection to the JVM
                self._report = JobLost(f"{type(error).__name__}: {error}")
        self._ended.set()
        self._pool.handle_end(self)


class SparePool:
    """Keeps ``count`` spares waiting.  Every method may be called from any thread.

    Args:
        count: the number of spares.
        engine: runs the spares' supervisors.
        slot_allocator: chooses their executors.
        make_payload: makes the payload of a spare by its name and executor.
        give_work: sends work to a spare through the control plane.
    """

    def __init__(
        self,
        count: int,
        *,
        engine: Engine,
        slot_allocator: SlotAllocator,
        make_payload: MakeSparePayload,
        give_work: GiveWork,
    ) -> None:
        self.count = count
        self.give_work = give_work
        self._engine = engine
        self._slot_allocator = slot_allocator
        self._make_payload = make_payload
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._spares: list[Spare] = []
        self._stopping = threading.Event()

    @property
    def waiting(self) -> tuple[Spare, ...]:
        """The spares that were not handed over; some may not run on an executor yet."""
        with self._lock:
            return tuple(spare for spare in self._spares if not spare.taken)

    def start(self) -> None:
        """Begin to hold slots, without waiting for them."""
        for _ in range(self.count):
            self._add()

    def take(self, host: str | None, excluded: frozenset[str], make_work: MakeWork) -> Spare | None:
        """Hand over a waiting spare.

        Args:
            host: the host of the spare; None for any host.
            excluded: ids of executors whose spares must not be taken.
            make_work: makes the payload of a supervisor on the spare's executor.

        Returns:
            None when no such spare waits.
        """
        candidates = [
            (spare, spare.executor)
            for spare in self.waiting
            if spare.executor is not None
            and host in (None, spare.executor.host)
            and spare.executor.executor_id not in excluded
        ]
        for spare, executor in candidates:
            with self._lock:
                if spare.taken:
                    continue
                spare.taken = True
            if spare.give(make_work(executor)):
                self._add()
                return spare
            with self._lock:
                spare.taken = False
        return None

    def stop(self, seconds: float) -> None:
        """End all waiting spares; cancel those that do not end within ``seconds``."""
        self._stopping.set()
        spares = [spare for spare in self.waiting if not spare.has_ended]
        end = time.monotonic() + seconds
        unasked = [spare for spare in spares if not spare.give(STOP_WORK)]
        for spare in unasked:
            self._engine.cancel(spare.name)
        for spare in [spare for spare in spares if not spare.join(end - time.monotonic())]:
            self._engine.cancel(spare.name)

    # the calls of a spare's thread

    def find_executor(self) -> ExecutorSlots | None:
        """Wait for a free slot; None when the pool is being stopped."""
        while not self._stopping.is_set():
            with suppress(Exception):  # a lost connection to the JVM
                if self._engine.is_over():
                    return None
                chosen = self._slot_allocator.take(self._engine.executors(), None, frozenset())
                if chosen is not None:
                    return chosen
            self._stopping.wait(POLL_SECONDS)
        return None

    def run(self, name: str, executor: ExecutorSlots) -> dict[str, Any]:
        """Run a spare's job to its end and return its report.  Raises JobLost."""
        log.info("%s goes to executor %s on %s", name, executor.executor_id, executor.host)
        payload = self._make_payload(name, executor)
        try:
            return self._engine.run(
                Job(
                    name=name,
                    title=name,
                    purpose="takes over a broker that loses its executor or its job",
                    payload=payload,
                    executor=executor,
                )
            )
        finally:
            self._slot_allocator.release(executor)

    def handle_end(self, spare: Spare) -> None:
        """Remove a spare whose job has ended; replace it if it was not handed over."""
        with self._lock:
            self._spares.remove(spare)
        if not spare.taken and not self._stopping.wait(RETRY_SECONDS):
            self._add()

    def _add(self) -> None:
        with self._lock:
            if self._stopping.is_set():
                return
            spare = Spare(f"spare-{next(self._numbers)}", self)
            self._spares.append(spare)
            spare.start()
