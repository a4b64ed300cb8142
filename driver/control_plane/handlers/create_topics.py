"""CreateTopics (key 19) v2-7: every topic is created or refused on its own.

-1 partitions or replicas mean the cluster's default in every version (KIP-464 says from v4).  A
request may create ``REQUEST_PARTITIONS_MAX`` partitions, as in Kafka; beyond that all its topics
are refused (POLICY_VIOLATION).

Deviation: a request for many topics is decided in parts.  With ``validate_only`` no part takes the
topics of other parts into account.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sparklog.driver.control_plane.controller.assignments import TOPIC_PARTITIONS_MAX
from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.request_parts import (
    concatenated,
    decide_parts,
    split_into_parts,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.error_responses import refuse_create_topics
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

#: Most partitions, of all topics together, that one request may create.
REQUEST_PARTITIONS_MAX: Final = 10_000


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: CreateTopicsRequest) -> Slices[Handled]:
        parts = yield from split_into_parts(request.topics, _name, _partitions)
        if sum(_partitions(topic) for part in parts for topic in part) > REQUEST_PARTITIONS_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"the request creates more than {REQUEST_PARTITIONS_MAX} partitions; divide it",
            )
        requests = [replace(request, topics=part) for part in parts]
        decided = decide_parts(decide, requests, refuse=refuse_create_topics, merge=_merged)
        return (yield from decided)

    return ApiHandler(
        api_key=CreateTopicsRequest.API_KEY,
        min_version=CreateTopicsRequest.MIN_VERSION,
        max_version=CreateTopicsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_create_topics,
    )


def _name(topic: CreatableTopic) -> str:
    return topic.name


def _partitions(topic: CreatableTopic) -> int:
    """The weight of a topic: its partitions; 1 for the default and for numbers that are refused."""
    wanted = len(topic.assignments) or topic.num_partitions
    return wanted if 0 < wanted <= TOPIC_PARTITIONS_MAX else 1


def _merged(responses: Sequence[CreateTopicsResponse]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=concatenated(response.topics for response in responses))
