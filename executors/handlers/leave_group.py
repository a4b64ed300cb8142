"""LeaveGroup (key 13) v0-5: remove members from a group.

Before v3 a request names one member, and the response has its error at the top.  The state machine
sees the form of v3 (KIP-345).
"""

from collections.abc import Awaitable
from dataclasses import replace
from typing import Final

from sparklog.executors.coordinator import ResponseFuture
from sparklog.executors.handlers.group_requests import GroupRequests, require_group_id
from sparklog.service.group_error_responses import refuse_leave_group
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

_MEMBERS_FROM: Final = 3


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(
        context: RequestContext, request: LeaveGroupRequest
    ) -> Awaitable[LeaveGroupResponse] | ResponseFuture:
        require_group_id(request.group_id)
        if context.version >= _MEMBERS_FROM:
            return groups.submit(context, request.group_id, request)
        members = (MemberIdentity(member_id=request.member_id),)
        one_member = replace(request, members=members)
        return _with_error_at_top(groups.submit(context, request.group_id, one_member))

    return ApiHandler(
        api_key=LeaveGroupRequest.API_KEY,
        min_version=LeaveGroupRequest.MIN_VERSION,
        max_version=LeaveGroupRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_leave_group,
    )


async def _with_error_at_top(future: ResponseFuture) -> LeaveGroupResponse:
    """The response about one member, with that member's error as its own."""
    response = await future
    assert isinstance(response, LeaveGroupResponse)
    codes = [response.error_code, *(member.error_code for member in response.members)]
    return replace(response, error_code=next(filter(None, codes), 0))
