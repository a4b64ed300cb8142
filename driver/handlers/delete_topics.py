"""DeleteTopics (key 20) v1-6: by name, from v6 also by id."""

from dataclasses import replace

from sparklog.driver.handlers.node import Decide
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.refusals import refuse_delete_topics, topics_to_delete
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: DeleteTopicsRequest) -> Handled:
        return decide(replace(request, topics=topics_to_delete(request), topic_names=()))

    return ApiHandler(
        api_key=DeleteTopicsRequest.API_KEY,
        min_version=DeleteTopicsRequest.MIN_VERSION,
        max_version=DeleteTopicsRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_delete_topics,
    )
