"""JoinGroup: which member a request is from, and whether the group rebalances.

Owns: the decisions on JoinGroup 0 to 9.  Must not know how a rebalance goes on.
KIP-345 (static members), KIP-394 (member ids first), KIP-814 (skipped assignments).
Kafka: the ``classicGroupJoin`` methods of ``GroupMetadataManager``.
"""

from collections.abc import Callable
from typing import Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.config import PENDING_MEMBERS_MAX, TEXT_BYTES_MAX, GroupConfig
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.group_store import GroupStore, session_timer
from sparklog.executors.groups.member import (
    Member,
    WaitingRequest,
    distinct_protocols,
    protocols_bytes,
    rebalance_timeout_of,
    record_bytes_of,
)
from sparklog.executors.groups.rebalance import Rebalances
from sparklog.executors.groups.records import group_record, record_bytes
from sparklog.executors.groups.responses import (
    join_refusal,
    join_response,
    replaced_join_response,
)
from sparklog.executors.groups.texts import fits_record
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)

#: JoinGroup versions from which a dynamic member first gets an id, then joins with it.
MEMBER_ID_FIRST: Final = 4
#: ``-`` and a UUID.
_ID_SUFFIX_BYTES: Final = 37
#: How much more memory than ``group_bytes_max`` the protocols of a group may take: a member names
#: several protocols, and the group's record has only one.
METADATA_FACTOR: Final = 4


