"""Static members (KIP-345): restarts, fencing, and assignments that stay (KIP-814)."""

from dataclasses import replace

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import Completion, Decision
from sparklog.executors.groups.records import GroupRecord, read_record
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from sparklog.wire.protocol.messages.leave_group import MemberIdentity
from sparklog.wire.protocol.messages.sync_group import SyncGroupResponse
from tests.unit.executors.groups.group_rig import (
    CONFIG,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY,
    GroupRig,
    commit,
    heartbeat,
    join,
    leave,
    responses_of,
    sync,
)


def stable_rig() -> GroupRig:
    """A stable group of the static members a (the leader) and b."""
    rig = GroupRig()
    rig.send(join(instance="a"), 9)
    rig.send(join(instance="b"), 9)
    rig.finish_initial_rebalance()
    rig.send(sync("a-uuid1", 1, {"a-uuid1": b"A", "b-uuid2": b"B"}), 5)
    rig.send(sync("b-uuid2", 1), 5)
    return rig


def test_a_restarted_leader_keeps_its_place_and_skips_the_assignment() -> None:
    rig = stable_rig()
    decision = rig.send(join(instance="a"), 9)
    response = JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a-uuid3",
        skip_assignment=True,
        member_id="a-uuid3",
        members=(
            JoinGroupResponseMember(
                member_id="b-uuid2", group_instance_id="b", metadata=RANGE.metadata
            ),
            JoinGroupResponseMember(
                member_id="a-uuid3", group_instance_id="a", metadata=RANGE.metadata
            ),
        ),
    )
    assert decision == Decision(
        records=decision.records, completions=(Completion(request_id=5, response=response),)
    )
    (record,) = map(read_record, decision.records)
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    assert {each.member_id: each.assignment for each in record.value.members} == {
        "a-uuid3": b"A",
        "b-uuid2": b"B",
    }
    assert rig.state == "Stable"
    assert rig.ask(sync("a-uuid3", 1, instance="a"), 5).assignment == b"A"


def test_an_older_client_is_told_that_its_old_self_leads() -> None:
    rig = stable_rig()
    (response,) = responses_of(rig.send(join(instance="a"), 8))
    assert response == JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="a-uuid1",
        member_id="a-uuid3",
    )


def test_the_old_member_id_is_fenced() -> None:
    rig = stable_rig()
    rig.send(join(instance="b"), 9)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    old = "b-uuid2"
    assert rig.ask(heartbeat(old, 1, instance="b"), 4).error_code == fenced
    assert rig.ask(sync(old, 1, instance="b"), 5).error_code == fenced
    assert rig.ask(join(old, instance="b"), 9).error_code == fenced
    (left,) = rig.ask(leave(MemberIdentity(member_id=old, group_instance_id="b")), 5).members
    assert left.error_code == fenced
    response = rig.ask(commit({("t", 0): 1}, old, 1, group_instance_id="b"), 9)
    assert response.topics[0].partitions[0].error_code == fenced
    assert rig.ask(heartbeat(old, 1), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_with_another_selected_protocol_makes_the_group_rebalance() -> None:
    rig = GroupRig()
    rig.send(join(instance="a", protocols=(STICKY, RANGE)), 9)
    rig.finish_initial_rebalance()
    rig.send(sync("a-uuid1", 1, {"a-uuid1": b"A"}), 5)
    (response,) = responses_of(rig.send(join(instance="a", protocols=(RANGE, STICKY)), 9))
    assert (response.generation_id, response.protocol_name) == (2, "range")
    assert not response.skip_assignment


def test_a_restart_with_metadata_that_the_record_has_no_room_for_begins_a_generation() -> None:
    rig = GroupRig(replace(CONFIG, group_bytes_max=2_000))
    rig.send(join(instance="a"), 9)
    rig.finish_initial_rebalance()
    rig.send(sync("a-uuid1", 1, {"a-uuid1": bytes(1_500)}), 5)
    larger = JoinGroupRequestProtocol(name="range", metadata=bytes(1_000))
    decision = rig.send(join(instance="a", protocols=(larger,)), 9)
    (response,) = responses_of(decision)
    assert (response.generation_id, decision.records) == (2, ())


def test_a_restart_before_the_assignment_begins_a_new_generation() -> None:
    rig = stable_rig()
    rig.send(join("a-uuid1", instance="a"), 9)
    rig.send(join("b-uuid2", instance="b"), 9)
    assert rig.send(sync("b-uuid2", 2), 5) == Decision()
    fenced, *others = responses_of(rig.send(join(instance="b"), 9))
    assert fenced == SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
    assert others == []
    assert rig.state == "PreparingRebalance"
    joined = responses_of(rig.send(join("a-uuid1", instance="a"), 9))
    assert [each.generation_id for each in joined] == [3, 3]


def test_a_restart_during_a_rebalance_fences_the_join_that_waits() -> None:
    rig = stable_rig()
    rig.send(join("a-uuid1", instance="a"), 9)
    (fenced,) = responses_of(rig.send(join(instance="a"), 9))
    assert fenced == JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id="a-uuid1")
    joined = responses_of(rig.send(join("b-uuid2", instance="b"), 9))
    assert sorted(each.member_id for each in joined) == ["a-uuid3", "b-uuid2"]


def test_a_static_member_that_does_not_rejoin_stays_until_its_session_ends() -> None:
    rig = GroupRig()
    rig.send(join(instance="a", session_ms=100_000), 9)
    rig.send(join(instance="b", session_ms=100_000), 9)
    rig.finish_initial_rebalance()
    rig.send(sync("a-uuid1", 1), 5)
    rig.send(sync("b-uuid2", 1), 5)
    rig.send(join("a-uuid1", instance="a", session_ms=100_000), 9)
    (response,) = responses_of(rig.advance(REBALANCE_MS))
    assert [each.member_id for each in response.members] == ["a-uuid1", "b-uuid2"]


def test_static_members_of_which_none_rejoins_are_waited_for() -> None:
    rig = stable_rig()
    rig.send(heartbeat("b-uuid2", 1), 4)
    third = rig.new_member()
    rig.send(join(third), 9)
    rig.send(leave(third), 5)
    for _ in range(3):
        assert rig.advance(SESSION_MS // 4).records == ()
    assert rig.state == "PreparingRebalance"
    (written,) = rig.advance(SESSION_MS // 4).records
    assert rig.state == "Empty"
    assert written.value is not None


def test_an_administrator_removes_a_member_by_its_instance_id() -> None:
    rig = stable_rig()
    named = MemberIdentity(group_instance_id="b")
    unknown = MemberIdentity(group_instance_id="c")
    response = responses_of(rig.send(leave(named, unknown), 5))[0]
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert [each.member_id for each in rig.described().members] == ["a-uuid1"]


def test_a_new_coordinator_knows_the_replaced_member() -> None:
    rig = stable_rig()
    rig.send(join(instance="b", protocols=(RANGE,)), 9)
    rig.load()
    assert rig.ask(heartbeat("b-uuid3", 1, instance="b"), 4).error_code == ErrorCode.NONE
    assert rig.ask(sync("b-uuid3", 1), 5).assignment == b"B"
