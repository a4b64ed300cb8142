"""CreatePartitions (key 37) v0-3: adds partitions, placed by the controller or by the client."""

from collections.abc import Sequence
from dataclasses import replace

from sparklog.driver.control_plane.controller.assignments import TOPIC_PARTITIONS_MAX
from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.request_parts import (
    concatenated,
    decide_parts,
    split_into_parts,
)
from sparklog.service.error_responses import refuse_create_partitions
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: CreatePartitionsRequest) -> Slices[Handled]:
        parts = yield from split_into_parts(request.topics, _name, _partitions)
        requests = [replace(request, topics=part) for part in parts]
        decided = decide_parts(decide, requests, refuse=refuse_create_partitions, merge=_merged)
        return (yield from decided)

    return ApiHandler(
        api_key=CreatePartitionsRequest.API_KEY,
        min_version=CreatePartitionsRequest.MIN_VERSION,
        max_version=CreatePartitionsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_create_partitions,
    )


def _name(topic: CreatePartitionsTopic) -> str:
    return topic.name


def _partitions(topic: CreatePartitionsTopic) -> int:
    """The weight of a topic: its requested partitions; 1 if the number will be refused anyway."""
    return topic.count if 0 < topic.count <= TOPIC_PARTITIONS_MAX else 1


def _merged(responses: Sequence[CreatePartitionsResponse]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=concatenated(response.results for response in responses)
    )
