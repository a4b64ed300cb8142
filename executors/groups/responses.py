"""Responses of JoinGroup and SyncGroup, which several steps of a rebalance send.

Owns: their fields by version.  Must not know when they are sent.
"""

from sparklog.errors import ErrorCode
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.member import Member
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupResponse

#: JoinGroup versions from which a response without a protocol has null for its name.
_NULL_PROTOCOL_FROM = 7


def join_refusal(version: int, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        member_id=member_id,
        protocol_name=None if version >= _NULL_PROTOCOL_FROM else "",
    )


def join_response(group: ClassicGroup, member_id: str) -> JoinGroupResponse:
    """The current generation, with its members if the response is for the leader."""
    is_leader = group.is_leader(member_id)
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        member_id=member_id,
        members=_members(group) if is_leader else (),
    )


def replaced_join_response(
    group: ClassicGroup, member_id: str, old_leader_id: str, version: int
) -> JoinGroupResponse:
    """The response to a static member that took over an instance in a stable group.

    The assignment stays.  From version 9 a leader is told not to compute a new one (KIP-814).  In
    older versions the response names the old leader, so that the member takes itself for a
    follower.
    """
    if version < 9:
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=old_leader_id,
            member_id=member_id,
        )
    is_leader = group.is_leader(member_id)
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=is_leader,
        member_id=member_id,
        members=_members(group) if is_leader else (),
    )


def _members(group: ClassicGroup) -> tuple[JoinGroupResponseMember, ...]:
    return tuple(
        JoinGroupResponseMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            metadata=each.metadata_of(group.protocol_name),
        )
        for each in group.members.values()
    )


def sync_response(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
