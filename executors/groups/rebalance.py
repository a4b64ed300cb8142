"""The course of a rebalance: waiting for members, the next generation, and what ends it.

Owns: the steps that joins, syncs, leaves and timers have in common, and the timers of groups and
members.  Must not know requests, nor which groups exist.  Kafka: the rebalance methods of
``GroupMetadataManager``.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from sparklog.errors import ErrorCode
from sparklog.executors.groups.classic_group import ClassicGroup
from sparklog.executors.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupConfig
from sparklog.executors.groups.draft import DecisionDraft
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.member import Member
from sparklog.executors.groups.records import group_record
from sparklog.executors.groups.responses import join_refusal, join_response, sync_response
from sparklog.executors.groups.timers import Timer, TimerQueue
from sparklog.wire.protocol.messages.sync_group import SyncGroupResponse

#: Shortest time between two looks whether a static member has joined.
JOIN_RETRY_MS_MIN: Final = 1_000


class TimerKind(Enum):
    JOIN = auto()
    SYNC = auto()
    SESSION = auto()
    PENDING_JOIN = auto()
    EXPIRY = auto()
    REMOVAL = auto()


class TimerSubject(NamedTuple):
    """What a timer is for."""

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


class Rebalances:
    """The steps of rebalances; each changes a group and adds to the draft of the event."""

    __slots__ = ("_config", "_timers")

    def __init__(self, config: GroupConfig, timers: TimerQueue) -> None:
        self._config = config
        self._timers = timers

    # -- sessions

    def restart_session(self, member: Member, now_ms: int) -> None:
        self._timers.set(member.session_timer, now_ms + member.session_timeout_ms)

    def start_new_member(self, member: Member, now_ms: int) -> None:
        """Limit the wait of a member that does not know its id and cannot send heartbeats."""
        member.is_new = True
        self._timers.set(member.session_timer, now_ms + NEW_MEMBER_JOIN_TIMEOUT_MS)

    def stop_session(self, member: Member) -> None:
        self._timers.cancel(member.session_timer)

    def session_ended(self, group: ClassicGroup, member: Member, draft: DecisionDraft) -> None:
        if member.has_satisfied_heartbeat:
            return  # The session starts again when the request is answered.
        self.remove_member(group, member, draft)
        if group.state is not GroupState.PREPARING_REBALANCE:
            self.prepare_or_complete(group, draft)
        elif group.has_all_members_joined:
            self.complete_join(group, draft)

    def add_pending_member(
        self, group: ClassicGroup, member_id: str, session_timeout_ms: int, now_ms: int
    ) -> None:
        """Remember an id that was given out, until the session timeout."""
        timer = Timer(TimerSubject(TimerKind.PENDING_JOIN, group.group_id, member_id))
        group.pending_joins[member_id] = timer
        self._timers.set(timer, now_ms + session_timeout_ms)

    def end_pending_member(self, group: ClassicGroup, member_id: str) -> None:
        self._timers.cancel(group.pending_joins.pop(member_id))

    def pending_member_ended(
        self, group: ClassicGroup, member_id: str, draft: DecisionDraft
    ) -> None:
        self.end_pending_member(group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined:
            self.complete_join(group, draft)

    def remove_member(self, group: ClassicGroup, member: Member, draft: DecisionDraft) -> None:
        """Remove a member; its waiting requests get UNKNOWN_MEMBER_ID, so that it joins anew."""
        self.refuse_waiting(group, member, ErrorCode.UNKNOWN_MEMBER_ID, "", draft)
        group.remove(member.member_id)
        self.stop_session(member)

    def refuse_waiting(
        self,
        group: ClassicGroup,
        member: Member,
        code: ErrorCode,
        member_id: str,
        draft: DecisionDraft,
    ) -> None:
        """Refuse the requests of a member that wait; a JoinGroup's response has ``member_id``."""
        if member.join is not None:
            waiting = member.join
            group.end_join(member)
            draft.respond_to_waiting(waiting, join_refusal(waiting.version, member_id, code))
        self._refuse_sync(member, code, draft)

    # -- joining

    def prepare_or_complete(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        """Begin a rebalance, or go on with the one that is under way."""
        if group.can_rebalance:
            self.prepare(group, draft)
        else:
            self.complete_if_all_joined(group, draft)

    def prepare(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        """Begin a rebalance.  Members that wait for their assignment are sent back to JoinGroup."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS, draft)
        group.pending_syncs.clear()
        self._timers.cancel(group.sync_timer)
        was_empty = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, draft.now.wall_ms)
        if was_empty:
            self._delay_initial_rebalance(group, draft.now.monotonic_ms)
        elif group.has_all_members_joined:
            self.complete_join(group, draft)
        else:
            delay_ms = group.rebalance_timeout_ms
            self._timers.set(group.join_timer, draft.now.monotonic_ms + delay_ms)

    def _delay_initial_rebalance(self, group: ClassicGroup, now_ms: int) -> None:
        """Give more members time to join an empty group."""
        delay_ms = self._config.initial_rebalance_delay_ms
        group.new_member_added = False
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._timers.set(group.join_timer, now_ms + delay_ms)

    def join_timer_ended(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        """The time for joining is over, or a step of the delay of an initial rebalance is."""
        has_more_time = group.new_member_added and group.initial_remaining_ms > 0
        if not (group.is_initial_rebalance and has_more_time):
            self.complete_join(group, draft)
            return
        group.new_member_added = False
        delay_ms = min(self._config.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        self._timers.set(group.join_timer, draft.now.monotonic_ms + delay_ms)

    def complete_if_all_joined(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        is_joining = group.state is GroupState.PREPARING_REBALANCE
        if is_joining and not group.is_initial_rebalance and group.has_all_members_joined:
            self.complete_join(group, draft)

    def complete_join(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        """Begin the next generation with the members that joined, and the static ones."""
        self._timers.cancel(group.join_timer)
        late = [each for each in group.members.values() if each.join is None]
        for member in late:
            if member.instance_id is None:
                self.remove_member(group, member, draft)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has joined: their sessions decide.
            delay_ms = max(group.rebalance_timeout_ms, JOIN_RETRY_MS_MIN)
            self._timers.set(group.join_timer, draft.now.monotonic_ms + delay_ms)
            return
        group.begin_generation(draft.now.wall_ms)
        if not group.members:
            draft.write_group(group.group_id, group_record(group.group_id, group.described()))
            return
        self._send_generation(group, draft)
        self._timers.set(group.sync_timer, draft.now.monotonic_ms + group.rebalance_timeout_ms)

    def _send_generation(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        for member in group.members.values():
            if member.join is not None:
                waiting = member.join
                group.end_join(member)
                draft.respond_to_waiting(waiting, join_response(group, member.member_id))
            member.is_new = False
            self.restart_session(member, draft.now.monotonic_ms)
            group.pending_syncs.add(member.member_id)

    # -- syncing

    def sync_received(self, group: ClassicGroup, member: Member) -> None:
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            self._timers.cancel(group.sync_timer)

    def sync_timer_ended(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        """Go on without the members that have not sent SyncGroup."""
        for member_id in sorted(group.pending_syncs):
            self.remove_member(group, group.members[member_id], draft)
        self.prepare(group, draft)

    def send_assignments(self, group: ClassicGroup, draft: DecisionDraft) -> None:
        """Answer the SyncGroup requests that wait with the members' assignments."""
        for member in group.members.values():
            if member.sync is not None:
                draft.respond_to_waiting(member.sync, sync_response(group, member))
                member.sync = None
                self.restart_session(member, draft.now.monotonic_ms)

    def refuse_syncs(self, group: ClassicGroup, code: ErrorCode, draft: DecisionDraft) -> None:
        """Take the generation's assignments back, and refuse the SyncGroup requests that wait."""
        for member in group.members.values():
            member.assignment = b""
            if self._refuse_sync(member, code, draft):
                self.restart_session(member, draft.now.monotonic_ms)

    def _refuse_sync(self, member: Member, code: ErrorCode, draft: DecisionDraft) -> bool:
        if member.sync is None:
            return False
        draft.respond_to_waiting(member.sync, SyncGroupResponse(error_code=code))
        member.sync = None
        return True
