"""AlterPartitionReassignments (key 45) v0-1: begins or cancels reassignments (KIP-455)."""

from collections.abc import Sequence
from dataclasses import replace

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.request_parts import (
    decide_parts,
    fits_one_part,
    group_by_topic,
    split_into_parts,
)
from sparklog.errors import KafkaError
from sparklog.service.error_responses import refuse_reassignments
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices, run_through
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)


def handler(decide: Decide) -> ApiHandler:
    def handle(
        _context: RequestContext, request: AlterPartitionReassignmentsRequest
    ) -> Slices[Handled]:
        if fits_one_part(request.topics):
            return decide(request)
        named = ((topic.name, part) for topic in request.topics for part in topic.partitions)
        parts = yield from split_into_parts(named, _partition, _replicas)
        requests = [replace(request, topics=_part_topics(part)) for part in parts]
        return (yield from decide_parts(decide, requests, refuse=_refuse_all, merge=_merged))

    return ApiHandler(
        api_key=AlterPartitionReassignmentsRequest.API_KEY,
        min_version=AlterPartitionReassignmentsRequest.MIN_VERSION,
        max_version=AlterPartitionReassignmentsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_reassignments,
    )


def _partition(named: tuple[str, ReassignablePartition]) -> tuple[str, int]:
    topic, part = named
    return topic, part.partition_index


def _replicas(named: tuple[str, ReassignablePartition]) -> int:
    return 1 + len(named[1].replicas or ()) // 50


def _part_topics(
    part: Sequence[tuple[str, ReassignablePartition]],
) -> tuple[ReassignableTopic, ...]:
    return run_through(
        group_by_topic(part, lambda topic, parts: ReassignableTopic(name=topic, partitions=parts))
    )


def _refuse_all(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """Answer every partition of one part with the error."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=part.partition_index,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _merged(
    responses: Sequence[AlterPartitionReassignmentsResponse],
) -> Slices[AlterPartitionReassignmentsResponse]:
    results = (
        (topic.name, result)
        for response in responses
        for topic in response.responses
        for result in topic.partitions
    )
    topics = yield from group_by_topic(
        results, lambda topic, parts: ReassignableTopicResponse(name=topic, partitions=parts)
    )
    return replace(responses[0], responses=topics)
