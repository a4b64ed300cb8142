"""Heartbeat and LeaveGroup: members that live, and members that go.

Owns: the decisions on Heartbeat and LeaveGroup, which the handlers give the form of version 3, with
members.  Must not know how a rebalance goes
on.  Kafka: ``classicGroupHeartbeat`` and ``classicGroupLeave`` of ``GroupMetadataManager``.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.group_store import GroupStore
from sparklog.executors.groups.rebalance import Rebalances
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)


class Membership:
    """Decides on Heartbeat and LeaveGroup requests."""

    __slots__ = ("_groups", "_rebalances")

    def __init__(self, groups: GroupStore, rebalances: Rebalances) -> None:
        self._groups = groups
        self._rebalances = rebalances

    def heartbeat(
        self, request: CoordinatorRequest, body: HeartbeatRequest, draft: DecisionDraft
    ) -> None:
        """Answer at once: a heartbeat shows nothing that a new coordinator could take back."""
        response = self.take_heartbeat(body, draft.now.monotonic_ms)
        draft.respond(request.request_id, response, at_once=True)

    def take_heartbeat(self, body: HeartbeatRequest, now_ms: int) -> HeartbeatResponse:
        """Restart the session of a member, and tell it of a rebalance or that it is refused."""
        try:
            code = self._take_heartbeat(body, now_ms)
        except KafkaError as error:
            code = error.code
        return HeartbeatResponse(error_code=code)

    def _take_heartbeat(self, body: HeartbeatRequest, now_ms: int) -> ErrorCode:
        group = self._groups.find(body.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.require_member(body.member_id, body.group_instance_id)
        if body.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalances.restart_session(member, now_ms)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, request: CoordinatorRequest, body: LeaveGroupRequest, draft: DecisionDraft
    ) -> None:
        """Remove members, named by their id, their instance id, or both."""
        named = body.members
        group = self._groups.find(body.group_id)
        codes = [self._remove(group, each, draft) for each in named]
        if group is not None and ErrorCode.NONE in codes and group.state is not GroupState.EMPTY:
            self._rebalances.prepare_or_complete(group, draft)
        draft.respond(request.request_id, _leave_response(named, codes))

    def _remove(
        self, group: ClassicGroup | None, named: MemberIdentity, draft: DecisionDraft
    ) -> ErrorCode:
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        instance_id = named.group_instance_id
        if named.member_id in group.pending_joins:
            self._rebalances.end_pending_member(group, named.member_id)
            return ErrorCode.NONE
        # An administrator names the instance alone.
        member_id = named.member_id or group.instances.get(instance_id or "", "")
        try:
            member = group.require_member(member_id, instance_id)
        except KafkaError as error:
            return error.code
        self._rebalances.remove_member(group, member, draft)
        return ErrorCode.NONE


def _leave_response(
    named: tuple[MemberIdentity, ...], codes: list[ErrorCode]
) -> LeaveGroupResponse:
    return LeaveGroupResponse(
        members=tuple(
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=code,
            )
            for each, code in zip(named, codes, strict=True)
        )
    )
