"""A fake engine, and fake calls to a control plane, for the launcher's tests."""

import json
import queue
import threading
from collections.abc import Iterable
from typing import Any

from sparklog.client.replica_admin import ReplicasDescription
from sparklog.driver.launcher.engines import Job, JobLost
from sparklog.driver.launcher.spark_internals import ExecutorSlots
from sparklog.errors import ConnectError, ErrorCode, KafkaError, StartError
from sparklog.types import Endpoint
from sparklog.wire.protocol.private import AssignedBroker, DrainedBroker


def executor(executor_id: str, host: str = "h1", slots: int = 2) -> ExecutorSlots:
    return ExecutorSlots(executor_id=executor_id, host=host, slots=slots)


def replicas(*brokers: int, leader: int) -> ReplicasDescription:
    """A partition with replicas on these brokers; the leader is -1 if none is given."""
    isr = () if leader < 0 else (leader,)
    return ReplicasDescription(leader=leader, leader_epoch=0, replicas=brokers, isr=isr)


class FakeEngine:
    """An engine whose jobs end when the test calls ``end(name, report or JobLost)``."""

    def __init__(self, *executors: ExecutorSlots) -> None:
        self.present = list(executors)
        self.jobs: list[Job] = []
        self.cancelled: list[str] = []
        self.slots = 1000
        self.over = False
        self.closed = False
        self._ends: dict[str, queue.SimpleQueue[dict[str, Any] | JobLost]] = {}
        self._lock = threading.Lock()

    def require_slots(self, brokers: int, spares: int) -> None:
        if brokers + spares > self.slots:
            raise StartError(f"{brokers} brokers are too many")

    def prepare(self) -> None:
        """Nothing is missing."""

    def executors(self) -> tuple[ExecutorSlots, ...]:
        return tuple(self.present)

    def run(self, job: Job) -> dict[str, Any]:
        ends = self._queue(job.name)
        self.jobs.append(job)
        end = ends.get(timeout=60)
        if isinstance(end, JobLost):
            raise end
        return end

    def end(self, name: str, how: dict[str, Any] | JobLost) -> None:
        self._queue(name).put(how)

    def cancel(self, name: str) -> None:
        self.cancelled.append(name)
        self.end(name, JobLost("cancelled"))

    def is_over(self) -> bool:
        return self.over

    def cancel_queries(self) -> None:
        """There are none."""

    def close(self) -> None:
        self.closed = True

    def where(self, name: str) -> list[str]:
        """The executors to which a job was submitted, in order."""
        return [job.executor.executor_id for job in self.jobs if job.name == name]

    def _queue(self, name: str) -> "queue.SimpleQueue[dict[str, Any] | JobLost]":
        with self._lock:
            return self._ends.setdefault(name, queue.SimpleQueue())


class FakeCalls:
    """Calls to a cluster whose brokers are alive once their job is submitted, and stop when asked.

    ``silent`` brokers do not register, ``deaf`` brokers do not agree to stop, and ``slow`` brokers
    agree but do not end.  ``stale`` brokers are alive until they are reported lost, as after a kill
    of the driver.  With ``assigns_no_more`` only the requested number is assigned.
    """

    def __init__(self, engine: FakeEngine, brokers: tuple[AssignedBroker, ...]) -> None:
        self._engine = engine
        self._brokers = brokers
        self.silent: set[int] = set()
        self.deaf: set[int] = set()
        self.slow: set[int] = set()
        self.stale: set[int] = set()
        self.controller_is_away = False
        self.assigns_no_more = False
        self.asking_spares: set[str] = set()
        self.work: dict[str, Any] = {}
        self.draining: list[tuple[int, ...]] = []
        self.marked: set[int] = set()
        self.left: list[int] = []
        self.forgotten: list[int] = []
        self.partitions: list[ReplicasDescription] = []
        self.reported_deaths: list[int] = []
        self.asked: list[int] = []
        self.closed = False

    def assign_brokers(self, count: int) -> tuple[AssignedBroker, ...]:
        if self.controller_is_away:
            raise ConnectError("nobody listens")
        assert count <= len(self._brokers)
        return self._brokers[:count] if self.assigns_no_more else self._brokers

    def report_broker_deaths(self, broker_ids: Iterable[int]) -> None:
        if self.controller_is_away:
            raise ConnectError("nobody listens")
        self.reported_deaths += broker_ids

    def alive_brokers(self) -> dict[int, Endpoint]:
        if self.controller_is_away:
            raise ConnectError("nobody listens")
        names = {job.name for job in self._engine.jobs if not job.name.startswith("spare-")}
        ids = {int(name.removeprefix("broker-")) for name in names}
        alive = (ids - self.silent) | (self.stale - set(self.reported_deaths))
        return {broker_id: Endpoint("h", broker_id) for broker_id in alive}

    def give_work(self, spare: str, work: bytes) -> bool:
        """Only ``asking_spares`` take work; a spare that is told to stop ends."""
        if spare not in self.asking_spares:
            return False
        self.asking_spares.remove(spare)
        self.work[spare] = json.loads(work)["broker"]
        if not self.work[spare]:
            self._engine.end(spare, {"outcome": "stopped"})
        return True

    def drain_brokers(
        self, broker_ids: Iterable[int], cancel: bool = False
    ) -> tuple[DrainedBroker, ...]:
        """``left`` has the partitions left at each call; ``marked`` brokers are draining."""
        if self.controller_is_away:
            raise ConnectError("nobody listens")
        wanted = tuple(broker_ids)
        if not wanted:
            return tuple(DrainedBroker(broker_id=i) for i in sorted(self.marked))
        self.draining.append(() if cancel else wanted)
        self.marked = self.marked - {*wanted} if cancel else self.marked | {*wanted}
        left = self.left.pop(0) if self.left else 0
        return tuple(DrainedBroker(broker_id=i, partitions_left=left) for i in wanted)

    def unregister_broker(self, broker_id: int) -> None:
        if broker_id not in self.asked + self.reported_deaths:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "it is alive; stop it first")
        self.forgotten.append(broker_id)
        self.marked.discard(broker_id)

    def partitions_of(self, broker_id: int) -> tuple[ReplicasDescription, ...]:
        return tuple(each for each in self.partitions if broker_id in each.replicas)

    def stop_nodes(self, nodes: tuple[Endpoint, ...], reason: str) -> tuple[Endpoint, ...]:
        assert reason
        agreed = tuple(node for node in nodes if node.port not in self.deaf)
        for node in agreed:
            self.asked.append(node.port)
            if node.port not in self.slow:
                self._engine.end(f"broker-{node.port}", {"outcome": "stopped"})
        return agreed

    def close(self) -> None:
        self.closed = True
