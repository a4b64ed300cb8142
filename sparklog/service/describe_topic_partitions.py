"""DescribeTopicPartitions (key 75) v0: topics page by page, with their eligible replicas (KIP-966).

Topics are sorted by name; a request that names no topic gets all of them.  A cursor says where the
next page begins.  A page has at most ``max.request.partition.size.limit`` partitions, or fewer if
the client asks for fewer.  Deviation: all operations are reported as authorized, because there are
no ACLs.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, PartitionImage, TopicImage
from sparklog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.service.metadata import TOPIC_OPERATIONS
from sparklog.slices import SLICE_UNITS, Slices, in_slices
from sparklog.types import NO_NODE
from sparklog.wire.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
    TopicRequest,
)

#: Units of work for finding one topic, and for describing one partition.
_TOPIC_UNITS: Final = 4
_PARTITION_UNITS: Final = 4

#: Whether the replica (broker, topic id, partition) is known to be offline on an alive broker.
HasFailed: TypeAlias = Callable[[int, UUID, int], bool]


def handler(
    image: Callable[[], ClusterImage], partitions_max: int, has_failed: HasFailed
) -> ApiHandler:
    """``partitions_max`` limits the partitions of one response, whatever the client asks for."""

    def handle(
        _context: RequestContext, request: DescribeTopicPartitionsRequest
    ) -> Slices[DescribeTopicPartitionsResponse]:
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the cursor begins at partition {cursor.partition_index}",
            )
        limit = max(min(partitions_max, request.response_partition_limit), 1)
        return (yield from _page(image(), request, cursor or Cursor(), limit, has_failed))

    return ApiHandler(
        api_key=DescribeTopicPartitionsRequest.API_KEY,
        min_version=DescribeTopicPartitionsRequest.MIN_VERSION,
        max_version=DescribeTopicPartitionsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=_error_response,
    )


def _page(
    image: ClusterImage,
    request: DescribeTopicPartitionsRequest,
    start: Cursor,
    limit: int,
    has_failed: HasFailed,
) -> Slices[DescribeTopicPartitionsResponse]:
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    left = limit
    spent = 0
    for name in _names(image, request, start):
        spent += _TOPIC_UNITS
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
        if not left:
            return _ended(topics, ResponseCursor(topic_name=name))
        topic = image.topic(name)
        if topic is None:
            topics.append(_refused(name, _reason(name)))
            continue
        first = start.partition_index if name == start.topic_name else 0
        numbers = range(first, min(first + left, len(topic.partitions)))
        spent += len(numbers) * _PARTITION_UNITS
        topics.append(_topic(image, topic, numbers, has_failed))
        left -= len(numbers)
        if first + len(numbers) < len(topic.partitions):
            next_one = ResponseCursor(topic_name=name, partition_index=first + len(numbers))
            return _ended(topics, next_one)
    yield spent
    return _ended(topics, None)


def _names(
    image: ClusterImage, request: DescribeTopicPartitionsRequest, start: Cursor
) -> list[str]:
    names = {topic.name for topic in request.topics} or image.topics.keys()
    return sorted(name for name in names if name >= start.topic_name)


def _ended(
    topics: Iterable[DescribeTopicPartitionsResponseTopic], cursor: ResponseCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)


def _topic(
    image: ClusterImage, topic: TopicImage, numbers: range, has_failed: HasFailed
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            _partition(image, topic, number, topic.partitions[number], has_failed)
            for number in numbers
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    image: ClusterImage,
    topic: TopicImage,
    number: int,
    state: PartitionImage,
    has_failed: HasFailed,
) -> DescribeTopicPartitionsResponsePartition:
    """Describe one partition; ``last_known_elr`` has only replicas outside the ISR and ELR."""
    known = (*state.isr, *state.eligible)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=state.leader if image.is_alive(state.leader) else NO_NODE,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        eligible_leader_replicas=state.eligible,
        last_known_elr=tuple(r for r in state.last_known if r not in known),
        offline_replicas=tuple(
            replica
            for replica in state.replicas
            if not image.is_alive(replica) or has_failed(replica, topic.topic_id, number)
        ),
    )


def _reason(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _error_response(
    request: DescribeTopicPartitionsRequest, error: KafkaError
) -> Slices[DescribeTopicPartitionsResponse]:
    """The response with one error for all topics, without authorized operations."""

    def refused(topic: TopicRequest) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name)

    topics = yield from in_slices(refused, request.topics, 2)
    return _ended(topics, None)
