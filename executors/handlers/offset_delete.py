"""OffsetDelete (key 47) v0: forget committed offsets of topics that a group does not read.

Partitions that the image does not have are refused one by one; the others go to the state machine.
An error of the group as a whole is the response's own, and then there are no partitions.

Deviation: a request for many partitions is decided in parts (``request_parts.py``), so a failure
may leave some of the offsets deleted.  The request can be repeated.
"""

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import ResponseFuture
from sparklog.executors.handlers.group_requests import (
    GroupRequests,
    ShardResult,
    require_group_id,
    results_of,
)
from sparklog.executors.handlers.request_parts import parts_of
from sparklog.service.group_error_responses import refuse_offset_delete
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices, in_groups, in_slices
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

#: Units of work for the partitions of a part, and for one.
_PART_UNITS: Final = 5_000
_PARTITION_UNITS: Final = 2


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(
        context: RequestContext, request: OffsetDeleteRequest
    ) -> Slices[Awaitable[Slices[OffsetDeleteResponse]]]:
        require_group_id(request.group_id)
        image, known = groups.image, set[TopicPartition]()

        def look(topic: OffsetDeleteRequestTopic) -> OffsetDeleteRequestTopic:
            found = image.topic(topic.name)
            numbers = () if found is None else found.partitions
            parts = tuple([p for p in topic.partitions if p.partition_index in numbers])
            known.update([TopicPartition(topic.name, p.partition_index) for p in parts])
            return replace(topic, partitions=parts)

        topics = yield from in_slices(look, request.topics, _PARTITION_UNITS)
        # A group that does not exist is to be refused, so the request goes there even if empty.
        number = groups.partition_of(request.group_id)
        futures: list[ResponseFuture] = []
        for part in tuple(parts_of(topics)) or ((),):
            futures.append(groups.try_submit(context, number, replace(request, topics=part)))
            yield _PART_UNITS
        return _answer(futures, request, known)

    return ApiHandler(
        api_key=OffsetDeleteRequest.API_KEY,
        min_version=OffsetDeleteRequest.MIN_VERSION,
        max_version=OffsetDeleteRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_offset_delete,
    )


async def _answer(
    futures: Sequence[ResponseFuture], request: OffsetDeleteRequest, known: set[TopicPartition]
) -> Slices[OffsetDeleteResponse]:
    return _respond(await results_of(futures), request, known)


def _respond(
    results: Sequence[ShardResult], request: OffsetDeleteRequest, known: set[TopicPartition]
) -> Slices[OffsetDeleteResponse]:
    """The response in the order of the request; without partitions when the group was refused."""
    codes: dict[TopicPartition, int] = {}
    for decided in results:
        if isinstance(decided, KafkaError):
            raise decided
        assert isinstance(decided, OffsetDeleteResponse)
        if decided.error_code:
            return decided
        for topic in decided.topics:
            for part in topic.partitions:
                codes[TopicPartition(topic.name, part.partition_index)] = part.error_code
        yield _PART_UNITS

    def responded(
        topic: OffsetDeleteRequestTopic, part: OffsetDeleteRequestPartition
    ) -> OffsetDeleteResponsePartition:
        tp = TopicPartition(topic.name, part.partition_index)
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if tp in known:
            code = codes.get(tp, int(ErrorCode.UNKNOWN_SERVER_ERROR))
        return OffsetDeleteResponsePartition(partition_index=tp.partition, error_code=code)

    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        responded,
        lambda topic, parts: OffsetDeleteResponseTopic(name=topic.name, partitions=parts),
        _PARTITION_UNITS,
    )
    return OffsetDeleteResponse(topics=topics)
