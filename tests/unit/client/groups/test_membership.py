"""The state machine of a member, one event after the other, with all the actions that follow."""

from dataclasses import replace
from typing import Any

import pytest

from sparklog.client.groups.assignors import ASSIGNORS, assignors_named
from sparklog.client.groups.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from sparklog.client.groups.member_events import (
    Action,
    AssignmentComputed,
    CallbackDone,
    CallbackKind,
    ComputationFailed,
    ComputeAssignment,
    CoordinatorFound,
    CoordinatorNotFound,
    Event,
    Fail,
    FindCoordinator,
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
    RunCallback,
    SendRequest,
    SubscriptionChanged,
    SyncAnswered,
    TimePassed,
)
from sparklog.client.groups.membership import Membership
from sparklog.errors import ErrorCode, KafkaError
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest
from sparklog.wire.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

A = frozenset({"a"})
A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
REVOKED, ASSIGNED, LOST = CallbackKind.REVOKED, CallbackKind.ASSIGNED, CallbackKind.LOST


class Story:
    """A member and the time; ``last`` is the last request that it sent."""

    def __init__(self, *assignors: str, instance: str | None = None) -> None:
        self.now = 100.0
        self.last: Any = None
        self.member = Membership(
            MemberSettings(
                group_id="g",
                assignors=assignors_named(assignors or ("range",)),
                group_instance_id=instance,
                session_timeout_s=10,
                heartbeat_interval_s=3,
                max_poll_interval_s=60,
            )
        )

    def __call__(self, event: Event) -> list[Action]:
        actions = self.member.handle(event, self.now)
        self.member.check_invariants()
        sent = [action for action in actions if isinstance(action, SendRequest)]
        self.last = sent[-1] if sent else self.last
        return actions

    def later(self, seconds: float) -> list[Action]:
        self.now += seconds
        return self(TimePassed())

    def sent(self, actions: list[Action]) -> Any:
        """The request that is the only action."""
        (action,) = actions
        assert isinstance(action, SendRequest)
        return action.request

    # answers to the last request

    def joined(self, code: ErrorCode = ErrorCode.NONE, **fields: Any) -> list[Action]:
        given = {"generation_id": 1, "protocol_name": "range", "leader": "l", "member_id": "m"}
        response = JoinGroupResponse(error_code=code, **{**given, **fields})
        return self(JoinAnswered(request_id=self.last.request_id, response=response))

    def synced(self, *partitions: TopicPartition, code: ErrorCode = ErrorCode.NONE) -> list[Action]:
        response = SyncGroupResponse(error_code=code, assignment=encode_assignment(partitions))
        return self(SyncAnswered(request_id=self.last.request_id, response=response))

    def beaten(self, code: ErrorCode) -> list[Action]:
        return self(HeartbeatAnswered(request_id=self.last.request_id, code=code))

    # ways to a state

    def join(self) -> "Story":
        """Subscribed, and asked to join with a member id."""
        self(SubscriptionChanged(topics=A))
        self(PollBegan())
        self(CoordinatorFound())
        self.joined(ErrorCode.MEMBER_ID_REQUIRED, member_id="m")
        return self

    def stable(self, *partitions: TopicPartition) -> "Story":
        """A member, not the leader, with these partitions."""
        self.join()
        self.joined(protocol_name=self.member.settings.assignors[0].name)
        self.synced(*partitions)
        self(CallbackDone())
        assert self.member.state is MemberState.STABLE
        assert self.member.owned == set(partitions)
        return self


def callback(kind: CallbackKind, *partitions: TopicPartition) -> RunCallback:
    return RunCallback(kind=kind, partitions=frozenset(partitions))


def test_a_member_asks_for_its_id_before_it_joins() -> None:
    story = Story()
    assert story(SubscriptionChanged(topics=A)) == [FindCoordinator()]
    request = story.sent(story(CoordinatorFound()))
    assert (type(request), request.member_id, request.group_id) == (JoinGroupRequest, "", "g")
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, 60_000)
    assert request.protocol_type == "consumer"
    again = story.sent(story.joined(ErrorCode.MEMBER_ID_REQUIRED, member_id="m"))
    assert again.member_id == "m"
    sync = story.sent(story.joined())
    assert isinstance(sync, SyncGroupRequest)
    assert (sync.member_id, sync.generation_id, sync.protocol_name) == ("m", 1, "range")
    assert sync.assignments == ()
    assert story.synced(A0, A1) == [callback(ASSIGNED, A0, A1)]
    assert story(CallbackDone()) == []
    assert story.member.state is MemberState.STABLE


