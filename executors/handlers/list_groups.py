"""ListGroups (key 16) v0-5: the groups that this broker coordinates, filtered by state and type.

Tools ask every node.  One shard that cannot answer fails the whole response, as in Kafka, because
the tool would show an incomplete list otherwise.  A shard that has just moved away is left out: its
new coordinator lists its groups.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers.group_requests import GroupRequests, results_of
from sparklog.service.group_error_responses import refuse_list_groups
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)


def handler(groups: GroupRequests) -> ApiHandler:
    async def handle(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
        listed: list[ListedGroup] = []
        numbers = groups.partitions
        for result in await results_of(
            [groups.try_submit(context, number, request) for number in numbers]
        ):
            if isinstance(result, KafkaError):
                if result.code is not ErrorCode.NOT_COORDINATOR:
                    raise result
            else:
                assert isinstance(result, ListGroupsResponse)
                if result.error_code:
                    return result
                listed += result.groups
        return ListGroupsResponse(groups=tuple(listed))

    return ApiHandler(
        api_key=ListGroupsRequest.API_KEY,
        min_version=ListGroupsRequest.MIN_VERSION,
        max_version=ListGroupsRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_list_groups,
    )
