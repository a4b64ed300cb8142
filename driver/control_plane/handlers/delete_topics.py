"""DeleteTopics (key 20) v1-6: deletes topics by name, from v6 also by id.

Deviation: a request for many topics is decided in parts.  A topic that is named in one part and
given by its id in another is deleted, and reported as unknown for the second part.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.request_parts import (
    concatenated,
    decide_parts,
    split_into_parts,
)
from sparklog.service.error_responses import refuse_delete_topics, topics_to_delete
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: DeleteTopicsRequest) -> Slices[Handled]:
        topics = yield from topics_to_delete(request)
        parts = yield from split_into_parts(topics, _identity, lambda _: 1)
        requests = [replace(request, topics=part, topic_names=()) for part in parts]
        decided = decide_parts(decide, requests, refuse=refuse_delete_topics, merge=_merged)
        return (yield from decided)

    return ApiHandler(
        api_key=DeleteTopicsRequest.API_KEY,
        min_version=DeleteTopicsRequest.MIN_VERSION,
        max_version=DeleteTopicsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_delete_topics,
    )


def _identity(topic: DeleteTopicState) -> tuple[str | None, UUID | None]:
    return topic.name, topic.topic_id


def _merged(responses: Sequence[DeleteTopicsResponse]) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=concatenated(response.responses for response in responses)
    )