def test_the_leader_computes_the_assignment_of_all() -> None:
    story = Story().join()
    subscription = Subscription(topics=("a",))
    members = tuple(
        JoinGroupResponseMember(member_id=name, metadata=encode_subscription(subscription))
        for name in ("m", "n")
    )
    (action,) = story.joined(leader="m", members=members)
    assert action == ComputeAssignment(
        request_id=action.request_id,  # type: ignore[union-attr]
        assignor=ASSIGNORS["range"],
        members={"m": subscription, "n": subscription},
    )
    assert isinstance(action, ComputeAssignment)
    computed = AssignmentComputed(
        request_id=action.request_id, assignment={"m": [A0], "n": [A1]}, counts={"a": 2}
    )
    sync = story.sent(story(computed))
    assert sync.assignments == (
        SyncGroupRequestAssignment(member_id="m", assignment=encode_assignment([A0])),
        SyncGroupRequestAssignment(member_id="n", assignment=encode_assignment([A1])),
    )
    assert story.synced(A0) == [callback(ASSIGNED, A0)]
    story(CallbackDone())
    assert story(MetadataRefreshed(counts={"a": 2, "b": 9})) == []
    assert story(MetadataRefreshed(counts={"a": 3})) == [callback(REVOKED, A0)]


def test_a_static_leader_that_comes_back_skips_the_assignment() -> None:
    story = Story(instance="i").join()
    sync = story.sent(story.joined(leader="m", skip_assignment=True))
    assert (sync.assignments, sync.group_instance_id) == ((), "i")
    story.synced(A0)
    story(CallbackDone())
    assert story(MetadataRefreshed(counts={"a": 2})) == []  # the first look is the measure
    assert story(MetadataRefreshed(counts={"a": 3})) == [callback(REVOKED, A0)]


def test_an_eager_member_gives_up_everything_before_it_joins_again() -> None:
    story = Story().stable(A0, A1)
    assert isinstance(story.sent(story.later(3)), HeartbeatRequest)
    assert story.beaten(ErrorCode.REBALANCE_IN_PROGRESS) == [callback(REVOKED, A0, A1)]
    assert isinstance(story.sent(story.later(3)), HeartbeatRequest)  # until poll has revoked
    assert story.beaten(ErrorCode.REBALANCE_IN_PROGRESS) == []
    join = story.sent(story(CallbackDone()))
    assert isinstance(join, JoinGroupRequest)
    assert join.member_id == "m"
    assert decode_subscription(join.protocols[0].metadata).owned == frozenset()


def test_a_cooperative_member_keeps_what_does_not_move() -> None:
    story = Story("cooperative-sticky").stable(A0, A1)
    story.later(3)
    join = story.sent(story.beaten(ErrorCode.REBALANCE_IN_PROGRESS))
    told = decode_subscription(join.protocols[0].metadata)
    assert (told.owned, told.generation) == ({A0, A1}, 1)
    story.joined(generation_id=2, protocol_name="cooperative-sticky")
    assert story.synced(A0) == [callback(REVOKED, A1), callback(ASSIGNED)]
    assert story(CallbackDone()) == []
    again = story.sent(story(CallbackDone()))
    assert decode_subscription(again.protocols[0].metadata).owned == {A0}
    story.joined(generation_id=3, protocol_name="cooperative-sticky")
    assert story.synced(A0, A2) == [callback(ASSIGNED, A2)]


def test_a_cooperative_member_revokes_topics_that_it_no_longer_wants() -> None:
    story = Story("cooperative-sticky").stable(A0)
    assert story(SubscriptionChanged(topics=frozenset({"b"}))) == [callback(REVOKED, A0)]
    join = story.sent(story(CallbackDone()))
    assert decode_subscription(join.protocols[0].metadata).topics == ("b",)


