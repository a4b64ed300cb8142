"""What all handlers of group requests share: the way to a group's shard, and gone clients.

Owns: which partition a group belongs to, the context that a state machine gets of a request, and
the withdrawal of requests whose client has gone.  Must not know any particular request.

A client that closes its connection, or only stops sending, is gone, as in Kafka.  Its requests that
wait are withdrawn.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import (
    CoordinatorResponse,
    CoordinatorRuntime,
    ResponseFuture,
    TransactionalProducer,
)
from sparklog.executors.partition import ProducerEntry
from sparklog.metadata import ClusterImage
from sparklog.metadata.coordinators import coordinator_partition
from sparklog.service.gone_clients import cancel_with_client
from sparklog.service.handler import RequestContext
from sparklog.types import TopicPartition
from sparklog.wire.protocol.schema import Request, Response

#: The response of a shard, or the error in place of it.
ShardResult: TypeAlias = CoordinatorResponse | KafkaError


class GroupRequests:
    """The group coordinator, as the handlers of a broker see it."""

    def __init__(self, runtime: CoordinatorRuntime, image: Callable[[], ClusterImage]) -> None:
        self._runtime = runtime
        self._image = image

    @property
    def image(self) -> ClusterImage:
        """The cluster image as of now."""
        return self._image()

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions of the internal topic that this broker coordinates."""
        return sorted(self._runtime.partitions)

    def partition_of(self, group_id: str) -> int:
        """The partition of the internal topic that a group belongs to.

        Raises NOT_COORDINATOR: the topic does not exist.
        """
        number = coordinator_partition(self._image(), self._runtime.topic, group_id)
        if number is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"the topic {self._runtime.topic} does not exist"
            )
        return number

    def topic_partition(self, number: int) -> TopicPartition:
        """A partition of the internal topic."""
        return TopicPartition(self._runtime.topic, number)

    def producer_entry(self, partition: int, producer_id: int) -> ProducerEntry | None:
        """See ``CoordinatorRuntime.producer_entry``.  Raises KafkaError."""
        return self._runtime.producer_entry(partition, producer_id)

    def submit(self, context: RequestContext, group_id: str, body: Request) -> ResponseFuture:
        """Let the shard of a group decide on a request.  Raises KafkaError."""
        return self.submit_to(context, self.partition_of(group_id), body)

    def submit_to(
        self,
        context: RequestContext,
        partition: int,
        body: Request,
        producer: TransactionalProducer | None = None,
    ) -> ResponseFuture:
        """Let the shard of a partition decide on a request.  Raises KafkaError.

        With a ``producer``, the request belongs to its transaction.  The client's host has Java's
        form of an address, which Kafka's tools show.
        """
        future = self._runtime.submit(
            partition,
            body,
            version=context.version,
            client_id=context.client_id,
            client_host=f"/{context.connection.address}",
            producer=producer,
        )
        cancel_with_client(context.connection, future)
        return future

    def answer(self, group_id: str, body: Request) -> Response | None:
        """See ``CoordinatorRuntime.answer``.  Raises KafkaError."""
        return self._runtime.answer(self.partition_of(group_id), body)

    def try_submit(
        self,
        context: RequestContext,
        partition: int,
        body: Request,
        producer: TransactionalProducer | None = None,
    ) -> ResponseFuture:
        """As ``submit_to``; the future has an error that ``submit_to`` would raise."""
        try:
            return self.submit_to(context, partition, body, producer)
        except KafkaError as error:
            return failed(error)


def failed(error: KafkaError) -> ResponseFuture:
    """The future of a request that is refused."""
    future: ResponseFuture = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


def require_group_id(group_id: str) -> None:
    """Raises INVALID_GROUP_ID for an empty id, which only commits and fetches of offsets allow."""
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


async def results_of(futures: Iterable[ResponseFuture]) -> list[ShardResult]:
    """The responses of several shards, or their errors, in the order of the futures."""
    results: list[ShardResult] = []
    for result in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, KafkaError):
            raise result
        results.append(result)
    return results
