"""Answers to batches that one write put into a partition, until the batches are safe.

Owns: which of them wait, and their end.  Must not know how a batch was judged, or how an answer
looks.

They become safe in their order, mostly together: one waiter and one timer stand for all of them.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition import AckWait, Partition
from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.transport import PendingResponse, Reply
from sparklog.types import TopicPartition


class _Waiting(NamedTuple):
    """``taken``: the answer, once what it waits for has come."""

    wait: AckWait
    correlation_id: int
    taken: bytes
    response: PendingResponse


class ParkedBatches:
    """Of one partition.  ``refuse`` answers the request of a correlation id with an error."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        topic_partition: TopicPartition,
        refuse: Callable[[int, KafkaError], Reply],
    ) -> None:
        self._replica_manager = replica_manager
        self._topic_partition = topic_partition
        self._refuse = refuse
        self._waiting: deque[_Waiting] = deque()

    def add(self, wait: AckWait, correlation_id: int, taken: bytes) -> PendingResponse:
        """A batch behind those before it, of the same write."""
        response = PendingResponse()
        self._waiting.append(_Waiting(wait, correlation_id, taken, response))
        return response

    def park(self, timeout_s: float, owner: Owner) -> None:
        """Wait, if there is anything to wait for."""
        tp = self._topic_partition
        if not self.look(tp, 0):
            self._replica_manager.delayed_operations.writers.park(self, (tp,), timeout_s, owner)

    def look(self, key: TopicPartition, size: int) -> bool:
        del size
        waiting = self._waiting
        try:
            partition = self._replica_manager.find(key.topic, key.partition)
            together = _is_settled(partition, waiting[-1].wait)
            while waiting and (together or partition.is_settled(waiting[0].wait)):
                _, _, taken, response = waiting.popleft()
                response.complete((taken,))
        except KafkaError as error:
            self._fail(error)
        return not waiting

    def expire(self) -> None:
        tp = self._topic_partition
        self._fail(
            KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the append to {tp} was not safe in time")
        )

    def drop(self) -> None:
        self._waiting.clear()

    def _fail(self, error: KafkaError) -> None:
        while self._waiting:
            _, correlation_id, _, response = self._waiting.popleft()
            response.complete(self._refuse(correlation_id, error))


def _is_settled(partition: Partition, wait: AckWait) -> bool:
    """Whether the last of several batches is safe, and with it all of them."""
    try:
        return partition.is_settled(wait)
    except KafkaError:
        return False  # those before it may be safe nevertheless
