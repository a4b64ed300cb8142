"""ListPartitionReassignments (key 46) v0: the reassignments in progress, from the image.

Partitions that do not exist, or are not being reassigned, are left out, as in Kafka.
"""

from collections.abc import Callable
from typing import Final

from sparklog.metadata import ClusterImage, TopicImage
from sparklog.service.error_responses import refuse_listed_reassignments
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import SLICE_UNITS, Slices
from sparklog.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

#: Partitions that are checked for one unit of work.
_PARTITIONS_PER_UNIT: Final = 4


def handler(image: Callable[[], ClusterImage]) -> ApiHandler:
    def handle(
        _context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> Slices[ListPartitionReassignmentsResponse]:
        topics = yield from _topics(image(), request)
        return ListPartitionReassignmentsResponse(topics=tuple(topics))

    return ApiHandler(
        api_key=ListPartitionReassignmentsRequest.API_KEY,
        min_version=ListPartitionReassignmentsRequest.MIN_VERSION,
        max_version=ListPartitionReassignmentsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_listed_reassignments,
    )


def _topics(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> Slices[list[OngoingTopicReassignment]]:
    wanted = yield from _wanted(image, request)
    found: list[OngoingTopicReassignment] = []
    spent = 0
    for name, numbers in wanted.items():
        topic = image.topic(name)
        spent += 1
        if topic is not None:
            spent += len(topic.partitions) // _PARTITIONS_PER_UNIT
            moving = _moving(topic, numbers)
            if moving:
                found.append(OngoingTopicReassignment(name=name, partitions=moving))
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    yield spent
    return found


def _wanted(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> Slices[dict[str, set[int] | None]]:
    """The requested partition numbers by topic; None means all partitions of the topic."""
    if request.topics is None:
        return dict.fromkeys(image.topics)
    wanted: dict[str, set[int] | None] = {}
    spent = 0
    for each in request.topics:
        numbers = wanted.setdefault(each.name, set())
        assert numbers is not None
        numbers.update(each.partition_indexes)
        spent += 1 + len(each.partition_indexes) // 16
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    yield spent
    return wanted


def _moving(
    topic: TopicImage, numbers: set[int] | None
) -> tuple[OngoingPartitionReassignment, ...]:
    return tuple(
        OngoingPartitionReassignment(
            partition_index=number,
            replicas=state.replicas,
            adding_replicas=state.adding,
            removing_replicas=state.removing,
        )
        for number, state in topic.partitions.items()
        if (state.adding or state.removing) and (numbers is None or number in numbers)
    )
