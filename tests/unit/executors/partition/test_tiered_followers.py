"""Followers of a leader that has its first records only in the bucket (KIP-405)."""

import pytest

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.log import EpochEntry, TieredStart
from sparklog.executors.log.steps import run_through
from sparklog.executors.partition import (
    EpochEnd,
    FetchPosition,
    Partition,
    ResumeFetching,
    Truncated,
)
from sparklog.types import NO_NODE
from tests.unit.executors.partition.partition_maker import NOW, TP
from tests.unit.executors.partition.replica_trio import Trio

#: Where the leader's files begin.
LOCAL_START = 6
PRODUCER = 7


def starts(partition: Partition) -> tuple[int, int, int]:
    log = partition.log
    return log.log_start_offset, log.local_log_start_offset, log.log_end_offset


def drop_local(trio: Trio, node_id: int, offset: int = LOCAL_START) -> None:
    """Local retention at one replica: what is below the offset is only in the bucket."""
    log = trio[node_id].log
    log.tiered_end_offset = offset
    log.delete_local_segments(offset, NOW)
    assert log.local_log_start_offset == offset


def moved(behind: int = 2, epochs: int = 2) -> Trio:
    """Leader 2 has ten records and files from ``LOCAL_START`` on; follower 1 has only ``behind``.

    Each batch has a segment of its own.  Records 0 to 3 are of epoch 0, later ones of ``epochs``.
    """
    trio = Trio(2, segment_bytes=100, remote_storage_enable=True, retention_ms=-1)
    trio.elect(2)
    for number in range(behind):
        trio.append(b"%d" % number)
    trio.catch_up(1)
    trio.change_isr(2)
    for number in range(behind, 10):
        if number == 4:
            for _ in range(epochs):
                trio.elect(2)
        sequence = number - behind
        trio.append(b"%d" % number, sequence=sequence, producer_id=PRODUCER, epoch=0)
    drop_local(trio, 2)
    return trio


def snapshot_at(trio: Trio, offset: int) -> bytes:
    """The producer state at the first offset of a segment of the leader."""
    leader = trio.hosts[trio.state.leader]
    return leader.backend.read(f"broker/t-0/{offset:020d}.snapshot")


def start_at(trio: Trio, offset: int = LOCAL_START) -> TieredStart:
    leader = trio.leader.log
    epochs = tuple(entry for entry in leader.leader_epochs.entries if entry.start_offset < offset)
    return TieredStart(offset, leader.log_start_offset, epochs, snapshot_at(trio, offset))


def start(trio: Trio, node_id: int = 1) -> Truncated:
    follower = trio[node_id]
    assert follower.begin_start_in_tier(start_at(trio), leader_epoch=follower.leader_epoch)
    return trio.finish_truncation(node_id)


def position_of(trio: Trio, node_id: int = 1) -> FetchPosition:
    position = trio[node_id].fetch_position()
    assert position is not None
    return position


def refusal(trio: Trio, node_id: int = 1) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        trio.ask(node_id, position_of(trio, node_id))
    return refused.value.code


def test_a_follower_below_the_leaders_files_is_sent_to_the_bucket() -> None:
    trio = moved()
    assert starts(trio[2]) == (0, LOCAL_START, 10)
    assert refusal(trio) is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    trio.now_ms += 10**6
    assert trio[2].isr_proposal() is None, "such a fetch is none that catches up"


def test_a_follower_whose_log_diverges_is_told_so_first() -> None:
    trio = Trio(2, segment_bytes=100, remote_storage_enable=True, retention_ms=-1)
    trio.elect(1)
    trio.append(b"common")
    trio.catch_up(2)
    trio.append(b"own")
    trio.elect(2, isr=[2])
    for number in range(9):
        trio.append(b"%d" % number)
    drop_local(trio, 2)
    read = trio.ask(1, position_of(trio))
    assert read is not None
    assert read.diverging == EpochEnd(0, 1)
    trio.truncate(1, read.diverging)
    assert starts(trio[1]) == (0, 0, 1)
    assert refusal(trio) is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


