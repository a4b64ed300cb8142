"""Responses of a coordinator that wait until what they show is replicated.

Owns: the futures of these responses, which complete when the high watermark has passed the records
behind them.  Must not know what the responses say, or when records are appended.

The wait is that of a produce request with acks=all (``DelayedProduce``).  A response that waits too
long is replaced by COORDINATOR_NOT_AVAILABLE; the records behind it stay.
"""

import asyncio
from collections import deque
from typing import TypeAlias

from sparklog.errors import KafkaError
from sparklog.executors.coordinator.operation_errors import operation_error
from sparklog.executors.coordinator.state_machine import CoordinatorResponse
from sparklog.executors.partition import RequiredOffset
from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import DelayedProduce, ReplicaManager
from sparklog.types import TopicPartition

ResponseFuture: TypeAlias = asyncio.Future[CoordinatorResponse]
#: A request's future, and the response or error that it is completed with.
CoordinatorAnswer: TypeAlias = tuple[ResponseFuture, CoordinatorResponse | KafkaError]


class ResponseOwner(Owner):
    """A shard, as the owner of its responses that wait."""

    def __init__(self) -> None:
        super().__init__()
        self._error: KafkaError | None = None

    @property
    def error(self) -> KafkaError | None:
        """The error that ended the shard."""
        return self._error

    def refuse_all(self, replica_manager: ReplicaManager, error: KafkaError) -> None:
        """Refuse every response that waits; whether its records stay is not known."""
        self._error = error
        self.expire(replica_manager.delayed_operations.produces)


class DelayedResponses(DelayedProduce[CoordinatorAnswer]):
    """Responses of one partition in the order of the offsets that they wait for."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        topic_partition: TopicPartition,
        owner: ResponseOwner,
    ) -> None:
        super().__init__(replica_manager)
        self._owner = owner
        self._answers: deque[tuple[RequiredOffset, CoordinatorAnswer]] = deque()
        self._waiting[topic_partition] = self._answers

    def add(self, wait: RequiredOffset, answer: CoordinatorAnswer) -> None:
        self._answers.append((wait, answer))

    def complete_or_wait(self, timeout_ms: int) -> None:
        """Complete the responses that are due, and let the others wait."""
        if self._answers:
            self.begin_wait(timeout_ms, self._owner)

    def expire(self) -> None:
        if self._owner.error is None:
            super().expire()
        else:
            self._refuse_all(self._answers, self._owner.error)

    def _complete(self, batch: CoordinatorAnswer) -> None:
        respond(*batch)

    def _refuse(self, batch: CoordinatorAnswer, error: KafkaError) -> None:
        respond(batch[0], operation_error(error))


def respond(future: ResponseFuture, response: CoordinatorResponse | KafkaError) -> None:
    """Complete the future of a request, unless its client has gone."""
    if future.done():
        return
    if isinstance(response, KafkaError):
        # Each future gets an exception of its own, because raising adds to its traceback.
        future.set_exception(KafkaError(response.code, response.message))
    else:
        future.set_result(response)
