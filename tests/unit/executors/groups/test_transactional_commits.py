"""TxnOffsetCommit: who may commit in a transaction, and what is written."""

from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import Decision, TransactionalProducer
from sparklog.executors.groups.record_schemas import OffsetCommitKey, OffsetCommitValue
from sparklog.executors.groups.records import offset_record
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tests.unit.executors.groups.group_rig import (
    CONFIG,
    GROUP,
    SESSION_MS,
    WALL_MS,
    GroupRig,
    commit,
    fetched,
    join,
    sync,
)

PRODUCER = TransactionalProducer(producer_id=7, producer_epoch=0)
KEY = OffsetCommitKey(group=GROUP, topic="t", partition=0)
#: The version of TxnOffsetCommit does not matter to a decision.
VERSION = 5


def codes_of(decision: Decision) -> list[int]:
    (completion,) = decision.completions
    response = completion.response
    return [each.error_code for topic in response.topics for each in topic.partitions]  # type: ignore[union-attr]


def send(rig: GroupRig, member_id: str = "", generation: int = -1, **fields: object) -> int:
    """The error code of a commit in the transaction; a refused commit writes nothing."""
    body = commit({("t", 0): 9}, member_id, generation, **fields)  # type: ignore[arg-type]
    decision = rig.send_in_transaction(PRODUCER, body, VERSION)
    (code,) = codes_of(decision)
    assert bool(decision.records) is (code == ErrorCode.NONE)
    return code


def end(rig: GroupRig, *, committed: bool = True) -> None:
    rig.machine.replay_transaction_end(PRODUCER.producer_id, committed=committed)
    rig.machine.check_invariants()


def test_a_commit_is_visible_with_the_marker() -> None:
    rig = GroupRig()
    decision = rig.send_in_transaction(PRODUCER, commit({("t", 0): 9}, metadata="m"), VERSION)
    value = OffsetCommitValue(offset=9, metadata="m", commit_timestamp=WALL_MS + rig.now_ms)
    assert decision.records == (offset_record(KEY, value),)
    assert codes_of(decision) == [ErrorCode.NONE]
    assert (rig.state, fetched(rig)) == ("Empty", {})
    end(rig)
    assert (rig.state, fetched(rig)) == ("Empty", {("t", 0): 9})


def test_a_group_that_only_an_aborted_transaction_knew_is_gone() -> None:
    rig = GroupRig()
    assert send(rig) == ErrorCode.NONE
    end(rig, committed=False)
    assert (rig.state, fetched(rig)) == ("Dead", {})


def test_a_commit_for_a_member_needs_its_group_generation_and_instance() -> None:
    rig = GroupRig()
    assert send(rig, "member", 1) == ErrorCode.ILLEGAL_GENERATION
    rig.send(join(instance="i"), 9)
    member = rig.finish_initial_rebalance()[0].member_id
    rig.send(sync(member, 1, {member: b""}), 5)
    assert send(rig, member, 1) == ErrorCode.NONE
    assert send(rig, member, 1, group_instance_id="i") == ErrorCode.NONE
    assert send(rig, member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert send(rig, member, 2) == ErrorCode.ILLEGAL_GENERATION
    assert send(rig, member, -1) == ErrorCode.ILLEGAL_GENERATION
    assert send(rig, "stranger", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(rig, "", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(rig, member, 1, group_instance_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert send(rig, "stranger", 1, group_instance_id="i") == ErrorCode.FENCED_INSTANCE_ID


def test_a_producer_that_cannot_name_a_member_commits_to_any_group() -> None:
    """Before version 3 there are no members in the request; the transaction alone fences."""
    rig = GroupRig()
    rig.stable()
    assert send(rig) == ErrorCode.NONE


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_a_commit_is_taken_during_a_rebalance(state: str) -> None:
    """The generation fences: the commit of an earlier one would be refused."""
    rig = GroupRig()
    (member,) = rig.stable()
    rejoining = rig.new_member()
    rig.send(join(rejoining), 9)
    generation = 1
    if state == "CompletingRebalance":
        rig.send(join(member), 9)
        generation = 2
    assert rig.state == state
    assert send(rig, member, generation) == ErrorCode.NONE


def test_a_commit_does_not_prolong_the_session() -> None:
    rig = GroupRig()
    (member,) = rig.stable()
    rig.advance(SESSION_MS - 1)
    assert send(rig, member, 1) == ErrorCode.NONE
    rig.advance(1)
    assert rig.state == "Empty"


def test_metadata_that_is_too_long_is_refused_alone() -> None:
    rig = GroupRig(replace(CONFIG, metadata_bytes_max=3))
    body = commit({("t", 0): 9}, metadata="long")
    decision = rig.send_in_transaction(PRODUCER, body, VERSION)
    assert (decision.records, codes_of(decision)) == ((), [ErrorCode.OFFSET_METADATA_TOO_LARGE])


def test_a_group_that_is_being_deleted_takes_no_commit_in_a_transaction() -> None:
    rig = GroupRig()
    rig.send(commit({("t", number): 1 for number in range(5_000)}), 9)
    rig.decide(DeleteGroupsRequest(groups_names=(GROUP,)), 2)
    decision = rig.decide(commit({("t", 0): 9}), VERSION, producer=PRODUCER)
    (completion,) = decision.completions
    assert decision.records == ()
    assert completion.response.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # type: ignore[union-attr]


def test_a_pending_offset_can_be_deleted() -> None:
    rig = GroupRig()
    send(rig)
    partitions = tuple(OffsetDeleteRequestPartition(partition_index=each) for each in (0, 1))
    topics = (OffsetDeleteRequestTopic(name="t", partitions=partitions),)
    decision = rig.send(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)
    assert decision.records == (offset_record(KEY, None),)
    end(rig)
    assert fetched(rig) == {}
