"""A member of a group as a pure state machine: joining, syncing, heartbeats, leaving.

Owns: the state of one member under the classic protocol, eager and cooperative (KIP-429), with
static membership (KIP-345) and member ids from the coordinator (KIP-394).  Must not know sockets,
clocks, nor the application: ``handle`` takes an event and the time and returns actions.

Source: ``ConsumerCoordinator`` and ``AbstractCoordinator`` in Kafka.

The states: unjoined -> joining -> syncing -> stable, and from stable to joining again when
the group rebalances.  Before a member joins, it runs the callbacks that give up partitions: all of
them (eager), those of topics that it no longer wants (cooperative), or those that it lost.  While
callbacks are outstanding the member waits for ``poll`` to carry them out, and keeps its session
alive by heartbeats.
"""

from typing import Final

from sparklog.client.find_coordinator_api import COORDINATOR_MOVED
from sparklog.client.groups.assignors import is_cooperative
from sparklog.client.groups.consumer_protocol import (
    NO_GENERATION,
    decode_assignment,
)
from sparklog.client.groups.group_topics import GroupTopics
from sparklog.client.groups.in_flight_requests import InFlightRequests
from sparklog.client.groups.member_events import (
    MEMBER_UNKNOWN,
    Action,
    AssignmentComputed,
    CallbackDone,
    CallbackKind,
    ComputationFailed,
    CoordinatorFound,
    CoordinatorNotFound,
    Event,
    Fail,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    Left,
    MemberSettings,
    MembershipLost,
    MemberState,
    MetadataRefreshed,
    PollBegan,
    PollEnded,
    RequestFailed,
    SubscriptionChanged,
    SyncAnswered,
)
from sparklog.client.groups.member_partitions import MemberPartitions
from sparklog.client.groups.member_requests import MemberView, refusal, subscriptions_in
from sparklog.client.groups.member_timers import NEVER, MemberTimers
from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.join_group import JoinGroupResponse
from sparklog.wire.protocol.messages.sync_group import SyncGroupResponse

_NOBODY: Final = ""


