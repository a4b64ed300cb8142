"""DescribeLogDirs (key 35) v1-5 on the control plane: its journal, as a log directory without logs.

Tools ask every node that Metadata lists.  Kafka's tools take a response without any log directory
for a refusal (CLUSTER_AUTHORIZATION_FAILED).
"""

from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.wire.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


def handler(journal_url: str) -> ApiHandler:
    directory = DescribeLogDirsResult(log_dir=journal_url.removeprefix("file://"))

    def handle(
        _context: RequestContext, _request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse(results=(directory,))

    return ApiHandler(
        api_key=DescribeLogDirsRequest.API_KEY,
        min_version=DescribeLogDirsRequest.MIN_VERSION,
        max_version=DescribeLogDirsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
    )
