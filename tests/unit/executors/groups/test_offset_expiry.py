"""The expiry of committed offsets and of empty groups."""

from dataclasses import replace

import pytest

from sparklog.executors.groups.record_schemas import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.executors.groups.records import group_record, offset_record
from sparklog.wire.protocol.messages.join_group import JoinGroupRequestProtocol
from tests.unit.executors.groups.group_rig import (
    CONFIG,
    GROUP,
    START_MS,
    WALL_MS,
    GroupRig,
    commit,
    fetched,
    heartbeat,
    join,
    leave,
)

RETENTION_MS = 3_600_000
CHECK_MS = 60_000
SESSION_MS = 1_800_000
SHORT = replace(CONFIG, retention_ms=RETENTION_MS, retention_check_interval_ms=CHECK_MS)


def tombstone(topic: str, partition: int, group: str = GROUP) -> object:
    return offset_record(OffsetCommitKey(group=group, topic=topic, partition=partition), None)


def live_until(rig: GroupRig, member_id: str, end_ms: int) -> list[object]:
    """Let time pass in steps with heartbeats; the records that were written meanwhile."""
    written: list[object] = []
    while rig.now_ms < end_ms:
        written += rig.advance(min(CHECK_MS, end_ms - rig.now_ms)).records
        rig.send(heartbeat(member_id, 1), 4)
    return written


def test_offsets_of_a_simple_group_expire_by_their_commit() -> None:
    rig = GroupRig(SHORT)
    rig.send(commit({("t", 0): 1}), 9)
    rig.advance(CHECK_MS)
    rig.send(commit({("t", 1): 1}), 9)
    while rig.now_ms + CHECK_MS < START_MS + RETENTION_MS:
        assert rig.advance(CHECK_MS).records == ()
    assert rig.advance(CHECK_MS).records == (tombstone("t", 0),)
    assert rig.state == "Empty"
    assert rig.advance(CHECK_MS).records == (tombstone("t", 1), group_record(GROUP, None))
    assert rig.state == "Dead"


def test_offsets_of_an_empty_group_expire_by_the_end_of_its_last_member() -> None:
    rig = GroupRig(SHORT)
    (member_id,) = rig.stable(session_ms=SESSION_MS)
    rig.send(commit({("orders", 0): 1, ("users", 0): 2}, member_id, 1), 9)
    live_until(rig, member_id, rig.now_ms + RETENTION_MS - 1)
    left_ms = rig.now_ms
    rig.send(leave(member_id), 5)
    rig.load()
    while rig.now_ms + CHECK_MS < left_ms + RETENTION_MS:
        assert rig.advance(CHECK_MS).records == ()
    assert rig.advance(CHECK_MS).records == (
        tombstone("orders", 0),
        tombstone("users", 0),
        group_record(GROUP, None),
    )
    rig.load()
    assert (rig.state, fetched(rig)) == ("Dead", {})


def test_a_stable_group_keeps_the_offsets_of_its_subscriptions() -> None:
    rig = GroupRig(SHORT)
    (member_id,) = rig.stable(session_ms=SESSION_MS)
    rig.send(commit({("orders", 0): 1, ("users", 0): 2}, member_id, 1), 9)
    end_ms = rig.now_ms + RETENTION_MS
    assert live_until(rig, member_id, end_ms - 1) == []
    assert live_until(rig, member_id, end_ms + CHECK_MS) == [tombstone("users", 0)]
    assert fetched(rig) == {("orders", 0): 1}


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_a_group_of_unknown_subscriptions_keeps_all_offsets(protocol_type: str) -> None:
    rig = GroupRig(SHORT)
    protocol = JoinGroupRequestProtocol(name="p", metadata=b"?")
    (member_id,) = rig.stable(
        session_ms=SESSION_MS, protocols=(protocol,), protocol_type=protocol_type
    )
    rig.send(commit({("users", 0): 2}, member_id, 1), 9)
    assert live_until(rig, member_id, rig.now_ms + 2 * RETENTION_MS) == []


