"""SyncGroup, Heartbeat and LeaveGroup, and the ends of sessions."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import Completion, Decision
from sparklog.executors.groups.record_schemas import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from sparklog.executors.groups.records import GroupRecord, read_record
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from sparklog.wire.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.unit.executors.groups.group_rig import (
    CONFIG,
    GROUP,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    WALL_MS,
    GroupRig,
    answer,
    heartbeat,
    join,
    leave,
    responses_of,
    sync,
)

NOTHING = Decision()


def joined_rig() -> tuple[GroupRig, str, str]:
    """A group in CompletingRebalance: the leader and a follower."""
    rig = GroupRig()
    rig.send(join(), 3)
    rig.send(join(), 3)
    rig.finish_initial_rebalance()
    return rig, "app-uuid1", "app-uuid2"


# -- SyncGroup


def test_members_wait_for_the_assignments_of_the_leader() -> None:
    rig, leader, follower = joined_rig()
    assert rig.send(sync(follower, 1), 5) == NOTHING
    decision = rig.send(sync(leader, 1, {leader: b"L", follower: b"F", "stranger": b"S"}), 5)

    def assigned(assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type="consumer", protocol_name="range", assignment=assignment
        )

    assert decision.completions == (
        Completion(request_id=4, response=assigned(b"L")),
        Completion(request_id=3, response=assigned(b"F")),
    )
    (record,) = decision.records
    assert read_record(record) == GroupRecord(
        GroupMetadataKey(group=GROUP),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader=leader,
            current_state_timestamp=WALL_MS + rig.now_ms,
            members=tuple(
                MemberMetadata(
                    member_id=member_id,
                    client_id="app",
                    client_host="/h",
                    rebalance_timeout=REBALANCE_MS,
                    session_timeout=SESSION_MS,
                    subscription=RANGE.metadata,
                    assignment=assignment,
                )
                for member_id, assignment in ((leader, b"L"), (follower, b"F"))
            ),
        ),
    )
    assert rig.state == "Stable"
    assert rig.ask(sync(follower, 1), 5) == assigned(b"F")


def test_a_member_without_an_assignment_gets_an_empty_one() -> None:
    rig, leader, follower = joined_rig()
    rig.send(sync(leader, 1, {leader: b"L"}), 5)
    assert rig.ask(sync(follower, 1), 5).assignment == b""


@pytest.mark.parametrize(
    ("body_of", "code"),
    [
        (lambda leader: sync(leader, 1, group=""), ErrorCode.INVALID_GROUP_ID),
        (lambda leader: sync(leader, 1, group="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda leader: sync("stranger", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda leader: sync(leader, 1, instance="i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda leader: sync(leader, 0), ErrorCode.ILLEGAL_GENERATION),
        (lambda leader: sync(leader, 2), ErrorCode.ILLEGAL_GENERATION),
        (lambda leader: sync(leader, 1, protocol_type="x"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (lambda leader: sync(leader, 1, protocol="x"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_sync_of_another_generation_is_refused(
    body_of: Callable[[str], SyncGroupRequest], code: ErrorCode
) -> None:
    rig, leader, _ = joined_rig()
    assert rig.ask(body_of(leader), 5) == SyncGroupResponse(error_code=code)


def test_a_sync_during_a_rebalance_is_refused() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    rig.send(join(leader), 9)
    refused = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert rig.ask(sync(follower, 1), 5) == refused


def test_a_leader_that_does_not_sync_in_time_is_removed() -> None:
    rig = GroupRig()
    for _ in range(2):
        rig.send(join(session_ms=600_000), 3)
    rig.finish_initial_rebalance()
    rig.send(sync("app-uuid2", 1), 5)
    assert rig.advance(REBALANCE_MS - 1) == NOTHING
    assert responses_of(rig.advance(1)) == [
        SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    ]
    (response,) = responses_of(rig.send(join("app-uuid2", session_ms=600_000), 9))
    assert [each.member_id for each in response.members] == ["app-uuid2"]


def test_a_follower_that_does_not_sync_in_time_is_removed() -> None:
    rig = GroupRig()
    for _ in range(2):
        rig.send(join(session_ms=600_000), 3)
    rig.finish_initial_rebalance()
    rig.send(sync("app-uuid1", 1), 5)
    rig.advance(REBALANCE_MS)
    assert rig.state == "PreparingRebalance"
    assert [each.member_id for each in rig.described().members] == ["app-uuid1"]


def test_a_repeated_sync_replaces_the_one_that_waits() -> None:
    rig, leader, follower = joined_rig()
    rig.send(sync(follower, 1), 5)
    refused = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    assert rig.send(sync(follower, 1), 5).completions == (
        Completion(request_id=3, response=refused),
    )
    decision = rig.send(sync(leader, 1), 5)
    assert [each.request_id for each in decision.completions] == [5, 4]


def test_assignments_that_the_record_has_no_room_for_begin_a_new_generation() -> None:
    rig = GroupRig(replace(CONFIG, group_bytes_max=2_000))
    rig.send(join(), 3)
    rig.finish_initial_rebalance()
    decision = rig.send(sync("app-uuid1", 1, {"app-uuid1": bytes(2_000)}), 5)
    assert responses_of(decision) == [SyncGroupResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert (decision.records, rig.state) == ((), "PreparingRebalance")


# -- Heartbeat and sessions


@pytest.mark.parametrize(
    ("body_of", "code"),
    [
        (lambda leader: heartbeat(leader, 1), ErrorCode.NONE),
        (lambda leader: heartbeat(leader, 0), ErrorCode.ILLEGAL_GENERATION),
        (lambda leader: heartbeat("stranger", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda leader: heartbeat(leader, 1, group="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda leader: heartbeat(leader, 1, group=""), ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_heartbeats_are_answered_at_once(
    body_of: Callable[[str], HeartbeatRequest], code: ErrorCode
) -> None:
    rig, leader, _ = joined_rig()
    response = HeartbeatResponse(error_code=code)
    assert rig.send(body_of(leader), 4) == answer(3, response, at_once=True)


def test_a_heartbeat_without_a_decision_keeps_a_member() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    beat = heartbeat(leader, 1)
    for _ in range(5):
        assert rig.advance(SESSION_MS - 1) == NOTHING
        assert rig.machine.answer(beat, rig.now) == HeartbeatResponse()
    assert rig.advance(SESSION_MS).records
    assert rig.machine.answer(beat, rig.now) is None


def test_whoever_has_something_to_learn_needs_a_decision() -> None:
    rig, leader, _ = joined_rig()
    assert rig.machine.answer(heartbeat(leader, 1), rig.now) == HeartbeatResponse()
    assert rig.machine.answer(heartbeat(leader, 2), rig.now) is None
    assert rig.machine.answer(heartbeat("stranger", 1), rig.now) is None
    assert rig.machine.answer(leave(leader), rig.now) is None
    rig.send(join(), 3)
    assert rig.state == "PreparingRebalance"
    assert rig.machine.answer(heartbeat(leader, 1), rig.now) is None


def test_heartbeats_keep_a_member() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    for _ in range(5):
        assert rig.advance(SESSION_MS - 1) == NOTHING
        assert rig.ask(heartbeat(leader, 1), 4).error_code == ErrorCode.NONE
    (record,) = rig.advance(SESSION_MS).records
    assert read_record(record) == GroupRecord(
        GroupMetadataKey(group=GROUP),
        GroupMetadataValue(
            protocol_type="consumer", generation=2, current_state_timestamp=WALL_MS + rig.now_ms
        ),
    )
    assert rig.state == "Empty"


def test_the_end_of_a_session_makes_the_others_rebalance() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    rig.advance(SESSION_MS - 1)
    rig.send(heartbeat(follower, 1), 4)
    assert rig.advance(1) == NOTHING
    assert rig.state == "PreparingRebalance"
    (response,) = responses_of(rig.send(join(follower), 9))
    assert (response.leader, response.generation_id) == (follower, 2)
    assert leader not in [each.member_id for each in response.members]


def test_a_session_that_ends_completes_the_rebalance_that_waits_for_it() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    other = JoinGroupRequestProtocol(name="range", metadata=b"other")
    rig.send(join(follower, protocols=(other,)), 9)
    (response,) = responses_of(rig.advance(SESSION_MS))
    assert (response.leader, response.generation_id) == (follower, 2)
    assert leader not in [each.member_id for each in response.members]


def test_several_sessions_that_end_together_empty_the_group_once() -> None:
    rig = GroupRig()
    rig.stable(5)
    (record,) = rig.advance(10 * SESSION_MS).records
    decoded = read_record(record)
    assert isinstance(decoded, GroupRecord)
    assert decoded.value is not None
    assert (decoded.value.members, decoded.value.generation) == ((), 2)


# -- LeaveGroup


def test_a_member_leaves_and_the_others_rebalance() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    response = LeaveGroupResponse(members=(MemberResponse(member_id=leader),))
    assert rig.ask(leave(leader), 5) == response
    assert rig.state == "PreparingRebalance"
    (joined,) = responses_of(rig.send(join(follower), 9))
    assert joined.leader == follower


def test_the_last_member_leaves_an_empty_group() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    (record,) = rig.send(leave(leader), 5).records
    decoded = read_record(record)
    assert isinstance(decoded, GroupRecord)
    assert decoded.value == GroupMetadataValue(
        protocol_type="consumer", generation=2, current_state_timestamp=WALL_MS + rig.now_ms
    )


def test_several_members_leave_with_an_error_for_each() -> None:
    rig = GroupRig()
    first, second, third = rig.stable(3)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    pending = rig.new_member()
    named = (first, "stranger", second, pending, first)
    assert rig.ask(leave(*named), 5) == LeaveGroupResponse(
        members=tuple(
            MemberResponse(member_id=each, error_code=code)
            for each, code in zip(named, (0, unknown, 0, 0, unknown), strict=True)
        )
    )
    assert [each.member_id for each in rig.described().members] == [third]


def test_a_member_that_leaves_while_its_join_waits_is_refused() -> None:
    rig = GroupRig()
    first, second = rig.stable(2)
    rig.send(join(first), 9)
    decision = rig.send(leave(first), 5)
    assert responses_of(decision) == [
        JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID),
        LeaveGroupResponse(members=(MemberResponse(member_id=first),)),
    ]
    assert [each.member_id for each in rig.described().members] == [second]


@pytest.mark.parametrize(
    ("body", "version", "response"),
    [
        (leave("m", group=""), 5, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)),
        (
            leave(MemberIdentity(member_id="m", group_instance_id="i")),
            5,
            LeaveGroupResponse(
                members=(
                    MemberResponse(
                        member_id="m",
                        group_instance_id="i",
                        error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                    ),
                )
            ),
        ),
    ],
)
def test_nobody_leaves_an_unknown_group(
    body: LeaveGroupRequest, version: int, response: LeaveGroupResponse
) -> None:
    assert GroupRig().ask(body, version) == response
