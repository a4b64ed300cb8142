"""DeleteTopics (key 20) v1-6: by name, from v6 also by id."""

from dataclasses import replace

from sparklog.driver.handlers.node import Decide
from sparklog.errors import KafkaError
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: DeleteTopicsRequest) -> Handled:
        return decide(replace(request, topics=_wanted(request), topic_names=()))

    return ApiHandler(
        api_key=DeleteTopicsRequest.API_KEY,
        min_version=DeleteTopicsRequest.MIN_VERSION,
        max_version=DeleteTopicsRequest.MAX_VERSION,
        handle=handle,
        error_response=_error_response,
    )


def _wanted(request: DeleteTopicsRequest) -> tuple[DeleteTopicState, ...]:
    """The topics in the form of v6."""
    return request.topics + tuple(DeleteTopicState(name=name) for name in request.topic_names)


def _error_response(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=tuple(
            DeletableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=error.code,
                error_message=error.message,
            )
            for topic in _wanted(request)
        )
    )