class Join:
    """A JoinGroup request in the forms that decisions use."""

    __slots__ = ("client_host", "client_id", "instance_id", "protocols", "request", "waiting")

    def __init__(self, request: CoordinatorRequest, body: JoinGroupRequest) -> None:
        self.request = body
        self.waiting = WaitingRequest(request.request_id, request.version)
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.instance_id = body.group_instance_id
        self.protocols = distinct_protocols(body.protocols)

    @property
    def version(self) -> int:
        return self.waiting.version

    @property
    def protocol_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.protocols)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the member in the group's record; an id that is yet to be made begins with
        the client id or the instance id."""
        instance_id = self.instance_id or ""
        member_id = self.request.member_id or instance_id or self.client_id
        return member_id, instance_id, self.client_id, self.client_host

    def matches(self, protocols: tuple[JoinGroupRequestProtocol, ...]) -> bool:
        return self.protocols == protocols

    def apply_timeouts(self, member: Member) -> None:
        member.session_timeout_ms = self.request.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_of(self.request, self.version)


class Joining:
    """Decides on JoinGroup requests."""

    __slots__ = ("_config", "_groups", "_new_id", "_rebalances")

    def __init__(
        self,
        config: GroupConfig,
        groups: GroupStore,
        rebalances: Rebalances,
        new_id: Callable[[], object],
    ) -> None:
        self._config = config
        self._groups = groups
        self._rebalances = rebalances
        self._new_id = new_id

    def join(
        self, request: CoordinatorRequest, body: JoinGroupRequest, draft: DecisionDraft
    ) -> None:
        """Answer the request, or let it wait for the next generation."""
        join = Join(request, body)
        try:
            self._check_request(join)
            self._join(join, draft)
        except KafkaError as error:
            # A member without an id, or one that the group has no room for, starts anew.
            is_unknown = error.code is ErrorCode.GROUP_MAX_SIZE_REACHED
            member_id = "" if is_unknown else body.member_id
            draft.respond(request.request_id, join_refusal(join.version, member_id, error.code))

    def _check_request(self, join: Join) -> None:
        session_ms = join.request.session_timeout_ms
        if not self._config.min_session_timeout_ms <= session_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if session_ms > self._config.max_session_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        if not all(map(fits_record, (join.request.protocol_type, *join.protocol_names))):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not fits_record(join.instance_id or ""):
            raise KafkaError(ErrorCode.INVALID_REQUEST)

    def _join(self, join: Join, draft: DecisionDraft) -> None:
        body = join.request
        if body.member_id:
            group = self._groups.find(body.group_id)
            if group is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            group = self._groups.find_or_create(body.group_id)
        if not (self._accepts(group, body.member_id) and self._has_room(group, join)):
            self._expel(group, body.member_id, draft)
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        if not group.supports_protocols(body.protocol_type, join.protocol_names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not body.member_id:
            self._join_unknown(group, join, draft)
        elif body.member_id in group.pending_joins and join.instance_id is None:
            self._rebalances.end_pending_member(group, body.member_id)
            self._add(group, body.member_id, join, draft)
        else:
            member = group.require_member(body.member_id, join.instance_id)
            self._rejoin(group, member, join, draft)

    def _accepts(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether ``group.max.size`` lets a member in.

        During a rebalance the members that wait are counted, because those that come last have to
        go when the limit was lowered.
        """
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.join is not None
            return is_waiting or group.joins_waiting < self._config.size_max
        return member is not None or len(group.members) < self._config.size_max

    def _has_room(self, group: ClassicGroup, join: Join) -> bool:
        """Whether the group's record stays below the largest batch, and its memory in
        proportion."""
        known_id = join.request.member_id or group.instances.get(join.instance_id or "", "")
        known = group.members.get(known_id)
        metadata = protocols_bytes(join.protocols)
        record = record_bytes_of(join.texts, join.protocols)
        if known is not None:
            metadata -= known.metadata_bytes
            record -= known.record_bytes
        limit = self._config.group_bytes_max
        is_small = group.metadata_bytes + metadata <= METADATA_FACTOR * limit
        return is_small and group.record_bytes + record <= limit

    def _expel(self, group: ClassicGroup, member_id: str, draft: DecisionDraft) -> None:
        """Forget a member that the group has no room for."""
        if member_id in group.pending_joins:
            self._rebalances.end_pending_member(group, member_id)
            self._rebalances.complete_if_all_joined(group, draft)
        elif member_id in group.members:
            self._rebalances.remove_member(group, group.members[member_id], draft)
            self._rebalances.prepare_or_complete(group, draft)

    # -- members without an id

    def _join_unknown(self, group: ClassicGroup, join: Join, draft: DecisionDraft) -> None:
        member_id = self._new_member_id(join)
        if join.instance_id is not None:
            old_id = group.instances.get(join.instance_id)
            if old_id is None:
                self._add(group, member_id, join, draft)
            else:
                self._replace_static(group, group.members[old_id], member_id, join, draft)
        elif join.version >= MEMBER_ID_FIRST:
            if len(group.pending_joins) >= PENDING_MEMBERS_MAX:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            session_ms, now_ms = join.request.session_timeout_ms, draft.now.monotonic_ms
            self._rebalances.add_pending_member(group, member_id, session_ms, now_ms)
            refusal = join_refusal(join.version, member_id, ErrorCode.MEMBER_ID_REQUIRED)
            draft.respond(join.waiting.request_id, refusal)
        else:
            self._add(group, member_id, join, draft)

    def _new_member_id(self, join: Join) -> str:
        prefix = join.client_id if join.instance_id is None else join.instance_id
        if not fits_record(prefix, TEXT_BYTES_MAX - _ID_SUFFIX_BYTES):
            prefix = prefix[: (TEXT_BYTES_MAX - _ID_SUFFIX_BYTES) // 4]
        return f"{prefix}-{self._new_id()}"

    def _new_member(self, group: ClassicGroup, member_id: str, join: Join) -> Member:
        member = Member(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timer=session_timer(group.group_id, member_id),
        )
        join.apply_timeouts(member)
        return member

    def _add(self, group: ClassicGroup, member_id: str, join: Join, draft: DecisionDraft) -> None:
        member = self._new_member(group, member_id, join)
        member.set_protocols(join.protocols)
        if group.is_initial_rebalance:
            group.new_member_added = True
        group.add(member, join.request.protocol_type)
        self._wait(group, member, join, draft)
        self._rebalances.start_new_member(member, draft.now.monotonic_ms)
        self._rebalances.prepare_or_complete(group, draft)

    def _replace_static(
        self,
        group: ClassicGroup,
        old: Member,
        member_id: str,
        join: Join,
        draft: DecisionDraft,
    ) -> None:
        """Let a restarted static member take over its instance; the old member id is fenced."""
        old_leader_id = group.leader_id or ""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self._rebalances.refuse_waiting(group, old, fenced, old.member_id, draft)
        self._rebalances.stop_session(old)
        was_pending_sync = old.member_id in group.pending_syncs
        member = self._new_member(group, member_id, join)
        group.replace_static(old, member)
        group.set_protocols(member, join.protocols)
        if was_pending_sync:
            self._rebalances.sync_received(group, member)
        self._rebalances.restart_session(member, draft.now.monotonic_ms)
        is_same = group.state is GroupState.STABLE and (
            group.select_protocol() == group.protocol_name
        )
        record = group_record(group.group_id, group.described()) if is_same else None
        if record is not None and record_bytes(record) <= self._config.group_bytes_max:
            group.read_subscriptions()
            draft.write_group(group.group_id, record)
            response = replaced_join_response(group, member_id, old_leader_id, join.version)
            draft.respond(join.waiting.request_id, response)
            return
        self._wait(group, member, join, draft)
        self._rebalances.prepare_or_complete(group, draft)

    # -- members of the group

    def _rejoin(
        self, group: ClassicGroup, member: Member, join: Join, draft: DecisionDraft
    ) -> None:
        """A member that rejoins with nothing new gets the current generation.

        The leader of a stable group makes it rebalance, because topics may have changed.
        """
        is_leader = group.is_leader(member.member_id)
        is_stable = group.state is GroupState.STABLE
        is_joining = group.state is GroupState.PREPARING_REBALANCE
        if not is_joining and join.matches(member.protocols) and not (is_stable and is_leader):
            response = join_response(group, member.member_id)
            draft.respond(join.waiting.request_id, response)
            return
        if member.join is not None:
            # The member gave up the request that waits, or its client is not the only one.
            code = ErrorCode.REBALANCE_IN_PROGRESS
            self._rebalances.refuse_waiting(group, member, code, member.member_id, draft)
        group.set_protocols(member, join.protocols)
        join.apply_timeouts(member)
        self._wait(group, member, join, draft)
        self._rebalances.prepare_or_complete(group, draft)

    def _wait(self, group: ClassicGroup, member: Member, join: Join, draft: DecisionDraft) -> None:
        group.wait_for_join(member, join.waiting)
        draft.keep_waiting(join.waiting.request_id)
