"""Delayed produces: responses that wait until their batches are acknowledged.

Owns: which batches wait, the order in which they are checked, and the deadline.  Must not know
how a batch was judged, or how a response looks.

A batch is acknowledged when its partition has reached the required offset of the batch.  The
batches of one write are acknowledged in their order, mostly together, so they share one delayed
operation and one timer.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Partition, RequiredOffset
from sparklog.executors.purgatory import Owner
from sparklog.slices import Slices, in_slices
from sparklog.transport import EncodedResponse, PendingResponse
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.executors.replica_manager.replica_manager import ReplicaManager

BatchT = TypeVar("BatchT")
#: Units of work for checking one batch.
_CHECK_UNITS: Final = 3


class DelayedProduce(ABC, Generic[BatchT]):
    """Batches that wait to be acknowledged, by partition in the order of their offsets."""

    def __init__(self, replica_manager: "ReplicaManager") -> None:
        self._replica_manager = replica_manager
        self._waiting: dict[TopicPartition, deque[tuple[RequiredOffset, BatchT]]] = {}

    @abstractmethod
    def _complete(self, batch: BatchT) -> None:
        """Take the acknowledgement of a batch."""

    @abstractmethod
    def _refuse(self, batch: BatchT, error: KafkaError) -> None:
        """Take the failure of a batch that was not acknowledged, or not in time."""

    def _finish(self) -> None:
        """Send the response: no batch waits any more."""

    def begin_wait(self, timeout_ms: int, owner: Owner | None) -> None:
        """Wait for all batches that were added, ``timeout_ms`` at most.

        A partition may have reached the required offset of its batch since the append, while the
        records for another partition were validated.  No later change need come, so every partition
        is checked now.
        """
        for tp in tuple(self._waiting):
            if self.try_complete(tp, 0):
                return
        self._watch(timeout_ms, owner)

    def begin_long_wait(self, timeout_ms: int, owner: Owner | None) -> Slices[None]:
        """``begin_wait`` in slices.  Partitions that change between slices are watched already."""
        partitions = tuple(self._waiting)
        self._watch(timeout_ms, owner)
        check = self._replica_manager.delayed_operations.produces.check_and_complete
        yield from in_slices(check, partitions, _CHECK_UNITS)

    def _watch(self, timeout_ms: int, owner: Owner | None) -> None:
        self._replica_manager.delayed_operations.produces.watch(
            self, tuple(self._waiting), max(timeout_ms, 1) / 1000, owner
        )

    def try_complete(self, key: TopicPartition, size: int) -> bool:
        del size
        waiting = self._waiting.get(key)
        if waiting is not None:
            self._complete_reached(key, waiting)
            if not waiting:
                self._waiting.pop(key, None)
        if self._waiting:
            return False
        self._finish()
        return True

    def expire(self) -> None:
        for tp, waiting in self._waiting.items():
            late = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"the append to {tp} was not acknowledged in time"
            )
            self._refuse_all(waiting, late)
        self._finish()

    def cancel(self) -> None:
        for waiting in self._waiting.values():
            waiting.clear()
        self._waiting.clear()

    def _complete_reached(
        self, tp: TopicPartition, waiting: deque[tuple[RequiredOffset, BatchT]]
    ) -> None:
        try:
            partition = self._replica_manager.find(tp.topic, tp.partition)
            together = len(waiting) > 1 and _has_reached(partition, waiting[-1][0])
            while waiting and (together or partition.has_reached(waiting[0][0])):
                self._complete(waiting.popleft()[1])
        except KafkaError as error:
            self._refuse_all(waiting, error)

    def _refuse_all(self, waiting: deque[tuple[RequiredOffset, BatchT]], error: KafkaError) -> None:
        while waiting:
            self._refuse(waiting.popleft()[1], error)


class DelayedPartitionRequests(DelayedProduce[tuple[int, bytes, PendingResponse]]):
    """Requests for the same single partition; each is answered once its batch is acknowledged.

    ``refuse`` makes the error response to the request with a correlation id.
    """

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        topic_partition: TopicPartition,
        refuse: Callable[[int, KafkaError], EncodedResponse],
    ) -> None:
        super().__init__(replica_manager)
        self._make_refusal = refuse
        self._batches = self._waiting[topic_partition] = deque()

    def add(self, required: RequiredOffset, correlation_id: int, answer: bytes) -> PendingResponse:
        """Add a batch behind the earlier batches of the same write.

        ``answer`` is sent once the batch is acknowledged.
        """
        pending = PendingResponse()
        self._batches.append((required, (correlation_id, answer, pending)))
        return pending

    def _complete(self, batch: tuple[int, bytes, PendingResponse]) -> None:
        _, answer, pending = batch
        pending.complete((answer,))

    def _refuse(self, batch: tuple[int, bytes, PendingResponse], error: KafkaError) -> None:
        correlation_id, _, pending = batch
        pending.complete(self._make_refusal(correlation_id, error))


def _has_reached(partition: Partition, required: RequiredOffset) -> bool:
    """Whether the last of several batches is acknowledged, and with it all of them."""
    try:
        return partition.has_reached(required)
    except KafkaError:
        return False  # batches before it may be acknowledged nevertheless
