"""AlterPartition (key 56) v2-3: a leader proposes in-sync replicas, for members of the cluster.

v3 names the broker epoch of each in-sync replica (KIP-903); with v2 these epochs are not checked.
"""

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.messages.alter_partition import AlterPartitionRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: AlterPartitionRequest) -> Handled:
        return decide(request)

    return ApiHandler(
        api_key=AlterPartitionRequest.API_KEY,
        min_version=AlterPartitionRequest.MIN_VERSION,
        max_version=AlterPartitionRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        members_only=True,
    )
