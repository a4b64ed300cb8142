"""SyncGroup: the leader's assignments, and the members that wait for them.

Owns: the decisions on SyncGroup 0 to 5.  Must not know how a rebalance began.
Kafka: the ``classicGroupSync`` methods of ``GroupMetadataManager``.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.config import GroupConfig
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.group_store import GroupStore
from sparklog.executors.groups.member import Member, WaitingRequest
from sparklog.executors.groups.rebalance import Rebalances
from sparklog.executors.groups.records import group_record, record_bytes
from sparklog.executors.groups.responses import sync_response
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class Syncing:
    """Decides on SyncGroup requests."""

    __slots__ = ("_config", "_groups", "_rebalances")

    def __init__(self, config: GroupConfig, groups: GroupStore, rebalances: Rebalances) -> None:
        self._config = config
        self._groups = groups
        self._rebalances = rebalances

    def sync(
        self, request: CoordinatorRequest, body: SyncGroupRequest, draft: DecisionDraft
    ) -> None:
        """Answer the request, or let it wait for the leader's."""
        try:
            group = self._groups.find(body.group_id)
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            member = self._require_member(group, body)
            if group.state is GroupState.PREPARING_REBALANCE:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            draft.respond(request.request_id, SyncGroupResponse(error_code=error.code))
            return
        self._rebalances.sync_received(group, member)
        if group.state is GroupState.STABLE:
            draft.respond(request.request_id, sync_response(group, member))
            return
        self._wait(member, request, draft)
        if group.is_leader(member.member_id):
            self._take_assignments(group, body, draft)

    def _require_member(self, group: ClassicGroup, body: SyncGroupRequest) -> Member:
        member = group.require_member(body.member_id, body.group_instance_id)
        if body.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        is_other_type = body.protocol_type not in (None, group.protocol_type)
        if is_other_type and group.protocol_type is not None:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_other_protocol = body.protocol_name not in (None, group.protocol_name)
        if is_other_protocol and group.protocol_name is not None:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return member

    def _wait(self, member: Member, request: CoordinatorRequest, draft: DecisionDraft) -> None:
        if member.sync is not None:
            # The member gave up the request that waits, or its client is not the only one.
            refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            draft.respond_to_waiting(member.sync, refusal)
        member.sync = WaitingRequest(request.request_id, request.version)
        draft.keep_waiting(request.request_id)

    def _take_assignments(
        self, group: ClassicGroup, body: SyncGroupRequest, draft: DecisionDraft
    ) -> None:
        """Write the generation with its assignments; members without one get an empty one.

        A record that is too large for the topic ends the generation, as in Kafka.
        """
        assignments = {each.member_id: each.assignment for each in body.assignments}
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.transition_to(GroupState.STABLE, draft.now.wall_ms)
        record = group_record(group.group_id, group.described())
        if record_bytes(record) > self._config.group_bytes_max:
            self._rebalances.refuse_syncs(group, ErrorCode.UNKNOWN_SERVER_ERROR, draft)
            self._rebalances.prepare(group, draft)
            return
        draft.write_group(group.group_id, record)
        self._rebalances.send_assignments(group, draft)