def test_sticky_members_send_their_last_assignment() -> None:
    story = Story("sticky").stable(A0, A1)
    story.later(3)
    story.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
    join = story.sent(story(CallbackDone()))
    told = decode_subscription(join.protocols[0].metadata)
    assert told.user_data == ASSIGNORS["sticky"].user_data([A0, A1], 1)


def test_a_subscription_that_changed_during_the_join_is_joined_again() -> None:
    story = Story().join()
    assert story(SubscriptionChanged(topics=frozenset({"b"}))) == []
    story.joined()
    assert story.synced(A0) == [callback(ASSIGNED)]  # nobody wants a any more
    join = story.sent(story(CallbackDone()))
    assert decode_subscription(join.protocols[0].metadata).topics == ("b",)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_member_that_was_thrown_out_has_lost_its_partitions(code: ErrorCode) -> None:
    story = Story("cooperative-sticky").stable(A0)
    story.later(3)
    assert story.beaten(code) == [callback(LOST, A0)]
    join = story.sent(story(CallbackDone()))
    assert join.member_id == ("" if code == ErrorCode.UNKNOWN_MEMBER_ID else "m")


def test_a_commit_may_bring_the_news_that_the_member_is_out() -> None:
    story = Story().stable(A0)
    code = ErrorCode.UNKNOWN_MEMBER_ID
    assert story(MembershipLost(generation=0, code=code)) == []  # of an earlier generation
    assert story(MembershipLost(generation=1, code=code)) == [callback(LOST, A0)]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_moved_is_found_and_the_member_stays(code: ErrorCode) -> None:
    story = Story().stable(A0)
    story.later(3)
    assert story.beaten(code) == []
    assert story.later(0.1) == [FindCoordinator()]
    assert story(CoordinatorFound()) == []
    assert story.member.state is MemberState.STABLE
    assert isinstance(story.sent(story.later(3)), HeartbeatRequest)
    assert story.beaten(ErrorCode.NONE) == []


def test_a_coordinator_that_loads_is_asked_again_after_a_pause() -> None:
    story = Story().join()
    assert story.joined(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) == []
    assert story.member.wake_at == pytest.approx(story.now + 0.1)
    assert isinstance(story.sent(story.later(0.1)), JoinGroupRequest)


def test_pauses_grow_while_the_coordinator_is_not_found() -> None:
    story = Story()
    story(SubscriptionChanged(topics=A))
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    pauses = []
    for _ in range(6):
        assert story(CoordinatorNotFound(error=error)) == []
        pauses.append(round(story.member.wake_at - story.now, 3))
        assert story.later(pauses[-1]) == [FindCoordinator()]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.FENCED_INSTANCE_ID, "another consumer uses the group_instance_id 'i'"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "share none of the assignors range"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "does not allow session_timeout_ms=10000"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "the group 'g' refuses this member"),
    ],
)
def test_a_refusal_for_good_is_an_error(code: ErrorCode, words: str) -> None:
    story = Story(instance="i").join()
    (action,) = story.joined(code)
    assert isinstance(action, Fail)
    assert words in str(action.error)
    assert story.later(1000) == []
    assert story.member.wake_at == float("inf")
    # The application may subscribe again.
    assert isinstance(story.sent(story(SubscriptionChanged(topics=A))), JoinGroupRequest)


def test_a_fenced_member_has_lost_its_partitions() -> None:
    story = Story(instance="i").stable(A0)
    story.later(3)
    lost, failure = story.beaten(ErrorCode.FENCED_INSTANCE_ID)
    assert lost == callback(LOST, A0)
    assert isinstance(failure, Fail)


