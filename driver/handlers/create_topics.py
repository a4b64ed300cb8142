"""CreateTopics (key 19) v2-7: every topic is granted or refused on its own; one commit for all.

-1 partitions or replicas mean the cluster's default in every version (KIP-464 says from v4).
"""

from sparklog.driver.handlers.node import Decide
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.refusals import refuse_create_topics
from sparklog.wire.messages.create_topics import CreateTopicsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: CreateTopicsRequest) -> Handled:
        return decide(request)

    return ApiHandler(
        api_key=CreateTopicsRequest.API_KEY,
        min_version=CreateTopicsRequest.MIN_VERSION,
        max_version=CreateTopicsRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_create_topics,
    )