class Membership:
    """One member of one group.  Times are seconds of any clock that never goes back."""

    def __init__(self, settings: MemberSettings) -> None:
        self.settings = settings
        self.state = MemberState.UNJOINED
        self.member_id = _NOBODY
        self.generation = NO_GENERATION
        self.is_leader = False
        self._cooperative = is_cooperative(settings.assignors)
        self._topics: frozenset[str] | None = None
        #: The topics in the last JoinGroup request.
        self._joined_topics: frozenset[str] = frozenset()
        self._protocol = ""
        self._rejoin = False
        self._partitions = MemberPartitions()
        self._in_flight = InFlightRequests()
        self._timers = MemberTimers(settings)
        self._topics_of_group = GroupTopics()

    # the entry

    def handle(self, event: Event, now: float) -> list[Action]:
        """The actions that follow from an event at a time in seconds."""
        if self.state is MemberState.FAILED and not isinstance(event, SubscriptionChanged):
            if isinstance(event, CallbackDone):
                self._partitions.finish_callback()
            return []
        self._take(event, now)
        self._pass_time(now)
        self._proceed(now)
        in_flight = self._in_flight
        actions, in_flight.actions = in_flight.actions, []
        return actions

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of this member, including those of callbacks that are outstanding."""
        return self._partitions.owned

    @property
    def wake_at(self) -> float:
        """When ``TimePassed`` is due, in seconds; infinite if never."""
        if self._topics is None or self.state is MemberState.FAILED:
            return NEVER
        return self._timers.wake_at(beats=self._beats, retries=self._wants_to_retry)

    def check_invariants(self) -> None:
        """Assert the invariants between two events."""
        pending = self._in_flight.pending
        assert self._partitions.callbacks >= 0
        if self.state is MemberState.STABLE:
            assert self.member_id
            assert self.generation >= 0
            assert not pending
        if self.state in (MemberState.JOINING, MemberState.SYNCING, MemberState.LEAVING):
            assert pending
        if self.state in (MemberState.UNJOINED, MemberState.FAILED):
            assert not pending

    # events

    def _take(self, event: Event, now: float) -> None:
        match event:
            case SubscriptionChanged():
                self._change_subscription(event.topics, now)
            case PollBegan():
                self._timers.begin_poll(now)
            case PollEnded():
                self._timers.end_poll(now)
            case CoordinatorFound():
                self._in_flight.end_search(found=True)
                self._timers.succeed()
                self._timers.extend_session(now)
            case CoordinatorNotFound():
                self._in_flight.end_search(found=False)
                self._retry_or_fail(event.error, now)
            case CallbackDone():
                self._partitions.finish_callback()
            case MetadataRefreshed():
                if self.is_leader and self.state is MemberState.STABLE:
                    changed = self._topics_of_group.compare(event.counts, self._topics or ())
                    self._rejoin = self._rejoin or changed
            case MembershipLost():
                if event.generation == self.generation and self.state is MemberState.STABLE:
                    self._take_refusal(event.code, now)
            case _:
                self._take_answer(event, now)

    def _take_answer(self, event: Event, now: float) -> None:
        """Take an answer of the coordinator, unless its request was given up."""
        in_flight = self._in_flight
        match event:
            case HeartbeatAnswered(request_id=in_flight.heartbeat):
                in_flight.heartbeat = 0
                self._take_heartbeat(event.code, now)
            case RequestFailed(request_id=in_flight.heartbeat):
                in_flight.heartbeat = 0
                self._lose_coordinator(now)
            case JoinAnswered(request_id=in_flight.pending):
                in_flight.pending = 0
                self._take_join(event.response, now)
            case SyncAnswered(request_id=in_flight.pending):
                in_flight.pending = 0
                self._take_sync(event.response, now)
            case AssignmentComputed(request_id=in_flight.pending):
                self._topics_of_group.note(event.counts)
                in_flight.sync(self._view, self._protocol, event.assignment)
            case ComputationFailed(request_id=in_flight.pending):
                self._join_again(now)
                self._retry_or_fail(event.error, now)
            case LeaveAnswered(request_id=in_flight.pending):
                self._leave_done()
            case RequestFailed(request_id=in_flight.pending):
                if self.state is MemberState.LEAVING:
                    self._leave_done()
                else:
                    self._join_again(now)
                    self._lose_coordinator(now)

    def _change_subscription(self, topics: frozenset[str] | None, now: float) -> None:
        if self.state is MemberState.FAILED:
            self._reset_member()
        if topics is not None and self._topics is None:
            self._timers.begin_subscription(now)
        if topics is not None and topics == self._topics:
            return
        self._topics = topics
        self._rejoin = True
        if topics is None and self.state in (MemberState.JOINING, MemberState.SYNCING):
            self._in_flight.pending = 0
            self.state = MemberState.UNJOINED

    def _take_heartbeat(self, code: ErrorCode, now: float) -> None:
        if code == ErrorCode.NONE:
            self._timers.extend_session(now)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._timers.extend_session(now)
            self._rejoin = self._rejoin or self.state is MemberState.STABLE
        else:
            self._take_refusal(code, now)

    def _take_refusal(self, code: ErrorCode, now: float) -> None:
        """Take an error which says that this member is not in this generation of the group."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin = True
        elif code in MEMBER_UNKNOWN:
            self._reset_member(keep_id=code == ErrorCode.ILLEGAL_GENERATION)
        elif code in COORDINATOR_MOVED:
            self._lose_coordinator(now)
        else:
            self._retry_or_fail(KafkaError(code, refusal(self.settings, code)), now)

    def _take_join(self, response: JoinGroupResponse, now: float) -> None:
        code = ErrorCode.of(response.error_code)
        if code != ErrorCode.NONE:
            self._join_again(now)
            if code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
            else:
                self._take_refusal(code, now)
            return
        self._timers.succeed()
        self.member_id, self.generation = response.member_id, response.generation_id
        self._protocol = response.protocol_name or ""
        self.is_leader = response.leader == response.member_id
        self._rejoin = self._topics != self._joined_topics
        self.state = MemberState.SYNCING
        self._timers.begin_session(now)
        assignor = next((a for a in self.settings.assignors if a.name == self._protocol), None)
        if assignor is None:
            text = f"the group {self.settings.group_id!r} chose {self._protocol!r}, unknown here"
            self._fail(KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text))
        elif self.is_leader and not response.skip_assignment:
            try:
                self._in_flight.compute(assignor, subscriptions_in(response))
            except DecodeError as error:
                self._join_again(now)
                self._fail(error)
        else:
            self._topics_of_group.forget()
            self._in_flight.sync(self._view, self._protocol, {})

    def _take_sync(self, response: SyncGroupResponse, now: float) -> None:
        code = ErrorCode.of(response.error_code)
        if code != ErrorCode.NONE:
            self._join_again(now)
            self._take_refusal(code, now)
            return
        try:
            assigned = decode_assignment(response.assignment)
        except DecodeError as error:
            self._join_again(now)
            self._fail(error)
            return
        self.state = MemberState.STABLE
        self._timers.extend_session(now)
        wanted = frozenset(tp for tp in assigned if tp.topic in (self._topics or ()))
        # The subscription has changed since the join, or others wait for the revoked partitions.
        self._rejoin = self._rejoin or wanted != assigned or not self.owned <= wanted
        self._in_flight.actions += self._partitions.assign(wanted, self.generation)

    # time

    def _pass_time(self, now: float) -> None:
        if self._topics is None or self.state is MemberState.FAILED:
            return
        timers = self._timers
        if timers.expire_poll(now):
            self._leave_for_lack_of_polls()
        if not self._beats:
            return
        if now >= timers.session_ends_at:
            timers.extend_session(now)
            self._lose_coordinator(now)
        elif now >= timers.heartbeat_at:
            timers.plan_heartbeat(now)
            if self._in_flight.coordinator_known:
                self._in_flight.send_heartbeat(self._view)
            else:
                self._find(now)

    @property
    def _beats(self) -> bool:
        return self.generation != NO_GENERATION and self.state in (
            MemberState.SYNCING,
            MemberState.STABLE,
            MemberState.UNJOINED,
        )

    @property
    def _wants_to_retry(self) -> bool:
        if self._in_flight.is_busy or self._partitions.callbacks or self._timers.poll_expired:
            return False
        return self.state is MemberState.UNJOINED or self._rejoin

    def _leave_for_lack_of_polls(self) -> None:
        """Leave, because ``poll`` was not called in time; others get the partitions (KIP-62)."""
        is_static = self.settings.group_instance_id is not None
        if self.member_id and not is_static and self._in_flight.coordinator_known:
            reason = "the time between two calls of poll exceeded max.poll.interval.ms"
            self._in_flight.leave(self._view, reason)
        self._reset_member()

    # the way into the group, and out

    def _proceed(self, now: float) -> None:
        """Take the next step, if one can be taken."""
        in_flight, failed = self._in_flight, self.state is MemberState.FAILED
        if self._partitions.callbacks or in_flight.pending or failed:
            return
        if self._topics is None:
            self._proceed_to_leave()
            return
        if self._timers.poll_expired or (self.state is MemberState.STABLE and not self._rejoin):
            return
        if self._give_up_partitions():
            return
        if not in_flight.coordinator_known:
            self._find(now)
        elif now >= self._timers.retry_at:
            self.state = MemberState.JOINING
            self._joined_topics = self._topics
            partitions = self._partitions
            in_flight.join(self._view, self._topics, self.owned, partitions.previous)

    def _give_up_partitions(self) -> bool:
        """Run the callbacks that must come before a join.  Returns whether there are any."""
        callbacks = self._partitions.give_up_before_join(
            is_member=self.generation != NO_GENERATION,
            kept=self._topics if self._cooperative else None,
        )
        self._in_flight.actions += callbacks
        return bool(callbacks)

    def _proceed_to_leave(self) -> None:
        if self.state is MemberState.LEAVING or not self._rejoin or self._give_up_partitions():
            return
        is_static = self.settings.group_instance_id is not None
        if not self.member_id or is_static or not self._in_flight.coordinator_known:
            self._leave_done()
            return
        self.state = MemberState.LEAVING
        reason = "the consumer unsubscribed or is closed"
        self._in_flight.leave(self._view, reason)

    def _leave_done(self) -> None:
        self._reset_member()
        self._rejoin = self._topics is not None
        if self._topics is None:
            self._in_flight.actions.append(Left())

    def _find(self, now: float) -> None:
        if now >= self._timers.retry_at:
            self._in_flight.find_coordinator()

    def _join_again(self, now: float) -> None:
        self._in_flight.pending = 0
        self.state = MemberState.UNJOINED
        self._timers.retry_at = now

    def _lose_coordinator(self, now: float) -> None:
        self._in_flight.lose_coordinator()
        self._timers.back_off(now)
        if self.state is MemberState.STABLE:
            self._timers.heartbeat_at = min(self._timers.heartbeat_at, self._timers.retry_at)

    def _retry_or_fail(self, error: Exception, now: float) -> None:
        if isinstance(error, KafkaError) and error.retriable:
            self._timers.back_off(now)
            if error.code in COORDINATOR_MOVED:
                self._in_flight.coordinator_known = False
        else:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Fail, because the group refuses this member for good; its partitions are lost."""
        self._reset_member()
        self.state = MemberState.FAILED
        actions = self._in_flight.actions
        actions += self._partitions.give_up(CallbackKind.LOST, self.owned)
        actions.append(Fail(error=error))

    def _reset_member(self, *, keep_id: bool = False) -> None:
        """Forget generation and member id; partitions that were not given up are lost."""
        self.generation = NO_GENERATION
        self.member_id = self.member_id if keep_id else _NOBODY
        self.is_leader = False
        self._topics_of_group.forget()
        self._in_flight.forget_requests()
        self.state = MemberState.UNJOINED
        self._rejoin = True

    @property
    def _view(self) -> MemberView:
        return MemberView(
            settings=self.settings, member_id=self.member_id, generation=self.generation
        )