def test_a_follower_starts_in_the_bucket_and_gets_in_sync() -> None:
    trio = moved()
    follower = trio[1]
    truncated = start(trio)
    assert truncated[:3] == (2, LOCAL_START, 0)
    assert ResumeFetching(topic_partition=TP) in truncated.effects
    assert starts(follower) == (0, LOCAL_START, LOCAL_START)
    assert follower.high_watermark == LOCAL_START
    assert position_of(trio) == FetchPosition(
        offset=LOCAL_START, last_fetched_epoch=2, current_leader_epoch=2, log_start_offset=0
    )
    trio.catch_up(1)
    assert starts(follower) == (0, LOCAL_START, 10)
    assert follower.log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(2, 4))
    assert follower.log.leader_epochs.entries == trio[2].log.leader_epochs.entries
    assert follower.producers.to_snapshot() == trio[2].producers.to_snapshot()
    assert [proposal.isr for proposal in trio.proposed] == [((2, 12), (1, 11))]
    follower.check_invariants()
    follower.log.check_invariants()
    # Its own local retention may go on from there; the bucket's part is readable as before.
    assert follower.read(0, 100, only_leader=False).is_remote


def test_a_follower_that_started_in_the_bucket_may_lead() -> None:
    trio = moved()
    start(trio)
    trio.catch_up(1)
    trio.answer()
    trio.elect(1)
    assert trio.append(b"9", sequence=7, producer_id=PRODUCER, epoch=0) == 9, "a duplicate"
    assert trio.append(b"10", sequence=8, producer_id=PRODUCER, epoch=0) == 10
    # It can tell other followers where epochs ended that only the bucket has.
    assert trio[1].end_of_epoch(0) == (0, 4)
    trio.catch_up(2)
    assert starts(trio[2]) == (0, LOCAL_START, 11)


def test_a_restart_finds_the_state_of_the_bucket_again() -> None:
    trio = moved()
    start(trio)
    trio.catch_up(1)
    before = trio[1].log.leader_epochs.entries
    trio.crash(1, 10**9)
    follower = trio.restart(1)
    assert starts(follower) == (0, LOCAL_START, 10)
    assert follower.log.leader_epochs.entries == before
    assert follower.producers.to_snapshot() == trio[2].producers.to_snapshot()


def test_while_it_starts_there_the_log_stands_still() -> None:
    trio = moved()
    follower = trio[1]
    assert follower.begin_start_in_tier(start_at(trio), leader_epoch=2)
    assert follower.fetch_position() is None
    assert not follower.begin_start_in_tier(start_at(trio), leader_epoch=2)
    assert ResumeFetching(topic_partition=TP) in follower.abandon_truncation(NOW)
    assert starts(follower) == (0, 0, 2)
    assert follower.log.recovery_point == 0


def test_a_start_of_another_leader_epoch_counts_no_more() -> None:
    trio = moved()
    found = start_at(trio)
    trio.elect(2)
    assert not trio[1].begin_start_in_tier(found, leader_epoch=2)
    trio.elect(1)
    assert not trio[1].begin_start_in_tier(found, leader_epoch=4)
    assert starts(trio[1]) == (0, 0, 2)


def test_a_role_that_comes_meanwhile_is_taken_afterwards() -> None:
    trio = moved()
    follower = trio[1]
    assert follower.begin_start_in_tier(start_at(trio), leader_epoch=2)
    trio.elect(NO_NODE)
    trio.elect(1, isr=[1])
    assert not follower.is_leader
    trio.finish_truncation(1)
    assert follower.is_leader
    assert starts(follower) == (0, LOCAL_START, LOCAL_START)