def test_a_refused_sync_joins_again() -> None:
    story = Story().join()
    story.joined()
    join = story.sent(story.synced(code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert (type(join), join.member_id) == (JoinGroupRequest, "m")


def test_a_lost_connection_joins_again_at_the_coordinator_found_anew() -> None:
    story = Story().join()
    assert story(RequestFailed(request_id=story.last.request_id)) == []
    assert story.later(0.1) == [FindCoordinator()]
    assert isinstance(story.sent(story(CoordinatorFound())), JoinGroupRequest)


def test_a_computation_that_fails_for_now_is_done_again() -> None:
    story = Story().join()
    (action,) = story.joined(leader="m")
    assert isinstance(action, ComputeAssignment)
    error = KafkaError(ErrorCode.NETWORK_EXCEPTION)
    assert story(ComputationFailed(request_id=action.request_id, error=error)) == []
    assert isinstance(story.sent(story.later(0.1)), JoinGroupRequest)


def test_heartbeats_without_answers_end_the_session_at_this_coordinator() -> None:
    story = Story().stable(A0)
    assert isinstance(story.sent(story.later(3)), HeartbeatRequest)
    assert story.later(6) == []  # one at a time
    assert story.later(1) == []
    assert story.later(0.1) == [FindCoordinator()]
    assert story.member.owned == {A0}


def test_at_its_wake_up_time_a_member_does_what_is_due() -> None:
    """Sums of floats round: a member that missed the time would wake up for ever."""
    for number in range(200):
        story = Story()
        settings = replace(
            story.member.settings,
            session_timeout_s=0.7,
            heartbeat_interval_s=0.6,
            max_poll_interval_s=1.5,
        )
        story.member, story.now = Membership(settings), 10.0 + number * 0.193980424042195
        story.stable(A0)
        story(PollEnded())
        for _ in range(4):
            story.now = story.member.wake_at
            for _ in range(2):  # what is due at the same time may take a wake-up each
                story(TimePassed())
            assert story.member.wake_at > story.now


def test_answers_to_requests_that_were_given_up_say_nothing() -> None:
    story = Story().join()
    stale = story.last.request_id
    story(RequestFailed(request_id=stale))
    story.later(0.1)
    story(CoordinatorFound())
    response = JoinGroupResponse(generation_id=7, member_id="x", leader="x", protocol_name="range")
    assert story(JoinAnswered(request_id=stale, response=response)) == []
    assert story.member.generation == -1


def test_a_member_whose_application_does_not_poll_leaves() -> None:
    story = Story().stable(A0)
    story(PollEnded())
    story.beaten(ErrorCode.NONE)
    actions: list[Action] = []
    for _ in range(59):
        actions += story.later(1)
        story.beaten(ErrorCode.NONE)
    assert {type(action.request) for action in actions if isinstance(action, SendRequest)} == {
        HeartbeatRequest
    }
    leave = story.sent(story.later(1))
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].member_id == leave.member_id == "m"
    assert "max.poll.interval.ms" in (leave.members[0].reason or "")
    assert story.later(1000) == []
    assert story(PollBegan()) == [callback(LOST, A0)]
    assert isinstance(story.sent(story(CallbackDone())), JoinGroupRequest)


def test_a_poll_that_waits_is_no_lack_of_polls() -> None:
    story = Story().stable(A0)
    for _ in range(200):
        assert not any(
            isinstance(action, SendRequest) and isinstance(action.request, LeaveGroupRequest)
            for action in story.later(1)
        )
        story.beaten(ErrorCode.NONE)


def test_a_member_that_unsubscribes_revokes_and_leaves() -> None:
    story = Story("cooperative-sticky").stable(A0)
    assert story(SubscriptionChanged(topics=None)) == [callback(REVOKED, A0)]
    leave = story.sent(story(CallbackDone()))
    assert isinstance(leave, LeaveGroupRequest)
    assert story(LeaveAnswered(request_id=story.last.request_id)) == [Left()]
    assert story.member.state is MemberState.UNJOINED
    assert story.later(1000) == []


def test_a_static_member_does_not_leave() -> None:
    story = Story(instance="i").stable(A0)
    assert story(SubscriptionChanged(topics=None)) == [callback(REVOKED, A0)]
    assert story(CallbackDone()) == [Left()]


def test_one_may_leave_before_one_has_joined() -> None:
    story = Story()
    assert story(SubscriptionChanged(topics=None)) == [Left()]
    story.join()
    leave = story.sent(story(SubscriptionChanged(topics=None)))
    assert isinstance(leave, LeaveGroupRequest)
    assert story(RequestFailed(request_id=story.last.request_id)) == [Left()]


def test_a_member_may_come_back_while_it_leaves() -> None:
    story = Story().stable()
    story(SubscriptionChanged(topics=None))
    assert story(SubscriptionChanged(topics=A)) == []
    join = story.sent(story(LeaveAnswered(request_id=story.last.request_id)))
    assert (type(join), join.member_id) == (JoinGroupRequest, "")
