"""Batches of produce requests that wait before they are appended, in queues.

Owns: the order of the batches of each queue, the copies of their bytes, and the bound of all bytes.
Must not know what a batch waits for: ``work`` takes the batches of a queue and gives outcomes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import Appended, Partition

Outcome: TypeAlias = Appended | KafkaError
OutcomeFuture: TypeAlias = asyncio.Future[Outcome]

logger = logging.getLogger(__name__)


class RequestTransaction(NamedTuple):
    """The transaction that a produce request names.

    Args:
        adds_partitions: the partitions become part of the transaction with their first batch
            (KIP-890, transaction version 2); otherwise the producer has added them before.
    """

    transactional_id: str
    adds_partitions: bool


def _new_outcome() -> OutcomeFuture:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedBatch:
    """A batch that waits.

    Args:
        records: a copy, because the memory of the request is reused.
        outcome: cancelled when nobody waits for it any more; the batch is not appended then.
    """

    records: bytes
    acks: int
    transaction: RequestTransaction | None
    outcome: OutcomeFuture = field(default_factory=_new_outcome)

    def give(self, outcome: Outcome) -> None:
        """Set the outcome, unless nobody waits for it."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


KeyT = TypeVar("KeyT", bound=Hashable)
BatchT = TypeVar("BatchT", bound=QueuedBatch)


class BatchQueue(Generic[KeyT, BatchT]):
    """The batches of one key; ``work`` takes them from the left until none is left."""

    __slots__ = ("_batches", "_queues", "key", "partition", "task")

    def __init__(
        self, queues: "BatchQueues[KeyT, BatchT]", key: KeyT, partition: Partition
    ) -> None:
        self.key = key
        self.partition = partition
        self.task: asyncio.Task[None]
        self._queues = queues
        self._batches: deque[BatchT] = deque()

    @property
    def first(self) -> BatchT | None:
        return self._batches[0] if self._batches else None

    def add(self, batch: BatchT) -> None:
        self._batches.append(batch)

    def take(self) -> BatchT:
        """Remove the first batch, whose outcome the caller gives."""
        batch = self._batches.popleft()
        self._queues.taken(batch)
        return batch


class BatchQueues(Generic[KeyT, BatchT]):
    """The queues of one broker, by key.

    Args:
        work: takes the batches of a queue in their order and gives each its outcome.
        bytes_max: bytes of batches that wait; further batches are refused.  A larger batch is taken
            when no other waits, because it would be refused for ever.
        full: makes that refusal from the bytes that wait.
    """

    def __init__(
        self,
        work: Callable[[BatchQueue[KeyT, BatchT]], Coroutine[None, None, None]],
        bytes_max: int,
        full: Callable[[int], KafkaError],
    ) -> None:
        self._work = work
        self._bytes_max = bytes_max
        self._full = full
        self._queues: dict[KeyT, BatchQueue[KeyT, BatchT]] = {}
        self._bytes = 0

    def __contains__(self, key: KeyT) -> bool:
        return key in self._queues

    def add(self, key: KeyT, partition: Partition, batch: BatchT) -> OutcomeFuture:
        """Queue the batch.  The future is the batch's outcome."""
        if self._bytes and self._bytes + len(batch.records) > self._bytes_max:
            batch.give(self._full(self._bytes))
            return batch.outcome
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = BatchQueue(self, key, partition)
            queue.task = asyncio.get_running_loop().create_task(self._work_through(queue))
        queue.add(batch)
        self._bytes += len(batch.records)
        return batch.outcome

    def taken(self, batch: BatchT) -> None:
        """A queue has given up this batch."""
        self._bytes -= len(batch.records)

    async def refuse_waiting(self, partition: Partition) -> None:
        """Refuse the batches that wait for a partition, which is about to be closed."""
        queues = [queue for queue in self._queues.values() if queue.partition is partition]
        for queue in queues:
            queue.task.cancel()
        if queues:
            await asyncio.wait([queue.task for queue in queues])
        for queue in queues:  # a task that was cancelled before it began has not done so
            self._end(queue, gone(partition))

    async def _work_through(self, queue: BatchQueue[KeyT, BatchT]) -> None:
        refusal = gone(queue.partition)
        try:
            while queue.first is not None:
                await self._work(queue)
        except Exception as error:
            tp = queue.partition.topic_partition
            logger.exception("batches for %s were not appended", tp)
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        finally:
            self._end(queue, refusal)

    def _end(self, queue: BatchQueue[KeyT, BatchT], refusal: KafkaError) -> None:
        """Refuse the batches that the queue still holds, and forget the queue."""
        if self._queues.get(queue.key) is queue:
            del self._queues[queue.key]
        while queue.first is not None:
            queue.take().give(refusal)


def gone(partition: Partition) -> KafkaError:
    """The refusal of a batch for a partition that is not hosted any more."""
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition} was closed meanwhile"
    )
