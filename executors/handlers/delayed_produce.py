"""Delayed produces: answers that wait until the batches that they answer are safe.

Owns: which batches wait, the order in which they are looked at, and the deadline.  Must not know
how a batch was judged, or how an answer looks.

The batches that one write put into a partition become safe in their order, mostly together.  One
delayed operation and one timer stand for all of them.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import AckWait, Partition
from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.transport import PendingResponse, Reply
from sparklog.types import TopicPartition

BatchT = TypeVar("BatchT")


class DelayedProduce(ABC, Generic[BatchT]):
    """Batches that wait to be safe, by partition in the order of their offsets."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager
        self._waiting: dict[TopicPartition, deque[tuple[AckWait, BatchT]]] = {}

    @abstractmethod
    def _complete(self, batch: BatchT) -> None:
        """The batch is safe."""

    @abstractmethod
    def _refuse(self, batch: BatchT, error: KafkaError) -> None:
        """The batch does not become safe, or not in time."""

    def _finish(self) -> None:
        """No batch waits any more."""

    def begin_wait(self, timeout_ms: int, owner: Owner) -> None:
        """Wait for all batches that were added, ``timeout_ms`` at most."""
        self._replica_manager.delayed_operations.produces.watch(
            self, tuple(self._waiting), max(timeout_ms, 1) / 1000, owner
        )

    def try_complete(self, key: TopicPartition, size: int) -> bool:
        del size
        waiting = self._waiting.get(key)
        if waiting is not None:
            self._look_through(key, waiting)
            if not waiting:
                self._waiting.pop(key, None)
        if self._waiting:
            return False
        self._finish()
        return True

    def expire(self) -> None:
        for tp, waiting in self._waiting.items():
            late = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the append to {tp} was not safe in time"
            )
            self._refuse_all(waiting, late)
        self._finish()

    def cancel(self) -> None:
        for waiting in self._waiting.values():
            waiting.clear()
        self._waiting.clear()

    def _look_through(self, tp: TopicPartition, waiting: deque[tuple[AckWait, BatchT]]) -> None:
        try:
            partition = self._replica_manager.find(tp.topic, tp.partition)
            together = len(waiting) > 1 and _is_settled(partition, waiting[-1][0])
            while waiting and (together or partition.is_settled(waiting[0][0])):
                self._complete(waiting.popleft()[1])
        except KafkaError as error:
            self._refuse_all(waiting, error)

    def _refuse_all(self, waiting: deque[tuple[AckWait, BatchT]], error: KafkaError) -> None:
        while waiting:
            self._refuse(waiting.popleft()[1], error)


class DelayedRun(DelayedProduce[tuple[int, bytes, PendingResponse]]):
    """Requests for one partition each, of which each is answered as soon as its batch is safe.

    ``refuse`` makes the answer with an error for the request of a correlation id.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        topic_partition: TopicPartition,
        refuse: Callable[[int, KafkaError], Reply],
    ) -> None:
        super().__init__(replica_manager)
        self._topic_partition = topic_partition
        self._make_refusal = refuse
        self._batches = self._waiting[topic_partition] = deque()

    def add(self, wait: AckWait, correlation_id: int, answer: bytes) -> PendingResponse:
        """Add the batch behind those before it, of the same write.

        ``answer`` is sent once the batch is safe.
        """
        pending = PendingResponse()
        self._batches.append((wait, (correlation_id, answer, pending)))
        return pending

    def begin_wait(self, timeout_ms: int, owner: Owner) -> None:
        """Wait, if there is anything to wait for."""
        if not self.try_complete(self._topic_partition, 0):
            super().begin_wait(timeout_ms, owner)

    def _complete(self, batch: tuple[int, bytes, PendingResponse]) -> None:
        _, answer, pending = batch
        pending.complete((answer,))

    def _refuse(self, batch: tuple[int, bytes, PendingResponse], error: KafkaError) -> None:
        correlation_id, _, pending = batch
        pending.complete(self._make_refusal(correlation_id, error))


def _is_settled(partition: Partition, wait: AckWait) -> bool:
    """Whether the last of several batches is safe, and with it all of them."""
    try:
        return partition.is_settled(wait)
    except KafkaError:
        return False  # batches before it may be safe nevertheless
