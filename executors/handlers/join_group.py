"""JoinGroup (key 11) v0-9: become a member of a group, or rejoin it.

The response waits until the group has its members, and later requests of the connection wait behind
it, as in Kafka.
"""

from dataclasses import replace
from typing import Final

from sparklog.errors import KafkaError
from sparklog.executors.coordinator import CoordinatorResponse, ResponseFuture
from sparklog.executors.handlers.group_requests import GroupRequests, require_group_id
from sparklog.service.group_error_responses import refuse_join_group
from sparklog.service.handler import FEW_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

#: Versions from which a refusal has null for the name of the protocol.
_NULL_PROTOCOL_FROM: Final = 7


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(context: RequestContext, request: JoinGroupRequest) -> Handled:
        try:
            require_group_id(request.group_id)
            future = groups.submit(context, request.group_id, request)
        except KafkaError as error:
            return _refusal(context.version, request, error)
        return _answer(context.version, replace(request, protocols=()), future)

    return ApiHandler(
        api_key=JoinGroupRequest.API_KEY,
        min_version=JoinGroupRequest.MIN_VERSION,
        max_version=JoinGroupRequest.MAX_VERSION,
        items_max=FEW_ITEMS,  # the protocols of one member
        handle=handle,
        error_response=refuse_join_group,
        keep=lambda request: replace(request, protocols=()),
    )


async def _answer(
    version: int, request: JoinGroupRequest, future: ResponseFuture
) -> CoordinatorResponse:
    try:
        return await future
    except KafkaError as error:
        return _refusal(version, request, error)


def _refusal(version: int, request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    refusal = refuse_join_group(request, error)
    return replace(refusal, protocol_name=None) if version >= _NULL_PROTOCOL_FROM else refusal