def test_a_failure_takes_the_replica_offline() -> None:
    trio = moved()
    follower = trio[1]
    assert follower.begin_start_in_tier(start_at(trio), leader_epoch=2)
    trio.hosts[1].checkpoint()
    trio.hosts[1].backend.faults.fail_next(operation="put", under="snapshot")
    with pytest.raises(KafkaError) as failure:
        run_through(follower.truncate(NOW))
    assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert isinstance(follower.log.offline, StorageError)
    assert (follower.log.truncating, follower.fetch_position()) == (False, None)
    # The next process does not take the log without the producers for a whole one.
    trio.crash(1, 10**9)
    follower = trio.restart(1)
    assert starts(follower) == (0, 0, 0)
    assert refusal(trio) is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    start(trio)
    trio.catch_up(1)
    assert starts(follower) == (0, LOCAL_START, 10)


@pytest.mark.parametrize("has_snapshot", [True, False])
@pytest.mark.parametrize("common", [LOCAL_START - 1, LOCAL_START])
def test_a_divergence_in_the_bucket_makes_the_log_begin_at_its_start(
    common: int, has_snapshot: bool
) -> None:
    """After an unclean election: epochs and producers at that offset are not known here, unless
    the files begin there with a producer snapshot."""
    trio = Trio(2, segment_bytes=100, remote_storage_enable=True, retention_ms=-1)
    trio.elect(1)
    for number in range(common):
        trio.append(b"%d" % number)
    trio.catch_up(2)
    trio.change_isr(1)
    for number in range(common, 10):
        trio.append(b"own%d" % number)
    drop_local(trio, 1)
    trio.elect(2, isr=[2])
    for number in range(common, 12):
        trio.append(b"new%d" % number, sequence=number - common, producer_id=PRODUCER, epoch=0)
    drop_local(trio, 2, common + 2)
    follower = trio[1]
    read = trio.ask(1, position_of(trio))
    assert read is not None
    assert read.diverging == EpochEnd(0, common)
    if not has_snapshot:
        follower.log._snapshots.delete(LOCAL_START)
    trio.truncate(1, read.diverging)
    stays = has_snapshot and common == LOCAL_START
    assert starts(follower) == ((0, common, common) if stays else (0, 0, 0))
    assert refusal(trio) is ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
    found = start_at(trio, common + 2)
    assert follower.begin_start_in_tier(found, leader_epoch=1)
    trio.finish_truncation(1)
    trio.catch_up(1)
    assert starts(follower) == (0, common + 2, 12)
    assert follower.producers.to_snapshot() == trio[2].producers.to_snapshot()


def test_a_divergence_above_the_bucket_drops_only_what_diverges() -> None:
    trio = Trio(2, segment_bytes=100, remote_storage_enable=True, retention_ms=-1)
    trio.elect(1)
    for number in range(LOCAL_START + 1):
        trio.append(b"%d" % number)
    trio.catch_up(2)
    trio.append(b"own")
    drop_local(trio, 1)
    trio.elect(2, isr=[2])
    trio.append(b"new")
    trio.catch_up(1)
    assert starts(trio[1]) == (0, LOCAL_START, LOCAL_START + 2)


def test_deleted_records_in_the_bucket_move_the_log_start_of_followers_too() -> None:
    trio = moved()
    start(trio)
    trio.catch_up(1)
    leader = trio[2]
    target = leader.deletion_target(LOCAL_START - 2)
    trio.carry_out(leader, leader.delete_records(target))
    assert starts(leader) == (LOCAL_START - 2, LOCAL_START, 10)
    assert leader.low_watermark(lambda _: True) == 0
    trio.catch_up(1)
    trio.fetch(1)
    assert starts(trio[1]) == (LOCAL_START - 2, LOCAL_START, 10)
    assert leader.low_watermark(lambda _: True) == LOCAL_START - 2
    assert leader.log.leader_epochs.entries == (EpochEntry(2, LOCAL_START - 2),)
