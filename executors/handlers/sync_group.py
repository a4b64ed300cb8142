"""SyncGroup (key 14) v0-5: give the members their assignments, or wait for one's own."""

from dataclasses import replace
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import ResponseFuture
from sparklog.executors.handlers.group_requests import GroupRequests, require_group_id
from sparklog.service.group_error_responses import refuse_sync_group
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest

_PROTOCOL_FROM: Final = 5


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(context: RequestContext, request: SyncGroupRequest) -> ResponseFuture:
        named = request.protocol_type is not None and request.protocol_name is not None
        if context.version >= _PROTOCOL_FROM and not named:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and name must not be null"
            )
        require_group_id(request.group_id)
        return groups.submit(context, request.group_id, request)

    return ApiHandler(
        api_key=SyncGroupRequest.API_KEY,
        min_version=SyncGroupRequest.MIN_VERSION,
        max_version=SyncGroupRequest.MAX_VERSION,
        items_max=MANY_ITEMS,  # an assignment for each member
        handle=handle,
        error_response=refuse_sync_group,
        keep=lambda request: replace(request, assignments=()),
    )
