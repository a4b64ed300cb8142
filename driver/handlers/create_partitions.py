"""CreatePartitions (key 37) v0-3: adds partitions, placed by the controller or by the client."""

from sparklog.driver.handlers.node import Decide
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.refusals import refuse_create_partitions
from sparklog.wire.messages.create_partitions import CreatePartitionsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: CreatePartitionsRequest) -> Handled:
        return decide(request)

    return ApiHandler(
        api_key=CreatePartitionsRequest.API_KEY,
        min_version=CreatePartitionsRequest.MIN_VERSION,
        max_version=CreatePartitionsRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_create_partitions,
    )
