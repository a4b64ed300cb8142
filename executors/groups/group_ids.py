"""The group that a request names, and the refusal of ids that no group can have.

Owns: where each message has its group id, and the form of INVALID_GROUP_ID in each response.  Must
not know which groups exist.  Kafka: ``GroupCoordinatorService``.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.offset_commit import commit_refusal
from sparklog.executors.groups.responses import join_refusal
from sparklog.executors.groups.texts import fits_record
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from sparklog.wire.protocol.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.protocol.schema import Request, Response

_CODE = ErrorCode.INVALID_GROUP_ID
#: Requests that an empty group id may have: those of consumers without a group's members.
_MAY_BE_EMPTY = (OffsetCommitRequest, OffsetFetchRequest)


def group_id_of(body: Request) -> str | None:
    """The group of a request; None for a request about several groups or all."""
    match body:
        case OffsetFetchRequest():
            return body.groups[0].group_id
    group_id: str | None = getattr(body, "group_id", None)
    return group_id


def refusal_of_group_id(request: CoordinatorRequest, group_id: str | None) -> Response | None:
    """INVALID_GROUP_ID in the form of the request's response; None for an id that can be."""
    if group_id is None:
        return None
    is_allowed = bool(group_id) or isinstance(request.body, _MAY_BE_EMPTY)
    if is_allowed and fits_record(group_id):
        return None
    return _REFUSALS[type(request.body)](request, request.body)


def _fetch_refusal(_request: CoordinatorRequest, body: OffsetFetchRequest) -> Response:
    groups = (
        OffsetFetchResponseGroup(group_id=each.group_id, error_code=_CODE) for each in body.groups
    )
    return OffsetFetchResponse(groups=tuple(groups))


_REFUSALS: Mapping[type[Request], Callable[[CoordinatorRequest, Any], Response]] = {
    JoinGroupRequest: lambda request, body: join_refusal(request.version, body.member_id, _CODE),
    SyncGroupRequest: lambda _, body: SyncGroupResponse(error_code=_CODE),
    HeartbeatRequest: lambda _, body: HeartbeatResponse(error_code=_CODE),
    LeaveGroupRequest: lambda _, body: LeaveGroupResponse(error_code=_CODE),
    OffsetCommitRequest: lambda _, body: commit_refusal(body, _CODE),
    OffsetFetchRequest: _fetch_refusal,
    OffsetDeleteRequest: lambda _, body: OffsetDeleteResponse(error_code=_CODE),
}
