"""Heartbeat (key 12) v0-4: a group member reports that it is alive, and learns of a rebalance."""

from sparklog.executors.coordinator import ResponseFuture
from sparklog.executors.handlers.group_requests import GroupRequests, require_group_id
from sparklog.executors.handlers.repeated_heartbeat import RepeatedHeartbeat
from sparklog.service.group_error_responses import refuse_heartbeat
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest


def handler(groups: GroupRequests) -> ApiHandler:
    def handle(context: RequestContext, request: HeartbeatRequest) -> ResponseFuture:
        require_group_id(request.group_id)
        return groups.submit(context, request.group_id, request)

    return ApiHandler(
        api_key=HeartbeatRequest.API_KEY,
        min_version=HeartbeatRequest.MIN_VERSION,
        max_version=HeartbeatRequest.MAX_VERSION,
        handle=handle,
        repeats=RepeatedHeartbeat(groups),
        error_response=refuse_heartbeat,
    )
