"""Offsets end by topic and by group, in turns that other requests come between."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRecord, Decision, DeletedTopic, StoredTopic
from sparklog.executors.groups import REMOVED_AT_ONCE
from sparklog.executors.groups.record_schemas import OffsetCommitKey
from sparklog.executors.groups.records import group_record, offset_record
from sparklog.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.protocol.messages.offset_commit import OffsetCommitRequest
from sparklog.wire.protocol.messages.offset_delete import OffsetDeleteRequest
from sparklog.wire.protocol.schema import Request
from tests.unit.executors.groups.group_rig import (
    GROUP,
    GroupRig,
    commit,
    fetch_all,
    fetched,
    heartbeat,
    join,
)

OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)
#: Offsets of a group that is removed in three turns.
MANY = 2 * REMOVED_AT_ONCE + 10


def tombstone(topic: str, partition: int, group: str = GROUP) -> CoordinatorRecord:
    return offset_record(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def commit_for(
    topic_id: UUID, offsets: dict[tuple[str, int], int], group: str = GROUP
) -> OffsetCommitRequest:
    body = commit(offsets, group=group)
    return replace(body, topics=tuple(replace(each, topic_id=topic_id) for each in body.topics))


def delete_topics(rig: GroupRig, *topics: DeletedTopic) -> None:
    rig.machine.topics_deleted(topics, rig.now)


def turns(rig: GroupRig) -> list[Decision]:
    """Let what is due be done; the decisions."""
    decisions = []
    while (deadline_ms := rig.machine.next_deadline_ms()) is not None and deadline_ms <= rig.now_ms:
        decisions.append(rig.advance(0))
    return decisions


def delete(rig: GroupRig, *groups: str) -> Decision:
    return rig.send(DeleteGroupsRequest(groups_names=groups), 2)


def deleted(*results: tuple[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=tuple(DeletableGroupResult(group_id=g, error_code=code) for g, code in results)
    )


# -- topics


def test_topics_that_are_deleted_lose_their_offsets_in_all_groups() -> None:
    rig = GroupRig()
    for group in ("a", "b"):
        rig.send(commit({("orders", 0): 5, ("users", 0): 6}, group=group), 9)
    delete_topics(rig, DeletedTopic("orders", OLD_ID), DeletedTopic("unknown", NEW_ID))
    assert turns(rig) == [
        Decision(records=(tombstone("orders", 0, "a"), tombstone("orders", 0, "b")))
    ]
    assert fetched(rig, "a") == fetched(rig, "b") == {("users", 0): 6}


def test_a_commit_for_a_topic_survives_the_deletion_of_an_earlier_topic_of_its_name() -> None:
    rig = GroupRig()
    rig.send(commit_for(OLD_ID, {("orders", 0): 5, ("orders", 1): 6}), 9)
    delete_topics(rig, DeletedTopic("orders", OLD_ID))
    rig.send(commit_for(NEW_ID, {("orders", 0): 0}), 9)  # before the turn
    assert [each.records for each in turns(rig)] == [(tombstone("orders", 1),)]
    assert fetched(rig) == {("orders", 0): 0}


def test_the_topics_of_all_offsets_are_known_after_a_load() -> None:
    rig = GroupRig()
    rig.send(commit_for(OLD_ID, {("orders", 0): 5, ("users", 0): 1}), 9)
    rig.send(commit_for(NEW_ID, {("orders", 1): 5}, "b"), 9)
    rig.send(commit({("others", 1): 5}, group="b"), 9)
    rig.load()
    assert sorted(rig.machine.stored_topics(), key=str) == sorted(
        [
            StoredTopic("orders", OLD_ID),
            StoredTopic("users", OLD_ID),
            StoredTopic("orders", NEW_ID),
            StoredTopic("others", None),
        ],
        key=str,
    )


def test_many_offsets_of_a_deleted_topic_end_in_turns() -> None:
    rig = GroupRig()
    rig.send(commit({("orders", each): 1 for each in range(MANY)}), 9)
    rig.send(commit({("users", 0): 1}), 9)
    delete_topics(rig, DeletedTopic("orders", OLD_ID))
    first = rig.advance(0)
    delete_topics(rig, DeletedTopic("users", OLD_ID))  # meanwhile
    decisions = [first, *turns(rig)]
    assert [len(each.records) for each in decisions] == [REMOVED_AT_ONCE, REMOVED_AT_ONCE, 11]
    assert fetched(rig) == {}


# -- groups


def test_a_group_with_many_offsets_is_deleted_in_turns_and_answered_at_the_end() -> None:
    rig = GroupRig()
    rig.send(commit({("t", each): 1 for each in range(MANY)}), 9)
    first = delete(rig, "unknown", GROUP)
    request_id = rig.last_request_id
    decisions = [first, *turns(rig)]
    assert [len(each.records) for each in decisions] == [REMOVED_AT_ONCE, REMOVED_AT_ONCE, 11]
    assert [bool(each.completions) for each in decisions] == [False, False, True]
    assert decisions[-1].records[-1] == group_record(GROUP, None)
    assert rig.responses[request_id] == deleted(
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND), (GROUP, ErrorCode.NONE)
    )
    assert (rig.state, fetched(rig)) == ("Dead", {})
    rig.load()
    assert (rig.state, fetched(rig)) == ("Dead", {})


@pytest.mark.parametrize(
    "body",
    [commit({("t", 0): 9}), join(), join(instance="i"), fetch_all()],
    ids=["commit", "join", "static join", "fetch"],
)
def test_a_group_takes_nothing_while_it_is_deleted(body: Request) -> None:
    rig = GroupRig()
    rig.send(commit({("t", each): 1 for each in range(MANY)}), 9)
    delete(rig, GROUP)
    response = rig.ask(body, 9)
    assert isinstance(response, KafkaError)
    assert response.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert rig.ask(heartbeat("m", 1), 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    delete(rig, GROUP)
    again = rig.last_request_id
    rig.send(commit({("t", 0): 7}, group="other"), 9)
    turns(rig)
    assert rig.responses[again] == deleted((GROUP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert (rig.state, fetched(rig, "other")) == ("Dead", {("t", 0): 7})
    rig.send(commit({("t", 0): 9}), 9)
    assert fetched(rig) == {("t", 0): 9}


def test_offsets_are_not_deleted_from_a_group_that_is_deleted() -> None:
    rig = GroupRig()
    rig.send(commit({("t", each): 1 for each in range(MANY)}), 9)
    delete(rig, GROUP)
    refused = rig.ask(OffsetDeleteRequest(group_id=GROUP), 0)
    assert refused.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_client_that_goes_does_not_stop_the_deletion() -> None:
    rig = GroupRig()
    rig.send(commit({("t", each): 1 for each in range(MANY)}), 9)
    delete(rig, GROUP)
    rig.machine.withdraw(rig.last_request_id)
    assert [each.completions for each in turns(rig)] == [(), ()]
    assert rig.state == "Dead"


def test_a_deletion_is_refused_when_the_state_machine_ends_and_can_be_repeated() -> None:
    rig = GroupRig()
    rig.send(commit({("t", each): 1 for each in range(MANY)}), 9)
    delete(rig, GROUP)
    [refused] = rig.machine.unload(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert refused.request_id == rig.last_request_id
    rig.load()
    assert len(fetched(rig)) == MANY - REMOVED_AT_ONCE
    delete(rig, GROUP)
    turns(rig)
    assert (rig.state, fetched(rig)) == ("Dead", {})


def test_two_deletions_take_turns() -> None:
    rig = GroupRig()
    for group in ("a", "b"):
        rig.send(commit({("t", each): 1 for each in range(MANY)}, group=group), 9)
    delete(rig, "a")
    first = rig.last_request_id
    delete(rig, "b")
    turns(rig)
    assert rig.responses[first] == deleted(("a", ErrorCode.NONE))
    assert rig.responses[first + 1] == deleted(("b", ErrorCode.NONE))


def test_an_id_that_no_group_can_have_does_not_refuse_the_others() -> None:
    rig = GroupRig()
    rig.send(commit({("t", 0): 1}), 9)
    too_long = "g" * 40_000
    response = delete(rig, too_long, GROUP).completions[0].response
    assert response == deleted((too_long, ErrorCode.INVALID_GROUP_ID), (GROUP, ErrorCode.NONE))
