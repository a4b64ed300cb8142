"""The error responses of the requests about groups, for brokers and the control plane.

Owns: the responses that answer a whole request, or every item of it, with one error, in every
version.  Must not know why a request is refused.

As in Kafka, records that are too large for the coordinator's log are an UNKNOWN_SERVER_ERROR for
all requests but OffsetCommit, which has an error code of its own for them.
"""

from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.service.error_responses import REFUSAL_UNITS
from sparklog.slices import Slices, in_groups, in_slices
from sparklog.types import NO_OFFSET
from sparklog.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
)
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
#: Consumers before 3.9 retry NOT_COORDINATOR and not COORDINATOR_NOT_AVAILABLE when they fetch
#: offsets, so Kafka answers the former (``GroupCoordinatorService.handleOffsetFetchException``).
_OFFSET_FETCH_CODES: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_COORDINATOR,
}


def group_error_code(error: KafkaError) -> ErrorCode:
    """The error code for the client of a group."""
    return ErrorCode.UNKNOWN_SERVER_ERROR if error.code in _TOO_LARGE else error.code


def refuse_join_group(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=group_error_code(error), member_id=request.member_id, protocol_name=""
    )


def refuse_sync_group(_request: SyncGroupRequest, error: KafkaError) -> SyncGroupResponse:
    """While a coordinator loads, the member joins again: Java's consumer knows no such error."""
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    return SyncGroupResponse(error_code=group_error_code(error))


def refuse_heartbeat(_request: HeartbeatRequest, error: KafkaError) -> HeartbeatResponse:
    """While a coordinator loads, heartbeats succeed, as in Kafka: members need not rejoin."""
    if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=group_error_code(error))


def refuse_leave_group(request: LeaveGroupRequest, error: KafkaError) -> LeaveGroupResponse:
    """Without the group, every member is unknown; before v3 there is one member, at the top."""
    code = group_error_code(error)
    if code is ErrorCode.UNKNOWN_MEMBER_ID and request.members:
        return LeaveGroupResponse(
            members=tuple(
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=code,
                )
                for member in request.members
            )
        )
    return LeaveGroupResponse(error_code=code)


def refuse_describe_groups(
    request: DescribeGroupsRequest, error: KafkaError
) -> Slices[DescribeGroupsResponse]:
    def refused(group_id: str) -> DescribedGroup:
        return describe_error(group_id, error)

    groups = yield from in_slices(refused, dict.fromkeys(request.groups), REFUSAL_UNITS)
    return DescribeGroupsResponse(groups=tuple(groups))


def describe_error(group_id: str, error: KafkaError) -> DescribedGroup:
    """The description of a group that could not be described."""
    return DescribedGroup(
        group_id=group_id, error_code=group_error_code(error), error_message=error.message
    )


def refuse_list_groups(_request: ListGroupsRequest, error: KafkaError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=group_error_code(error))


def refuse_delete_groups(
    request: DeleteGroupsRequest, error: KafkaError
) -> Slices[DeleteGroupsResponse]:
    def refused(group_id: str) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_id, error_code=group_error_code(error))

    results = yield from in_slices(refused, dict.fromkeys(request.groups_names), REFUSAL_UNITS)
    return DeleteGroupsResponse(results=tuple(results))


def refuse_offset_delete(_request: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=group_error_code(error))


def refuse_offset_commit(
    request: OffsetCommitRequest, error: KafkaError
) -> Slices[OffsetCommitResponse]:
    code = commit_error_code(error)
    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, part: OffsetCommitResponsePartition(
            partition_index=part.partition_index, error_code=code
        ),
        lambda topic, parts: OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=parts
        ),
        REFUSAL_UNITS,
    )
    return OffsetCommitResponse(topics=topics)


def refuse_txn_offset_commit(
    request: TxnOffsetCommitRequest, error: KafkaError
) -> Slices[TxnOffsetCommitResponse]:
    code = commit_error_code(error)
    topics = yield from in_groups(
        request.topics,
        lambda topic: topic.partitions,
        lambda _, part: TxnOffsetCommitResponsePartition(
            partition_index=part.partition_index, error_code=code
        ),
        lambda topic, parts: TxnOffsetCommitResponseTopic(name=topic.name, partitions=parts),
        REFUSAL_UNITS,
    )
    return TxnOffsetCommitResponse(topics=topics)


def commit_error_code(error: KafkaError) -> ErrorCode:
    """The error code of a partition whose offset was not committed.

    Deviation: Kafka from 4.0 on answers a commit that is too large with UNKNOWN_SERVER_ERROR.
    INVALID_COMMIT_OFFSET_SIZE, the answer of earlier versions, tells the user what is wrong.
    """
    if error.code in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error.code


def refuse_offset_fetch(
    request: OffsetFetchRequest, error: KafkaError
) -> Slices[OffsetFetchResponse]:
    """The error per group from v8 on, at the top before, and in v1 in every partition."""
    code = offset_fetch_error_code(error)

    def refused(group_id: str) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=code)

    group_ids = dict.fromkeys(group.group_id for group in request.groups)
    groups = yield from in_slices(refused, group_ids, REFUSAL_UNITS)
    topics = yield from in_groups(
        request.topics or (),
        lambda topic: topic.partition_indexes,
        lambda _, number: OffsetFetchResponsePartition(
            partition_index=number, committed_offset=NO_OFFSET, metadata="", error_code=code
        ),
        lambda topic, parts: OffsetFetchResponseTopic(name=topic.name, partitions=parts),
        REFUSAL_UNITS,
    )
    return OffsetFetchResponse(error_code=code, topics=topics, groups=tuple(groups))


def offset_fetch_error_code(error: KafkaError) -> ErrorCode:
    """The error code of a group whose offsets were not fetched."""
    return _OFFSET_FETCH_CODES.get(error.code, group_error_code(error))
