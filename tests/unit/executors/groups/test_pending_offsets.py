"""Offsets of transactions: what is replayed, what is fetched meanwhile, and what the end leaves."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import DeletedTopic, StoredTopic
from sparklog.executors.groups.record_schemas import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.executors.groups.records import group_record, offset_record
from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.offset_fetch import OffsetFetchRequest
from tests.unit.executors.groups.group_rig import (
    CONFIG,
    GROUP,
    WALL_MS,
    GroupRig,
    commit,
    fetch,
    fetch_all,
    fetched,
)

TOPIC_ID = UUID(int=1)
RETENTION_MS = 3_600_000
SHORT = replace(CONFIG, retention_ms=RETENTION_MS, retention_check_interval_ms=60_000)


def key(partition: int = 0, group: str = GROUP) -> OffsetCommitKey:
    return OffsetCommitKey(group=group, topic="t", partition=partition)


def commit_in(
    rig: GroupRig, producer_id: int, offset: int, partition: int = 0, group: str = GROUP
) -> None:
    """What TxnOffsetCommit writes."""
    value = OffsetCommitValue(offset=offset, commit_timestamp=WALL_MS, topic_id=TOPIC_ID)
    record = offset_record(key(partition, group), value)
    rig.machine.replay_in_transaction(record, producer_id)


def end(rig: GroupRig, producer_id: int, *, committed: bool) -> None:
    rig.machine.replay_transaction_end(producer_id, committed=committed)
    rig.machine.check_invariants()


def fetched_stable(rig: GroupRig, request: OffsetFetchRequest) -> list[tuple[int, int, int]]:
    """Partitions with their offsets and error codes, of a client that wants stable ones."""
    (group,) = rig.ask(replace(request, require_stable=True), 9).groups
    return [
        (each.partition_index, each.committed_offset, each.error_code)
        for topic in group.topics
        for each in topic.partitions
    ]


UNSTABLE = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)


@pytest.mark.parametrize("committed", [False, True])
def test_an_offset_is_unstable_until_its_transaction_ends(committed: bool) -> None:
    rig = GroupRig()
    rig.send(commit({("t", 0): 5, ("t", 1): 6}), 9)
    commit_in(rig, 7, 9)
    commit_in(rig, 7, 1, partition=2)
    wanted = fetch(("t", 0), ("t", 1), ("t", 2), ("t", 3))
    assert fetched(rig) == {("t", 0): 5, ("t", 1): 6}
    assert fetched_stable(rig, fetch_all()) == [(0, -1, UNSTABLE), (1, 6, 0)]
    assert fetched_stable(rig, wanted) == [
        (0, -1, UNSTABLE),
        (1, 6, 0),
        (2, -1, UNSTABLE),
        (3, -1, 0),
    ]
    end(rig, 7, committed=committed)
    ended = {("t", 0): 9, ("t", 1): 6, ("t", 2): 1}
    assert fetched(rig) == (ended if committed else {("t", 0): 5, ("t", 1): 6})
    assert all(code == 0 for _, _, code in fetched_stable(rig, wanted))


def test_the_end_of_an_unknown_transaction_changes_nothing() -> None:
    rig = GroupRig()
    commit_in(rig, 7, 9)
    end(rig, 8, committed=True)
    assert fetched_stable(rig, fetch(("t", 0))) == [(0, -1, UNSTABLE)]


def test_the_last_offset_of_a_transaction_counts() -> None:
    rig = GroupRig()
    commit_in(rig, 7, 9)
    commit_in(rig, 7, 12)
    end(rig, 7, committed=True)
    assert fetched(rig) == {("t", 0): 12}


def test_an_offset_that_was_written_later_is_not_replaced() -> None:
    rig = GroupRig()
    commit_in(rig, 7, 9)
    rig.send(commit({("t", 0): 20}), 9)
    end(rig, 7, committed=True)
    assert fetched(rig) == {("t", 0): 20}


@pytest.mark.parametrize("order", [(7, 8), (8, 7)])
def test_of_two_transactions_the_one_that_wrote_last_counts(order: tuple[int, int]) -> None:
    rig = GroupRig()
    commit_in(rig, 7, 9)
    commit_in(rig, 8, 12)
    end(rig, order[0], committed=True)
    assert fetched_stable(rig, fetch(("t", 0))) == [(0, -1, UNSTABLE)]
    end(rig, order[1], committed=True)
    assert fetched_stable(rig, fetch(("t", 0))) == [(0, 12, 0)]


def test_a_transaction_that_is_aborted_overtakes_nothing() -> None:
    rig = GroupRig()
    commit_in(rig, 7, 9)
    commit_in(rig, 8, 12)
    end(rig, 8, committed=False)
    end(rig, 7, committed=True)
    assert fetched(rig) == {("t", 0): 9}


@pytest.mark.parametrize("committed", [False, True])
def test_a_new_coordinator_keeps_what_is_not_decided(committed: bool) -> None:
    rig = GroupRig()
    rig.machine = rig.new_machine()
    commit_in(rig, 7, 9)
    rig.machine.loaded(rig.now)
    rig.machine.check_invariants()
    assert rig.state == "Empty"
    assert rig.machine.stored_topics() == (StoredTopic("t", TOPIC_ID),)
    assert fetched_stable(rig, fetch(("t", 0))) == [(0, -1, UNSTABLE)]
    end(rig, 7, committed=committed)
    assert fetched(rig) == ({("t", 0): 9} if committed else {})
    assert rig.state == ("Empty" if committed else "Dead")


def test_a_group_record_does_not_wait_for_a_transaction() -> None:
    rig = GroupRig()
    rig.machine = rig.new_machine()
    record = group_record(GROUP, GroupMetadataValue(protocol_type="consumer", generation=3))
    rig.machine.replay_in_transaction(record, 7)
    rig.machine.loaded(rig.now)
    assert rig.state == "Empty"


def test_a_deleted_group_has_no_pending_offsets() -> None:
    rig = GroupRig()
    rig.send(commit({("t", 0): 5}), 9)
    commit_in(rig, 7, 9)
    commit_in(rig, 7, 9, partition=1)
    commit_in(rig, 7, 4, group="other")
    decision = rig.send(DeleteGroupsRequest(groups_names=(GROUP,)), 2)
    assert decision.records == (
        offset_record(key(), None),
        offset_record(key(1), None),
        group_record(GROUP, None),
    )
    end(rig, 7, committed=True)
    assert (rig.state, fetched(rig, "other")) == ("Dead", {("t", 0): 4})


def test_a_deleted_topic_has_no_pending_offsets() -> None:
    rig = GroupRig()
    commit_in(rig, 7, 9)
    rig.machine.topics_deleted([DeletedTopic("t", TOPIC_ID)], rig.now)
    assert rig.advance(0).records == (offset_record(key(), None),)
    end(rig, 7, committed=True)
    assert fetched(rig) == {}


def test_an_offset_does_not_expire_while_it_is_unstable() -> None:
    rig = GroupRig(SHORT)
    rig.send(commit({("t", 0): 5, ("t", 1): 6}), 9)
    commit_in(rig, 7, 9)
    assert rig.advance(RETENTION_MS).records == (offset_record(key(1), None),)
    assert rig.advance(RETENTION_MS).records == ()
    end(rig, 7, committed=False)
    assert rig.advance(RETENTION_MS).records == (
        offset_record(key(), None),
        group_record(GROUP, None),
    )


def test_a_group_with_pending_offsets_alone_stays() -> None:
    rig = GroupRig(SHORT)
    commit_in(rig, 7, 9)
    assert rig.advance(RETENTION_MS).records == ()
    assert rig.state == "Empty"
