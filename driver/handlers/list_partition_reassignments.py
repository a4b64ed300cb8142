"""ListPartitionReassignments (key 46) v0: which partitions have moving replicas, from the image.

What does not exist, or does not move, is left out of the answer, as Kafka does it.
"""

from collections.abc import Callable, Iterator

from sparklog.metadata import ClusterImage, TopicImage
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.service.refusals import refuse_listed_reassignments
from sparklog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handler(image: Callable[[], ClusterImage]) -> ApiHandler:
    def handle(
        _context: RequestContext, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        return ListPartitionReassignmentsResponse(topics=tuple(_topics(image(), request)))

    return ApiHandler(
        api_key=ListPartitionReassignmentsRequest.API_KEY,
        min_version=ListPartitionReassignmentsRequest.MIN_VERSION,
        max_version=ListPartitionReassignmentsRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_listed_reassignments,
    )


def _topics(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> Iterator[OngoingTopicReassignment]:
    wanted: dict[str, set[int] | None] = dict.fromkeys(image.topics)
    if request.topics is not None:
        wanted = {}
        for each in request.topics:
            wanted[each.name] = (wanted.get(each.name) or set()) | set(each.partition_indexes)
    for name, numbers in wanted.items():
        topic = image.topic(name)
        moving = tuple(_moving(topic, numbers)) if topic is not None else ()
        if moving:
            yield OngoingTopicReassignment(name=name, partitions=moving)


def _moving(topic: TopicImage, numbers: set[int] | None) -> Iterator[OngoingPartitionReassignment]:
    for number, state in topic.partitions.items():
        if (numbers is None or number in numbers) and (state.adding or state.removing):
            yield OngoingPartitionReassignment(
                partition_index=number,
                replicas=state.replicas,
                adding_replicas=state.adding,
                removing_replicas=state.removing,
            )
