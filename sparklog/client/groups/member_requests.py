"""The requests of a group member, and the messages for a coordinator's refusals.

Owns: making JoinGroup, SyncGroup, Heartbeat and LeaveGroup from the values of a member, and the
members that a JoinGroup response names.  Must not know the state of the member, nor when it sends
a request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparklog.client.groups.consumer_protocol import (
    PROTOCOL_TYPE,
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from sparklog.client.groups.member_events import MemberSettings
from sparklog.errors import ErrorCode
from sparklog.types import MAX_INT32, TopicPartition
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member as its requests name it."""

    settings: MemberSettings
    member_id: str
    generation: int


def join_request(
    member: MemberView,
    topics: Iterable[str],
    owned: frozenset[TopicPartition],
    previous: tuple[frozenset[TopicPartition], int],
) -> JoinGroupRequest:
    """The JoinGroup request; ``previous`` is the last assignment with its generation (sticky)."""
    settings = member.settings

    def metadata(user_data: bytes | None) -> bytes:
        return encode_subscription(
            Subscription(
                topics=tuple(sorted(topics)),
                user_data=user_data,
                owned=owned,
                generation=member.generation,
                rack=settings.rack,
            )
        )

    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=int(settings.session_timeout_s * 1000),
        rebalance_timeout_ms=min(int(settings.max_poll_interval_s * 1000), MAX_INT32),
        member_id=member.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(
            JoinGroupRequestProtocol(name=each.name, metadata=metadata(each.user_data(*previous)))
            for each in settings.assignors
        ),
    )


def subscriptions_in(response: JoinGroupResponse) -> dict[str, Subscription]:
    """The subscriptions of a group's members, by member id.  Raises DecodeError."""
    return {
        each.member_id: decode_subscription(each.metadata, each.group_instance_id)
        for each in response.members
    }


def sync_request(
    member: MemberView, protocol: str, assignment: Mapping[str, Iterable[TopicPartition]]
) -> SyncGroupRequest:
    """The SyncGroup request; only the leader of the group sends an assignment."""
    return SyncGroupRequest(
        group_id=member.settings.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=tuple(
            SyncGroupRequestAssignment(
                member_id=member_id, assignment=encode_assignment(partitions)
            )
            for member_id, partitions in assignment.items()
        ),
    )


def heartbeat_request(member: MemberView) -> HeartbeatRequest:
    return HeartbeatRequest(
        group_id=member.settings.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.settings.group_instance_id,
    )


def leave_request(member: MemberView, reason: str) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=member.settings.group_id,
        member_id=member.member_id,
        members=(MemberIdentity(member_id=member.member_id, reason=reason),),
    )


def refusal(settings: MemberSettings, code: ErrorCode) -> str:
    """The message for a coordinator's refusal of this member."""
    name = f"the group {settings.group_id!r} refuses this member"
    if code == ErrorCode.FENCED_INSTANCE_ID:
        instance_id = settings.group_instance_id
        return f"{name}: another consumer uses the group_instance_id {instance_id!r}"
    if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        offered = ", ".join(each.name for each in settings.assignors)
        return f"{name}: its other members share none of the assignors {offered}"
    if code == ErrorCode.INVALID_SESSION_TIMEOUT:
        session_ms = int(settings.session_timeout_s * 1000)
        return f"{name}: the broker does not allow session_timeout_ms={session_ms}"
    return name
