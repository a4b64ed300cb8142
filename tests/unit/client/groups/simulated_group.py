"""A group of members, a tiny coordinator and the messages between them, in an order of one's own.

Owns: the world in which members are tested: time, messages under way, applications that poll.
Must not know what a test wants to see.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sparklog.client.groups.assignors import assignors_named
from sparklog.client.groups.member_events import (
    Action,
    AssignmentComputed,
    CallbackDone,
    CallbackKind,
    ComputeAssignment,
    CoordinatorFound,
    Event,
    Fail,
    FindCoordinator,
    HeartbeatAnswered,
    JoinAnswered,
    LeaveAnswered,
    Left,
    MemberSettings,
    MemberState,
    MetadataRefreshed,
    PollBegan,
    PollEnded,
    RequestFailed,
    RunCallback,
    SendRequest,
    SubscriptionChanged,
    SyncAnswered,
    TimePassed,
)
from sparklog.client.groups.membership import Membership
from sparklog.errors import ErrorCode
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.heartbeat import HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import JoinGroupResponse
from sparklog.wire.protocol.messages.leave_group import LeaveGroupResponse
from tests.unit.client.groups.tiny_coordinator import TinyCoordinator

SESSION_S, POLL_S, HEARTBEAT_S = 10.0, 30.0, 3.0


@dataclass
class Application:
    """A member and what its application holds."""

    name: str
    membership: Membership
    held: set[TopicPartition] = field(default_factory=set)
    callbacks: list[RunCallback] = field(default_factory=list)
    alive: bool = True
    polls: bool = True
    left: bool = False
    failure: Exception | None = None


class SimulatedGroup:
    def __init__(self, counts: dict[str, int], *assignors: str) -> None:
        self.counts = counts
        self.assignors = assignors
        self.coordinator = TinyCoordinator()
        self.applications: dict[str, Application] = {}
        self.now = 0.0
        self.moves = 0
        #: Steps that can be taken now, in any order.
        self.steps: list[Callable[[], None]] = []
        #: Partitions that went from one member to another without being given up before.
        self.overlaps: list[TopicPartition] = []

    # what tests do

    def add(self, name: str, topics: set[str], *assignors: str) -> None:
        settings = MemberSettings(
            group_id="g",
            assignors=assignors_named(assignors or self.assignors),
            session_timeout_s=SESSION_S,
            max_poll_interval_s=POLL_S,
            heartbeat_interval_s=HEARTBEAT_S,
        )
        self.applications[name] = Application(name, Membership(settings))
        self.subscribe(name, topics)

    def subscribe(self, name: str, topics: set[str] | None) -> None:
        wanted = None if topics is None else frozenset(topics)
        self.tell(self.applications[name], SubscriptionChanged(topics=wanted))

    def crash(self, name: str) -> None:
        """The process is gone: the coordinator hears nothing any more."""
        gone = self.applications.pop(name)
        gone.alive = False

    def grow(self, topic: str, count: int) -> None:
        self.counts[topic] = count
        for each in list(self.applications.values()):
            self.tell(each, MetadataRefreshed(counts=self.counts))

    def settle(self) -> None:
        """Go on until nothing happens any more but heartbeats."""
        quiet_since = self.now
        while self.now - quiet_since < 2 * SESSION_S:
            before = (self.coordinator.generation, self._holdings())
            self.finish_steps()
            self.pass_time(1.0)
            if before != (self.coordinator.generation, self._holdings()) or self._is_busy():
                quiet_since = self.now
            assert self.now < 10_000, "the group does not come to rest"
        self.finish_steps()

    def finish_steps(self) -> None:
        taken = 0
        while self.steps:
            self.take_step(0)
            taken += 1
            assert taken < 5_000, "the group does not come to rest"

    def take_step(self, number: int) -> None:
        self.steps.pop(number % len(self.steps))()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.coordinator.pass_time(self.now)
        for each in list(self.applications.values()):
            if each.polls and not each.callbacks:
                self.tell(each, PollBegan())
                self.tell(each, PollEnded())
            if each.membership.wake_at <= self.now:
                self.tell(each, TimePassed())
            assert each.membership.wake_at > self.now

    # the machinery

    def tell(self, application: Application, event: Event) -> None:
        if not application.alive:
            return
        actions = application.membership.handle(event, self.now)
        application.membership.check_invariants()
        for action in actions:
            self._perform(application, action)

    def _perform(self, application: Application, action: Action) -> None:
        match action:
            case FindCoordinator():
                self.steps.append(partial(self.tell, application, CoordinatorFound()))
            case SendRequest():
                self.steps.append(partial(self._deliver, application, action))
            case ComputeAssignment():
                assignment = action.assignor.assign(self.counts, action.members)
                computed = AssignmentComputed(
                    request_id=action.request_id, assignment=assignment, counts=dict(self.counts)
                )
                self.steps.append(partial(self.tell, application, computed))
            case RunCallback():
                application.callbacks.append(action)
                self.steps.append(partial(self._run_callback, application))
            case Left():
                application.left = True
            case Fail():
                application.failure = action.error

    def _deliver(self, application: Application, action: SendRequest) -> None:
        if application.alive:
            answer = partial(self._answer, application, action.request_id)
            self.coordinator.ask(action.request, answer, self.now)

    def _answer(self, application: Application, request_id: int, response: Any) -> None:
        event: Event
        match response:
            case JoinGroupResponse():
                event = JoinAnswered(request_id=request_id, response=response)
            case HeartbeatResponse():
                code = ErrorCode(response.error_code)
                event = HeartbeatAnswered(request_id=request_id, code=code)
            case LeaveGroupResponse():
                event = LeaveAnswered(request_id=request_id)
            case None:
                event = RequestFailed(request_id=request_id)
            case _:
                event = SyncAnswered(request_id=request_id, response=response)
        self.steps.append(partial(self.tell, application, event))

    def _run_callback(self, application: Application) -> None:
        if not application.alive:
            return
        action = application.callbacks.pop(0)
        if action.kind is CallbackKind.ASSIGNED:
            for other in self.applications.values():
                self.overlaps += other.held & action.partitions
            assert not application.held & action.partitions
            application.held |= action.partitions
            self.moves += len(action.partitions)
        else:
            assert action.partitions <= application.held
            application.held -= action.partitions
        self.tell(application, CallbackDone())

    def _holdings(self) -> dict[str, frozenset[TopicPartition]]:
        return {name: frozenset(each.held) for name, each in self.applications.items()}

    def _is_busy(self) -> bool:
        calm = (MemberState.STABLE, MemberState.UNJOINED, MemberState.FAILED)
        return any(each.membership.state not in calm for each in self.applications.values())
