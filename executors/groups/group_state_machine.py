"""The group coordinator's state machine: one entry for requests, records and time.

Owns: the dispatch of events to the parts that decide on them, the refusal of impossible group ids,
and the timers' ends.  Must not know the runtime that carries it.

Kafka: ``GroupCoordinatorShard``.  A request names one group, also where its message has room for
several; the handlers divide and merge.  ListGroups goes to the state machines of all partitions.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import (
    Completion,
    CoordinatorRecord,
    CoordinatorRequest,
    CoordinatorStateMachine,
    Decision,
    DeletedTopic,
    Now,
    StoredTopic,
)
from sparklog.executors.groups.config import TIMERS_AT_ONCE, GroupConfig
from sparklog.executors.groups.draft import DecisionDraft, WaitingRequests
from sparklog.executors.groups.group_ids import group_id_of, refusal_of_group_id
from sparklog.executors.groups.group_state import GroupState
from sparklog.executors.groups.group_store import GroupStore
from sparklog.executors.groups.joining import Joining
from sparklog.executors.groups.listing import Listing
from sparklog.executors.groups.membership import Membership
from sparklog.executors.groups.offset_commit import OffsetCommits
from sparklog.executors.groups.offset_fetch import OffsetFetches
from sparklog.executors.groups.offset_removal import OffsetRemoval
from sparklog.executors.groups.rebalance import Rebalances, TimerKind, TimerSubject
from sparklog.executors.groups.records import read_record
from sparklog.executors.groups.syncing import Syncing
from sparklog.executors.groups.timers import Timer, TimerQueue
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest
from sparklog.wire.protocol.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.protocol.messages.offset_fetch import OffsetFetchRequest
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest
from sparklog.wire.protocol.schema import Request, Response

_Decide = Callable[[CoordinatorRequest, Any, DecisionDraft], None]
_READ_ONLY: Final = (
    HeartbeatRequest,
    OffsetFetchRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
#: What a group does not take while it is deleted; other requests find no member.
_NOT_WHILE_DELETED: Final = (
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetDeleteRequest,
)


class GroupStateMachine(CoordinatorStateMachine):
    """The groups of one partition of ``__consumer_offsets``.

    Args:
        config: the settings of groups.
        new_id: gives a value whose text is unique, such as a UUID; member ids end with it.
    """

    __slots__ = (
        "_config",
        "_decide",
        "_expiry_timer",
        "_groups",
        "_membership",
        "_rebalances",
        "_removal",
        "_removal_timer",
        "_timers",
        "_waiting",
    )

    def __init__(self, config: GroupConfig, new_id: Callable[[], object]) -> None:
        self._config = config
        self._timers = TimerQueue()
        self._waiting = WaitingRequests()
        self._groups = GroupStore(self._timers)
        self._rebalances = Rebalances(config, self._timers)
        self._removal = OffsetRemoval(config, self._groups)
        self._expiry_timer = Timer(TimerSubject(TimerKind.EXPIRY))
        self._removal_timer = Timer(TimerSubject(TimerKind.REMOVAL))
        membership = Membership(self._groups, self._rebalances)
        listing = Listing(self._groups)
        self._membership = membership
        self._decide: Mapping[type[Request], _Decide] = {
            JoinGroupRequest: Joining(config, self._groups, self._rebalances, new_id).join,
            SyncGroupRequest: Syncing(config, self._groups, self._rebalances).sync,
            HeartbeatRequest: membership.heartbeat,
            LeaveGroupRequest: membership.leave,
            OffsetCommitRequest: OffsetCommits(config, self._groups, self._rebalances).commit,
            OffsetFetchRequest: OffsetFetches(self._groups.offsets).fetch,
            OffsetDeleteRequest: self._removal.delete_offsets,
            DescribeGroupsRequest: listing.describe,
            ListGroupsRequest: listing.list_groups,
            DeleteGroupsRequest: self._delete_groups,
        }

    # -- durable state

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record.  Raises DecodeError when a record of a known kind is malformed."""
        known = read_record(record)
        if known is not None:
            self._groups.replay(known)

    def replay_in_transaction(self, record: CoordinatorRecord, producer_id: int) -> None:
        """Keep an offset until its transaction is decided.  Raises DecodeError as ``replay``."""
        known = read_record(record)
        if known is not None:
            self._groups.replay_in_transaction(known, producer_id)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        self._groups.replay_transaction_end(producer_id, committed=committed)

    def loaded(self, now: Now) -> None:
        """Members get a whole session.  A group above ``group.max.size`` has to rebalance."""
        self._groups.load()
        draft = self._draft(now)
        for group in self._groups:
            for member in group.members.values():
                self._rebalances.restart_session(member, now.monotonic_ms)
            if len(group.members) > self._config.size_max:
                self._rebalances.prepare(group, draft)
        assert draft.decision() == Decision(), "nobody waits, and every member has yet to join"
        self._timers.set(
            self._expiry_timer, now.monotonic_ms + self._config.retention_check_interval_ms
        )

    def stored_topics(self) -> tuple[StoredTopic, ...]:
        return tuple(StoredTopic(*each) for each in self._groups.offsets.topics())

    # -- events

    def may_write(self, request: CoordinatorRequest) -> bool:
        return not isinstance(request.body, _READ_ONLY)

    def handle(self, request: CoordinatorRequest, now: Now) -> Decision:
        draft = self._draft(now)
        body = request.body
        group_id = group_id_of(body)
        refusal = refusal_of_group_id(request, group_id)
        if refusal is not None:
            draft.respond(request.request_id, refusal, at_once=True)
            return draft.decision()
        if group_id in self._removal.deleting and isinstance(body, _NOT_WHILE_DELETED):
            draft.refuse(request.request_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return draft.decision()
        decide = self._decide.get(type(body))
        if decide is None:
            draft.refuse(request.request_id, ErrorCode.UNSUPPORTED_VERSION)
            return draft.decision()
        decide(request, body, draft)
        if group_id is not None:
            self._drop_if_unused(group_id, draft)
        return draft.decision()

    def answer(self, body: Request, now: Now) -> Response | None:
        """Take the heartbeat of a member that has nothing to learn."""
        if not isinstance(body, HeartbeatRequest):
            return None
        response = self._membership.take_heartbeat(body, now.monotonic_ms)
        return None if response.error_code else response

    def topics_deleted(self, topics: Collection[DeletedTopic], now: Now) -> None:
        """The offsets of topics that were deleted are due to end."""
        self._removal.topics_deleted(topics)
        if topics:
            self._timers.set(self._removal_timer, now.monotonic_ms)

    def pass_time(self, now: Now) -> Decision:
        """Do what is due, ``TIMERS_AT_ONCE`` timers at most; the rest is due at once again.

        The records of different groups need not survive together, so the decision is divisible.  A
        group whose record is in the decision rests until the record is replayed.
        """
        draft = self._draft(now)
        draft.divisible = True
        deferred: list[Timer] = []
        for _ in range(TIMERS_AT_ONCE):
            timer = self._timers.take_due(now.monotonic_ms)
            if timer is None:
                break
            subject: TimerSubject = timer.subject
            if subject.kind is TimerKind.EXPIRY:
                self._begin_sweep(now)
            elif subject.kind is TimerKind.REMOVAL:
                if self._remove(draft):
                    break
            elif subject.group_id in draft.changed_groups:
                deferred.append(timer)
            else:
                self._timer_ended(subject, draft)
        for timer in deferred:
            self._timers.set(timer, now.monotonic_ms)
        return draft.decision()

    def next_deadline_ms(self) -> int | None:
        """The time of the first timer, or an earlier one: a heartbeat does not look for it."""
        return self._timers.next_deadline_ms()

    def withdraw(self, request_id: int) -> None:
        """Forget whom to answer.  The member stays until its session ends."""
        self._waiting.discard(request_id)

    def unload(self, error: KafkaError) -> tuple[Completion, ...]:
        return tuple(
            Completion(request_id=each, response=error, at_once=True)
            for each in self._waiting.take_all()
        )

    def _draft(self, now: Now) -> DecisionDraft:
        return DecisionDraft(now, self._waiting)

    def _drop_if_unused(self, group_id: str, draft: DecisionDraft) -> None:
        group = self._groups.find(group_id)
        if group is not None and group_id not in draft.changed_groups:
            self._groups.drop_if_unused(group)

    def _begin_sweep(self, now: Now) -> None:
        """Begin to look for expired offsets, and plan the next look."""
        self._removal.begin_sweep()
        interval_ms = self._config.retention_check_interval_ms
        self._timers.set(self._expiry_timer, now.monotonic_ms + interval_ms)
        self._timers.set(self._removal_timer, now.monotonic_ms)

    def _delete_groups(
        self, request: CoordinatorRequest, body: DeleteGroupsRequest, draft: DecisionDraft
    ) -> None:
        draft.keep_waiting(request.request_id)
        self._removal.delete_groups(request, body)
        self._remove(draft)

    def _remove(self, draft: DecisionDraft) -> bool:
        """Remove some of what is to be removed; true if there is more, which is due at once."""
        has_more = self._removal.remove(draft)
        if has_more:
            self._timers.set(self._removal_timer, draft.now.monotonic_ms)
        return has_more

    def _timer_ended(self, subject: TimerSubject, draft: DecisionDraft) -> None:
        group = self._groups.find(subject.group_id)
        assert group is not None, "the timers of a group that is gone are cancelled"
        match subject.kind:
            case TimerKind.JOIN:
                self._rebalances.join_timer_ended(group, draft)
            case TimerKind.SYNC:
                self._rebalances.sync_timer_ended(group, draft)
            case TimerKind.SESSION:
                self._rebalances.session_ended(group, group.members[subject.member_id], draft)
            case _:
                self._rebalances.pending_member_ended(group, subject.member_id, draft)
        self._drop_if_unused(subject.group_id, draft)

    def check_invariants(self) -> None:
        """Assert what holds between events, when the records of the last one are replayed."""
        self._groups.check_invariants()
        waiting = [
            *self._removal.waiting,
            *(
                each.request_id
                for group in self._groups
                for member in group.members.values()
                for each in (member.join, member.sync)
                if each is not None
            ),
        ]
        assert len(waiting) == len(set(waiting))
        assert self._waiting.all_in(waiting), "a request waits that nothing will answer"
        for group in self._groups:
            for member in group.members.values():
                is_alive = member.session_timer.deadline_ms is not None
                assert is_alive or member.has_satisfied_heartbeat, "the member would never end"
            if group.state is GroupState.EMPTY:
                assert group.join_timer.deadline_ms is None
                assert group.sync_timer.deadline_ms is None