def test_a_group_that_rebalances_keeps_all_offsets() -> None:
    rig = GroupRig(SHORT)
    key = OffsetCommitKey(group=GROUP, topic="users", partition=0)
    rig.log = [offset_record(key, OffsetCommitValue(commit_timestamp=1))]
    rig.load()
    rig.send(join(rebalance_ms=2 * CHECK_MS), 3)
    rig.advance(CHECK_MS - 1)
    rig.send(join(rebalance_ms=2 * CHECK_MS), 3)
    assert rig.advance(1).records == ()
    assert fetched(rig) == {("users", 0): 0}


def test_an_offset_may_have_an_expiry_of_its_own() -> None:
    rig = GroupRig(SHORT)
    rig.send(commit({("t", 0): 1}, retention_time_ms=CHECK_MS), 4)
    rig.send(commit({("t", 1): 1}, retention_time_ms=3 * RETENTION_MS), 4)
    assert rig.advance(CHECK_MS).records == (tombstone("t", 0),)
    assert rig.advance(2 * RETENTION_MS).records == ()
    assert rig.advance(RETENTION_MS).records == (tombstone("t", 1), group_record(GROUP, None))


def test_an_empty_group_without_offsets_ends_at_the_next_check() -> None:
    rig = GroupRig(SHORT)
    (member_id,) = rig.stable()
    rig.send(leave(member_id), 5)
    assert rig.advance(CHECK_MS).records == (group_record(GROUP, None),)
    assert rig.state == "Dead"


def test_a_group_that_a_member_is_about_to_join_stays() -> None:
    rig = GroupRig(SHORT)
    (member_id,) = rig.stable()
    rig.send(leave(member_id), 5)
    rig.advance(START_MS + CHECK_MS - 1 - rig.now_ms)
    pending = rig.new_member()
    assert rig.advance(1).records == ()
    rig.send(join(pending), 9)
    (response,) = rig.finish_initial_rebalance()
    assert response.generation_id == 3


def test_a_group_without_a_time_of_its_last_change_expires_by_its_commits() -> None:
    rig = GroupRig(SHORT)
    key = OffsetCommitKey(group=GROUP, topic="t", partition=0)
    empty = GroupMetadataValue(protocol_type="consumer", generation=3)
    rig.log = [
        group_record(GROUP, empty),
        offset_record(key, OffsetCommitValue(commit_timestamp=WALL_MS + rig.now_ms)),
    ]
    rig.load()
    assert rig.advance(RETENTION_MS - 1).records == ()
    assert rig.advance(CHECK_MS).records == (tombstone("t", 0), group_record(GROUP, None))


def check(rig: GroupRig) -> list[tuple[object, ...]]:
    """Let everything be done that is due; the records by turn."""
    written = []
    while (deadline_ms := rig.machine.next_deadline_ms()) is not None and deadline_ms <= rig.now_ms:
        written.append(rig.advance(0).records)
    return written


def test_a_long_check_goes_on_in_further_looks_at_the_time() -> None:
    rig = GroupRig(SHORT)
    for group in range(2):
        offsets = {("t", each): 1 for each in range(1_500)}
        rig.send(commit(offsets, group=f"g{group}"), 9)
    rig.now_ms += RETENTION_MS
    assert [len(each) for each in check(rig)] == [1_000, 1_001, 1_000, 1]
    assert rig.advance(CHECK_MS).records == ()


def test_a_long_check_looks_at_each_offset_as_it_is_then() -> None:
    rig = GroupRig(SHORT)
    rig.send(commit({("t", each): 1 for each in range(1_500)}), 9)
    rig.now_ms += RETENTION_MS
    assert len(rig.advance(0).records) == 1_000
    rig.send(commit({("t", 1_499): 2}), 9)
    assert [len(each) for each in check(rig)] == [499]
    assert fetched(rig) == {("t", 1_499): 2}


def test_a_group_that_is_joined_during_a_long_check_stays() -> None:
    rig = GroupRig(SHORT)
    rig.send(commit({("orders", each): 1 for each in range(1_500)}), 9)
    rig.now_ms += RETENTION_MS
    assert len(rig.advance(0).records) == 1_000
    rig.send(join(), 3)
    assert check(rig) == [()]
    assert (rig.state, len(fetched(rig))) == ("PreparingRebalance", 500)


def test_offsets_that_are_not_expired_take_turns_as_well() -> None:
    rig = GroupRig(SHORT)
    rig.send(commit({("t", each): 1 for each in range(15_000)}), 9)
    rig.now_ms += CHECK_MS
    assert check(rig) == [(), ()]
