"""DescribeLogDirs (key 35) v1-5 on a node without logs: no directories.

Tools ask every node that Metadata lists.
"""

from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


def handler() -> ApiHandler:
    def handle(
        _context: RequestContext, _request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse()

    return ApiHandler(
        api_key=DescribeLogDirsRequest.API_KEY,
        min_version=DescribeLogDirsRequest.MIN_VERSION,
        max_version=DescribeLogDirsRequest.MAX_VERSION,
        handle=handle,
    )
