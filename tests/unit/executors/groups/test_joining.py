"""JoinGroup: ids, initial rebalances, rejoins, protocols and limits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import Completion, Decision
from sparklog.wire.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupResponse
from tests.unit.executors.groups.group_rig import (
    CONFIG,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    STICKY,
    GroupRig,
    answer,
    heartbeat,
    join,
    leave,
    responses_of,
    sync,
)

NOTHING = Decision()


def refusal(code: ErrorCode, member_id: str = "", **fields: str | None) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, **fields)


def test_a_dynamic_member_gets_an_id_first() -> None:
    rig = GroupRig()
    assert rig.send(join(), 4) == answer(
        1, refusal(ErrorCode.MEMBER_ID_REQUIRED, "app-uuid1", protocol_name="")
    )
    assert rig.described().group_state == "Empty"
    assert rig.send(join("app-uuid1"), 4) == NOTHING
    assert rig.finish_initial_rebalance() == [
        JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer",
            protocol_name="range",
            leader="app-uuid1",
            member_id="app-uuid1",
            members=(JoinGroupResponseMember(member_id="app-uuid1", metadata=RANGE.metadata),),
        )
    ]
    assert rig.log == []


def test_an_id_that_is_not_used_is_forgotten_with_its_group() -> None:
    rig = GroupRig()
    member_id = rig.new_member()
    rig.advance(SESSION_MS)
    assert rig.state == "Dead"
    assert rig.ask(join(member_id), 9) == refusal(ErrorCode.UNKNOWN_MEMBER_ID, member_id)


def test_members_before_version_4_join_at_once() -> None:
    rig = GroupRig()
    assert rig.send(join(), 3) == NOTHING
    (response,) = rig.finish_initial_rebalance()
    assert (response.member_id, response.generation_id) == ("app-uuid1", 1)


def test_version_0_has_the_session_timeout_as_rebalance_timeout() -> None:
    rig = GroupRig()
    rig.send(join(rebalance_ms=-1), 0)
    rig.finish_initial_rebalance()
    rig.advance(SESSION_MS - 1)
    assert rig.state == "CompletingRebalance"
    decision = rig.advance(1)  # Both the session and the time for SyncGroup end.
    assert (rig.state, len(decision.records)) == ("Empty", 1)


def test_each_new_member_extends_the_initial_delay_up_to_the_rebalance_timeout() -> None:
    rig = GroupRig()
    first = rig.new_member(rebalance_ms=7_000)
    rig.send(join(first, rebalance_ms=7_000), 9)
    for _ in range(2):
        rig.advance(2_000)
        rig.send(join(rebalance_ms=7_000), 3)
        assert rig.advance(1_000) == NOTHING
    # 6,000 of 7,000 ms have passed, and the second member came in the second delay.
    assert rig.advance(999) == NOTHING
    assert len(responses_of(rig.advance(1))) == 3


def test_the_initial_delay_ends_early_when_no_member_comes() -> None:
    rig = GroupRig()
    rig.send(join(), 3)
    assert rig.machine.next_deadline_ms() == rig.now_ms + 3_000
    assert rig.advance(2_999) == NOTHING
    assert len(rig.advance(1).completions) == 1


def test_an_initial_rebalance_without_delay_ends_with_the_next_look_at_the_time() -> None:
    rig = GroupRig(replace(CONFIG, initial_rebalance_delay_ms=0))
    rig.send(join(), 3)
    assert rig.machine.next_deadline_ms() == rig.now_ms
    assert len(rig.advance(0).completions) == 1


def test_a_second_member_makes_the_group_rebalance() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    follower = rig.new_member()
    assert rig.send(join(follower), 9) == NOTHING
    assert rig.state == "PreparingRebalance"
    rebalancing = heartbeat(leader, 1)
    assert rig.ask(rebalancing, 4).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    to_leader, to_follower = responses_of(rig.send(join(leader), 9))
    assert to_leader == JoinGroupResponse(
        generation_id=2,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=leader,
        members=tuple(
            JoinGroupResponseMember(member_id=each, metadata=RANGE.metadata)
            for each in (leader, follower)
        ),
    )
    assert to_follower == JoinGroupResponse(
        generation_id=2,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=follower,
    )


def test_a_member_that_does_not_rejoin_in_time_is_removed_and_another_one_leads() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2, session_ms=1_000_000)
    rig.send(join(follower, session_ms=1_000_000, protocols=(RANGE, STICKY)), 9)
    assert rig.advance(REBALANCE_MS - 1) == NOTHING
    (response,) = responses_of(rig.advance(1))
    assert (response.leader, response.generation_id) == (follower, 2)
    assert [each.member_id for each in response.members] == [follower]
    unknown = refusal(ErrorCode.UNKNOWN_MEMBER_ID, leader)
    assert rig.ask(join(leader), 9) == unknown


def test_a_pending_member_holds_up_a_rebalance_until_its_session_ends() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    rig.new_member()
    assert rig.send(join(leader), 9) == NOTHING
    assert rig.advance(SESSION_MS - 1) == NOTHING
    (response,) = responses_of(rig.advance(1))
    assert response.generation_id == 2


# -- rejoins


def test_a_follower_that_rejoins_a_stable_group_gets_the_generation() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    expected = JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=follower,
    )
    assert rig.ask(join(follower), 9) == expected
    assert rig.state == "Stable"


def test_a_follower_with_other_metadata_makes_the_group_rebalance() -> None:
    rig = GroupRig()
    _, follower = rig.stable(2)
    assert rig.send(join(follower, protocols=(RANGE, STICKY)), 9) == NOTHING
    assert rig.state == "PreparingRebalance"


def test_a_leader_that_rejoins_makes_the_group_rebalance() -> None:
    rig = GroupRig()
    leader, _ = rig.stable(2)
    assert rig.send(join(leader), 9) == NOTHING
    assert rig.state == "PreparingRebalance"


def test_a_rejoin_before_the_assignment_gets_the_generation_again() -> None:
    rig = GroupRig()
    rig.send(join(), 3)
    (first,) = rig.finish_initial_rebalance()
    assert rig.ask(join(first.member_id), 9) == first


def test_other_metadata_before_the_assignment_sends_all_members_back() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    rig.send(join(leader), 9)
    rig.send(join(follower), 9)
    assert rig.send(sync(follower, 2), 5) == NOTHING
    decision = rig.send(join(leader, protocols=(RANGE, STICKY)), 9)
    assert responses_of(decision) == [SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)]
    assert rig.state == "PreparingRebalance"


def test_a_repeated_join_replaces_the_one_that_waits() -> None:
    rig = GroupRig()
    leader, _ = rig.stable(2)
    rig.send(join(leader), 9)
    decision = rig.send(join(leader), 9)
    assert responses_of(decision) == [refusal(ErrorCode.REBALANCE_IN_PROGRESS, leader)]


def test_a_new_member_may_wait_five_minutes() -> None:
    rig = GroupRig(replace(CONFIG, max_session_timeout_ms=1_000_000))
    rig.stable(session_ms=900_000, rebalance_ms=900_000)
    rig.send(join(rebalance_ms=900_000), 3)
    assert rig.advance(299_999) == NOTHING
    assert responses_of(rig.advance(1)) == [refusal(ErrorCode.UNKNOWN_MEMBER_ID, protocol_name="")]


def test_a_member_whose_client_has_gone_stays_until_its_session_ends() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    follower = rig.new_member()
    rig.send(join(follower), 9)
    rig.machine.withdraw(max(rig.responses) + 1)
    (response,) = responses_of(rig.send(join(leader), 9))
    assert [each.member_id for each in response.members] == [leader, follower]
    rig.send(sync(leader, 2), 5)
    for _ in range(2):
        rig.advance(SESSION_MS // 2)
        rig.send(heartbeat(leader, 2), 4)
    assert rig.state == "PreparingRebalance"
    assert [each.member_id for each in rig.described().members] == [leader]


# -- refusals


@pytest.mark.parametrize(
    ("request_body", "version", "response"),
    [
        (join(group=""), 9, refusal(ErrorCode.INVALID_GROUP_ID)),
        (join(group="g" * 40_000), 9, refusal(ErrorCode.INVALID_GROUP_ID)),
        (join(session_ms=5_999), 9, refusal(ErrorCode.INVALID_SESSION_TIMEOUT)),
        (join(session_ms=1_800_001), 9, refusal(ErrorCode.INVALID_SESSION_TIMEOUT)),
        (join(session_ms=0), 2, refusal(ErrorCode.INVALID_SESSION_TIMEOUT, protocol_name="")),
        (join("m"), 9, refusal(ErrorCode.UNKNOWN_MEMBER_ID, "m")),
        (join(protocols=()), 9, refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)),
        (join(protocol_type=""), 9, refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)),
        (join(protocol_type="t" * 40_000), 9, refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)),
        (join(instance="i" * 40_000), 9, refusal(ErrorCode.INVALID_REQUEST)),
    ],
)
def test_a_join_of_no_group_is_refused(
    request_body: JoinGroupRequest, version: int, response: JoinGroupResponse
) -> None:
    rig = GroupRig()
    assert rig.ask(request_body, version) == response
    assert list(rig.machine._groups) == []


@pytest.mark.parametrize(
    ("request_of", "code"),
    [
        (lambda known: join("stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda known: join(known, instance="i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda known: join(known, protocols=(STICKY,)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (lambda known: join(protocols=(STICKY,)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (lambda known: join(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_of_a_group_that_it_does_not_fit_is_refused(
    request_of: Callable[[str], JoinGroupRequest], code: ErrorCode
) -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    body = request_of(leader)
    assert rig.ask(body, 9) == refusal(code, body.member_id)
    assert rig.state == "Stable"


# -- protocols


def test_the_protocol_with_most_votes_among_the_common_ones_is_selected() -> None:
    rig = GroupRig()
    other = JoinGroupRequestProtocol(name="other", metadata=b"")
    for preferred in ((RANGE, STICKY), (other, STICKY, RANGE), (STICKY, RANGE)):
        rig.send(join(protocols=preferred), 3)
    assert {each.protocol_name for each in rig.finish_initial_rebalance()} == {"sticky"}


def test_of_protocols_with_one_name_the_first_counts() -> None:
    rig = GroupRig()
    twice = (RANGE, JoinGroupRequestProtocol(name="range", metadata=b"second"))
    rig.send(join(protocols=twice), 3)
    (response,) = rig.finish_initial_rebalance()
    assert [each.metadata for each in response.members] == [RANGE.metadata]


# -- limits


def test_a_full_group_takes_no_more_members() -> None:
    rig = GroupRig(replace(CONFIG, size_max=2))
    leader, follower = rig.stable(2)
    assert rig.ask(join(), 9) == refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
    rig.send(join(leader), 9)
    assert len(responses_of(rig.send(join(follower), 9))) == 2


def test_members_that_come_last_leave_a_group_above_its_limit() -> None:
    rig = GroupRig()
    first, second, third = rig.stable(3)
    rig.config = replace(CONFIG, size_max=2)
    rig.load()
    assert rig.state == "PreparingRebalance"
    rig.send(join(third), 9)
    rig.send(join(second), 9)
    *joined, refused = responses_of(rig.send(join(first), 9))
    assert refused == refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert sorted(each.member_id for each in joined) == sorted([second, third])


def test_metadata_that_the_record_has_no_room_for_is_refused() -> None:
    rig = GroupRig(replace(CONFIG, group_bytes_max=10_000))
    large = JoinGroupRequestProtocol(name="range", metadata=bytes(6_000))
    rig.stable(protocols=(large,))
    second = rig.new_member(protocols=(RANGE,))
    assert rig.ask(join(second, protocols=(large,)), 9) == refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert (rig.state, len(rig.described().members)) == ("Stable", 1)


def test_a_long_member_id_counts_when_its_client_id_is_short_now() -> None:
    rig = GroupRig(replace(CONFIG, group_bytes_max=300_000))
    ids = [rig.ask(join(), 9, client=f"{each}" * 30_000).member_id for each in range(3)]
    assert [rig.send(join(each), 9) for each in ids[:2]] == [NOTHING, NOTHING]
    assert rig.ask(join(ids[2]), 9) == refusal(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert [each.member_id for each in rig.described().members] == ids[:2]


def test_protocols_that_take_too_much_memory_are_refused() -> None:
    rig = GroupRig(replace(CONFIG, group_bytes_max=10_000))
    many = tuple(
        JoinGroupRequestProtocol(name=f"p{each}", metadata=bytes(1_000)) for each in range(50)
    )
    assert rig.ask(join(protocols=many), 3) == refusal(
        ErrorCode.GROUP_MAX_SIZE_REACHED, protocol_name=""
    )


def test_ids_that_no_member_uses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = GroupRig()
    monkeypatch.setattr("sparklog.executors.groups.joining.PENDING_MEMBERS_MAX", 2)
    rig.new_member()
    rig.new_member()
    assert rig.ask(join(), 9) == refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_a_long_client_id_is_cut_for_the_member_id() -> None:
    rig = GroupRig()
    member_id = rig.ask(join(), 9, client="ü" * 16_380).member_id
    assert len(member_id.encode()) <= 32_767
    assert member_id.endswith("-uuid1")


# -- the end of a state machine


def test_requests_that_wait_are_refused_when_the_state_machine_ends() -> None:
    rig = GroupRig()
    first, second = rig.stable(2)
    rig.send(join(first), 9)
    assert rig.send(leave(second), 5).completions[0].response == JoinGroupResponse(
        generation_id=2,
        protocol_type="consumer",
        protocol_name="range",
        leader=first,
        member_id=first,
        members=(JoinGroupResponseMember(member_id=first, metadata=RANGE.metadata),),
    )
    third = rig.new_member()
    rig.send(join(third), 9)
    waiting = max(rig.responses) + 1
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert rig.machine.unload(error) == (
        Completion(request_id=waiting, response=error, at_once=True),
    )
    assert rig.machine.unload(error) == ()
