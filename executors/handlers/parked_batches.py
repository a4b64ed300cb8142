"""Answers to batches that one write put into a partition, until the batches are safe.

Owns: which of them wait, and their end.  Must not know how a batch was judged, or how an answer
looks.

They become safe in their order, mostly together: one waiter and one timer stand for all of them.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition_values import AckWait
from sparklog.executors.partitions import PartitionTable
from sparklog.executors.purgatory import Owner
from sparklog.transport import Parked, Reply
from sparklog.types import TopicPartition


class _Waiting(NamedTuple):
    """``taken``: the answer, once what it waits for has come."""

    wait: AckWait
    correlation_id: int
    taken: bytes
    answer: "asyncio.Future[Reply]"


class ParkedBatches:
    """Of one partition.  ``refuse`` answers the request of a correlation id with an error."""

    def __init__(
        self,
        table: PartitionTable,
        topic_partition: TopicPartition,
        refuse: Callable[[int, KafkaError], Reply],
    ) -> None:
        self._table = table
        self._topic_partition = topic_partition
        self._refuse = refuse
        self._waiting: deque[_Waiting] = deque()
        self._loop = asyncio.get_running_loop()

    def add(self, wait: AckWait, correlation_id: int, taken: bytes) -> Parked:
        """A batch behind those before it."""
        answer: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting.append(_Waiting(wait, correlation_id, taken, answer))
        return Parked(answer, _made)

    def park(self, timeout_s: float, owner: Owner) -> None:
        """Wait, if there is anything to wait for."""
        tp = self._topic_partition
        if not self.look(tp, 0):
            self._table.waits.writers.park(self, (tp,), timeout_s, owner)

    def look(self, key: TopicPartition, size: int) -> bool:
        del size
        waiting = self._waiting
        try:
            partition = self._table.find(key.topic, key.partition)
            while waiting and partition.is_settled(waiting[0].wait):
                first = waiting.popleft()
                if not first.answer.done():
                    first.answer.set_result((first.taken,))
        except KafkaError as error:
            self._fail(error)
        return not waiting

    def expire(self) -> None:
        tp = self._topic_partition
        self._fail(
            KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the append to {tp} was not safe in time")
        )

    def drop(self) -> None:
        for each in self._waiting:
            each.answer.cancel()
        self._waiting.clear()

    def _fail(self, error: KafkaError) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.answer.done():
                first.answer.set_result(self._refuse(first.correlation_id, error))


def _made(answer: "asyncio.Future[Reply]") -> Reply | None:
    return None if answer.cancelled() else answer.result()
