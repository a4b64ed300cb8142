"""OffsetCommit, OffsetFetch and OffsetDelete."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import Completion, Decision
from sparklog.executors.groups.record_schemas import OffsetCommitKey, OffsetCommitValue
from sparklog.executors.groups.records import offset_record
from sparklog.slices import are_slices, run_through
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.executors.groups.group_rig import (
    GROUP,
    SESSION_MS,
    WALL_MS,
    GroupRig,
    commit,
    fetch,
    fetch_all,
    fetched,
    heartbeat,
    join,
    responses_of,
)

OLD_ID, NEW_ID = UUID(int=1), UUID(int=2)


def code_of(response: OffsetCommitResponse) -> int:
    (topic,) = response.topics
    (partition,) = topic.partitions
    return partition.error_code


def test_a_consumer_without_members_commits_to_a_new_group() -> None:
    rig = GroupRig()
    body = OffsetCommitRequest(
        group_id=GROUP,
        topics=(
            OffsetCommitRequestTopic(
                name="orders",
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=3,
                        committed_offset=42,
                        committed_leader_epoch=7,
                        committed_metadata="note",
                    ),
                ),
            ),
        ),
    )
    key = OffsetCommitKey(group=GROUP, topic="orders", partition=3)
    value = OffsetCommitValue(
        offset=42, leader_epoch=7, metadata="note", commit_timestamp=WALL_MS + rig.now_ms
    )
    response = OffsetCommitResponse(
        topics=(
            OffsetCommitResponseTopic(
                name="orders", partitions=(OffsetCommitResponsePartition(partition_index=3),)
            ),
        )
    )
    assert rig.send(body, 9) == Decision(
        records=(offset_record(key, value),),
        completions=(Completion(request_id=1, response=response),),
    )
    assert rig.described().group_state == "Empty"
    assert rig.ask(fetch(("orders", 3), ("orders", 4)), 9) == OffsetFetchResponse(
        groups=(
            OffsetFetchResponseGroup(
                group_id=GROUP,
                topics=(
                    OffsetFetchResponseTopics(
                        name="orders",
                        partitions=(
                            OffsetFetchResponsePartitions(
                                partition_index=3,
                                committed_offset=42,
                                committed_leader_epoch=7,
                                metadata="note",
                            ),
                            OffsetFetchResponsePartitions(
                                partition_index=4, committed_offset=-1, metadata=""
                            ),
                        ),
                    ),
                ),
            ),
        )
    )


def test_only_replay_makes_a_commit_visible() -> None:
    rig = GroupRig()
    rig.send(commit({("orders", 0): 1}), 9)
    decision = rig.decide(commit({("orders", 0): 2}), 9)
    assert fetched(rig) == {("orders", 0): 1}
    rig.machine.replay(decision.records[0])
    assert fetched(rig) == {("orders", 0): 2}


def test_a_member_commits_in_its_generation_and_lives_by_it() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    rig.advance(SESSION_MS - 1)
    (response,) = responses_of(rig.send(commit({("orders", 0): 5}, leader, 1), 8))
    assert code_of(response) == ErrorCode.NONE
    rig.advance(SESSION_MS - 1)
    assert rig.state == "Stable"


@pytest.mark.parametrize(
    ("generation", "fields", "code"),
    [
        (0, {}, ErrorCode.ILLEGAL_GENERATION),
        (2, {}, ErrorCode.ILLEGAL_GENERATION),
        (-1, {}, ErrorCode.ILLEGAL_GENERATION),
        (1, {"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (-1, {"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        (1, {"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_of_another_generation_is_refused(
    generation: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    fields = {"member_id": leader, **fields}
    body = commit({("orders", 0): 5}, generation=generation, **fields)
    assert code_of(rig.ask(body, 9)) == code


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_member_of_an_unknown_group_cannot_commit(version: int, code: ErrorCode) -> None:
    rig = GroupRig()
    assert code_of(rig.ask(commit({("orders", 0): 5}, "m", 1), version)) == code


def test_a_member_cannot_commit_before_it_has_its_assignment() -> None:
    rig = GroupRig()
    rig.send(join(), 3)
    rig.finish_initial_rebalance()
    body = commit({("orders", 0): 5}, "app-uuid1", 1)
    assert code_of(rig.ask(body, 9)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_can_commit_while_others_are_waited_for() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    rig.send(join(leader), 9)
    (response,) = responses_of(rig.send(commit({("orders", 0): 5}, follower, 1), 9))
    assert code_of(response) == ErrorCode.NONE


def test_metadata_that_is_too_long_is_refused_for_its_partition() -> None:
    rig = GroupRig()
    short, long = (
        OffsetCommitRequestPartition(partition_index=index, committed_metadata="ü" * size)
        for index, size in enumerate((4_096, 4_097))
    )
    topic = OffsetCommitRequestTopic(name="orders", partitions=(short, long))
    decision = rig.send(OffsetCommitRequest(group_id=GROUP, topics=(topic,)), 9)
    (response,) = responses_of(decision)
    assert [each.error_code for each in response.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert len(decision.records) == 1


def test_a_topic_name_that_no_record_has_room_for_is_refused() -> None:
    body = commit({("t" * 40_000, 0): 1})
    assert code_of(GroupRig().ask(body, 9)) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_commit_may_say_when_it_expires() -> None:
    rig = GroupRig()
    decision = rig.send(commit({("orders", 0): 5}, retention_time_ms=60_000), 2)
    value = OffsetCommitValue(
        offset=5,
        commit_timestamp=WALL_MS + rig.now_ms,
        expire_timestamp=WALL_MS + rig.now_ms + 60_000,
    )
    key = OffsetCommitKey(group=GROUP, topic="orders", partition=0)
    assert decision.records == (offset_record(key, value),)


def test_an_offset_belongs_to_the_topic_that_it_was_committed_for() -> None:
    rig = GroupRig()
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topic = OffsetCommitRequestTopic(name="orders", topic_id=OLD_ID, partitions=(partition,))
    rig.send(OffsetCommitRequest(group_id=GROUP, topics=(topic,)), 10)
    rig.load()
    for topic_id, expected in ((OLD_ID, 5), (NEW_ID, -1), (None, 5)):
        wanted = OffsetFetchRequestTopics(name="orders", topic_id=topic_id, partition_indexes=(0,))
        group = OffsetFetchRequestGroup(group_id=GROUP, topics=(wanted,))
        (found,) = rig.ask(OffsetFetchRequest(groups=(group,)), 10).groups
        assert found.topics[0].topic_id == topic_id
        assert found.topics[0].partitions[0].committed_offset == expected
    all_of_it = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GROUP),))
    (found,) = rig.ask(all_of_it, 10).groups
    assert found.topics[0].topic_id == OLD_ID


def test_an_unknown_group_has_no_offsets() -> None:
    rig = GroupRig()
    assert fetched(rig) == {}
    (found,) = rig.ask(fetch(("orders", 0)), 9).groups
    assert found.error_code == ErrorCode.NONE
    assert found.topics[0].partitions[0].committed_offset == -1
    assert rig.state == "Dead"


def test_offsets_survive_a_new_coordinator() -> None:
    rig = GroupRig()
    offsets = {("orders", 0): 5, ("orders", 1): 6, ("users", 0): 7}
    rig.send(commit(offsets), 9)
    rig.load()
    assert fetched(rig) == offsets


def test_group_ids_that_are_too_long_are_refused() -> None:
    rig, group = GroupRig(), "g" * 40_000
    invalid = ErrorCode.INVALID_GROUP_ID
    assert code_of(rig.ask(commit({("t", 0): 1}, group=group), 9)) == invalid
    assert rig.ask(fetch(group=group), 9).groups[0].error_code == invalid


def test_the_group_without_a_name_has_offsets_as_in_kafka() -> None:
    rig = GroupRig()
    rig.send(commit({("orders", 0): 5}, group=""), 9)
    assert fetched(rig, "") == {("orders", 0): 5}


# -- OffsetDelete


def delete(*partitions: tuple[str, int], group: str = GROUP) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic, partitions=(OffsetDeleteRequestPartition(partition_index=partition),)
            )
            for topic, partition in partitions
        ),
    )


def test_offsets_of_topics_without_subscribers_are_deleted() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    rig.send(commit({("orders", 0): 5, ("users", 0): 6}, leader, 1), 9)
    decision = rig.send(delete(("orders", 0), ("users", 0), ("users", 1)), 0)

    def topic(name: str, partition: int, code: ErrorCode) -> OffsetDeleteResponseTopic:
        return OffsetDeleteResponseTopic(
            name=name,
            partitions=(OffsetDeleteResponsePartition(partition_index=partition, error_code=code),),
        )

    assert responses_of(decision) == [
        OffsetDeleteResponse(
            topics=(
                topic("orders", 0, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
                topic("users", 0, ErrorCode.NONE),
                topic("users", 1, ErrorCode.NONE),
            )
        )
    ]
    key = OffsetCommitKey(group=GROUP, topic="users", partition=0)
    assert decision.records == (offset_record(key, None),)
    assert fetched(rig) == {("orders", 0): 5}


@pytest.mark.parametrize(
    ("group", "code"),
    [("", ErrorCode.INVALID_GROUP_ID), ("other", ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_offsets_of_an_unknown_group_cannot_be_deleted(group: str, code: ErrorCode) -> None:
    response = GroupRig().ask(delete(("t", 0), group=group), 0)
    assert response == OffsetDeleteResponse(error_code=code)


def test_offsets_of_groups_with_other_members_cannot_be_deleted() -> None:
    rig = GroupRig()
    (leader,) = rig.stable(protocol_type="connect")
    response = rig.ask(delete(("t", 0)), 0)
    assert response == OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    assert rig.ask(heartbeat(leader, 1), 4).error_code == ErrorCode.NONE


def test_many_offsets_are_told_in_slices_as_they_were_when_they_were_asked_for() -> None:
    rig = GroupRig()
    offsets = {("orders", each): each for each in range(1_200)}
    rig.send(commit(offsets), 9)
    (completion,) = rig.decide(fetch_all(), 9).completions
    rig.send(commit({("orders", 0): 99, ("users", 0): 1}), 9)
    slices = completion.response
    assert are_slices(slices)
    response = run_through(slices)
    assert isinstance(response, OffsetFetchResponse)
    (topic,) = response.groups[0].topics
    assert {
        ("orders", each.partition_index): each.committed_offset for each in topic.partitions
    } == (offsets)


def test_offsets_of_two_topics_of_one_name_are_told_by_id() -> None:
    rig = GroupRig()
    body = commit({("orders", 0): 5, ("orders", 1): 6, ("orders", 2): 7})
    [topic] = body.topics
    for part, topic_id in zip(topic.partitions, (OLD_ID, None, NEW_ID), strict=True):
        one = replace(topic, topic_id=topic_id, partitions=(part,))
        rig.send(replace(body, topics=(one,)), 10)
    (group,) = rig.ask(fetch_all(), 9).groups
    assert [(each.topic_id, each.partitions[0].committed_offset) for each in group.topics] == [
        (OLD_ID, 5),
        (None, 6),
        (NEW_ID, 7),
    ]


def test_the_tombstones_of_a_group_may_take_several_batches() -> None:
    """A partial deletion can be repeated."""
    rig = GroupRig()
    rig.send(commit({("orders", 0): 5}), 9)
    decision = rig.send(DeleteGroupsRequest(groups_names=(GROUP,)), 2)
    assert (len(decision.records), decision.divisible) == (2, True)
