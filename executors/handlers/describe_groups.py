"""DescribeGroups (key 15) v0-6: state, members and assignments of groups.

Deviation: all operations are reported as authorized, because there are no ACLs.
"""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from sparklog.errors import KafkaError
from sparklog.executors.handlers.group_requests import GroupRequests
from sparklog.executors.handlers.groups_by_shard import ask_shards, divide
from sparklog.service.group_error_responses import describe_error, refuse_describe_groups
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

#: All bits of ``AclOperation`` that apply to a group: read, delete, describe, describe and alter
#: configs.
GROUP_OPERATIONS: Final = sum(1 << bit for bit in (3, 6, 8, 10, 11))


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(
        context: RequestContext, request: DescribeGroupsRequest
    ) -> Slices[Awaitable[DescribeGroupsResponse]]:
        divided = yield from divide(groups, request.groups)
        return _answer(groups, context, request, divided)

    return ApiHandler(
        api_key=DescribeGroupsRequest.API_KEY,
        min_version=DescribeGroupsRequest.MIN_VERSION,
        max_version=DescribeGroupsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_describe_groups,
    )


async def _answer(
    groups: GroupRequests,
    context: RequestContext,
    request: DescribeGroupsRequest,
    divided: dict[int, list[str]],
) -> DescribeGroupsResponse:
    described: dict[str, DescribedGroup] = {}
    for group_ids, result in await ask_shards(
        groups, context, divided, lambda group_ids: replace(request, groups=group_ids)
    ):
        if isinstance(result, KafkaError):
            described |= {each: describe_error(each, result) for each in group_ids}
        else:
            assert isinstance(result, DescribeGroupsResponse)
            described |= {each.group_id: each for each in result.groups}
    found = [described[group_id] for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        found = [
            each if each.error_code else replace(each, authorized_operations=GROUP_OPERATIONS)
            for each in found
        ]
    return DescribeGroupsResponse(groups=tuple(found))
