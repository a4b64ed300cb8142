"""AlterPartitionReassignments (key 45) v0-1: moves replicas, or cancels a move (KIP-455)."""

from sparklog.driver.handlers.node import Decide
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.refusals import refuse_reassignments
from sparklog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Handled:
        return decide(request)

    return ApiHandler(
        api_key=AlterPartitionReassignmentsRequest.API_KEY,
        min_version=AlterPartitionReassignmentsRequest.MIN_VERSION,
        max_version=AlterPartitionReassignmentsRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_reassignments,
    )
