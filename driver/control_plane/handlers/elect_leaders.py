"""ElectLeaders (key 43) v0-2: preferred (KIP-183) or unclean (KIP-460) elections on request.

The response to a request for all partitions leaves out those for which no election was needed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.request_parts import (
    decide_parts,
    fits_one_part,
    group_by_topic,
    split_into_parts,
)
from sparklog.errors import ErrorCode
from sparklog.metadata import ClusterImage
from sparklog.service.error_responses import refuse_elect_leaders
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices, run_through
from sparklog.wire.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)


def handler(decide: Decide, image: Callable[[], ClusterImage]) -> ApiHandler:
    def handle(_context: RequestContext, request: ElectLeadersRequest) -> Slices[Handled]:
        wanted = request.topic_partitions
        if wanted is None:
            wanted = tuple(
                TopicPartitions(topic=topic.name, partitions=tuple(topic.partitions))
                for topic in image().topics.values()
            )
        if fits_one_part(wanted):
            return decide(request)
        named = ((topic.topic, number) for topic in wanted for number in topic.partitions)
        parts = yield from split_into_parts(named, _identity, lambda _: 1)
        requests = [replace(request, topic_partitions=_part_topics(part)) for part in parts]
        merge = _merged if request.topic_partitions is not None else _merged_and_needed
        decided = decide_parts(decide, requests, refuse=refuse_elect_leaders, merge=merge)
        return (yield from decided)

    return ApiHandler(
        api_key=ElectLeadersRequest.API_KEY,
        min_version=ElectLeadersRequest.MIN_VERSION,
        max_version=ElectLeadersRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_elect_leaders,
    )


def _identity(partition: tuple[str, int]) -> tuple[str, int]:
    return partition


def _part_topics(partitions: Sequence[tuple[str, int]]) -> tuple[TopicPartitions, ...]:
    return run_through(
        group_by_topic(
            partitions, lambda topic, numbers: TopicPartitions(topic=topic, partitions=numbers)
        )
    )


def _merged(responses: Sequence[ElectLeadersResponse]) -> Slices[ElectLeadersResponse]:
    return _response(_results(responses))


def _merged_and_needed(responses: Sequence[ElectLeadersResponse]) -> Slices[ElectLeadersResponse]:
    return _response(
        (topic, result)
        for topic, result in _results(responses)
        if result.error_code != ErrorCode.ELECTION_NOT_NEEDED
    )


def _results(
    responses: Sequence[ElectLeadersResponse],
) -> Iterable[tuple[str, PartitionResult]]:
    for response in responses:
        for topic in response.replica_election_results:
            for result in topic.partition_result:
                yield topic.topic, result


def _response(results: Iterable[tuple[str, PartitionResult]]) -> Slices[ElectLeadersResponse]:
    topics = yield from group_by_topic(
        results, lambda topic, found: ReplicaElectionResult(topic=topic, partition_result=found)
    )
    return ElectLeadersResponse(replica_election_results=topics)
