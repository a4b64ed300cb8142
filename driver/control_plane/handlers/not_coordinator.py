"""The requests about groups (keys 8, 9, 11-16, 28, 42, 47) on node 0, which coordinates no group.

ListGroups is answered with no groups, because tools ask every node.  All others are answered with
NOT_COORDINATOR, upon which clients look for the coordinator.  Node 0 serves these APIs, in the
brokers' version ranges, because some clients take the APIs of the first node that they connect to
for those of the whole cluster.  The APIs share a file because they share this answer.
"""

from collections.abc import Callable
from typing import Any

from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.group_error_responses import (
    refuse_delete_groups,
    refuse_describe_groups,
    refuse_heartbeat,
    refuse_join_group,
    refuse_leave_group,
    refuse_list_groups,
    refuse_offset_commit,
    refuse_offset_delete,
    refuse_offset_fetch,
    refuse_sync_group,
    refuse_txn_offset_commit,
)
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.protocol.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.protocol.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest
from sparklog.wire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from sparklog.wire.protocol.schema import Request


def handlers() -> tuple[ApiHandler, ...]:
    return (
        _handler(OffsetCommitRequest, refuse_offset_commit),
        _handler(OffsetFetchRequest, refuse_offset_fetch),
        _handler(JoinGroupRequest, refuse_join_group),
        _handler(HeartbeatRequest, refuse_heartbeat),
        _handler(LeaveGroupRequest, refuse_leave_group),
        _handler(SyncGroupRequest, refuse_sync_group),
        _handler(DescribeGroupsRequest, refuse_describe_groups),
        _handler(ListGroupsRequest, refuse_list_groups, lambda _: ListGroupsResponse()),
        _handler(DeleteGroupsRequest, refuse_delete_groups),
        _handler(OffsetDeleteRequest, refuse_offset_delete),
        _handler(TxnOffsetCommitRequest, refuse_txn_offset_commit),
    )


def _handler(
    request_type: type[Request],
    refuse: Callable[[Any, KafkaError], Any],
    respond: Callable[[Any], Any] | None = None,
) -> ApiHandler:
    def handle(_context: RequestContext, request: Any) -> Handled:
        if respond is not None:
            return respond(request)
        return refuse(
            request,
            KafkaError(ErrorCode.NOT_COORDINATOR, "the control plane coordinates no groups"),
        )

    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=request_type.MIN_VERSION,
        max_version=request_type.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse,
    )
