"""Recoveries from the bucket of partitions whose last transactions had their markers behind it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.broker import Broker
from sparklog.executors.partition import Appended, Partition
from sparklog.executors.partition.append_draft import AppendDraft
from sparklog.executors.partition.leader_role import LeaderRole
from sparklog.executors.replica_manager import bucket_recoveries
from sparklog.executors.tiering.bucket_ends import BucketEnds
from sparklog.remote_log.names import CLUSTER_FILE, INDEXES_SUFFIX
from sparklog.types import Isolation
from sparklog.wire.protocol.messages.fetch import AbortedTransaction, PartitionData
from sparklog.wire.records.builder import decode_records
from sparklog.wire.records.control import ControlType
from tests.support.waiting import until
from tests.unit.executors.broker.test_read_committed import Writer, fetched
from tests.unit.executors.tiering.test_lost_everywhere import lose_all
from tests.unit.executors.tiering.test_tiering_settings import objects_of
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

#: Producers of transactions.
ABORTING, COMMITTING, LATE = 1, 2, 3
BROKERS = (1, 2, 3)


async def write_transactions(tiered: TieredRig) -> int:
    """Write two transactions whose records are in the bucket, and their markers behind it.

    Returns the end of the bucket.  The offsets 0 and 1 have their records.
    """
    assert tiered.leader is not None
    writer = Writer(tiered.leader.replica_manager)
    writer.data(ABORTING, b"aborted")
    writer.data(COMMITTING, b"committed")
    await tiered.fill(20)
    writer.end(ABORTING, ControlType.ABORT)
    writer.end(COMMITTING, ControlType.COMMIT)
    await tiered.tier()
    end = tiered.partition.log.tiered_end_offset
    assert 2 < end == tiered.partition.log.log_end_offset - 2
    return end


def is_whole(partition: Partition) -> bool:
    """Whether no transaction holds the last stable offset."""
    end = partition.log.log_end_offset
    return partition.high_watermark == partition.last_stable_offset == end


def hangs(tiered: TieredRig, broker: Broker) -> bool:
    """Whether the recovered log of a broker waits for the ends of its transactions."""
    found = tiered.partition_at(broker)
    waits = found is not None and found.topic_partition in broker.replica_manager.recoveries.waiting
    return waits and found is not None and len(found.hanging_transactions) == 2


def values(data: PartitionData) -> list[bytes]:
    return [record.value or b"" for record in decode_records(bytes(data.records or b""))]


async def goes_on(tiered: TieredRig, end: int) -> None:
    """Both transactions have ended as before, and new ones are written and copied."""
    await until(lambda: tiered.leader is not None and is_whole(tiered.partition))
    assert tiered.leader is not None
    log = tiered.partition.log
    assert (log.local_log_start_offset, log.log_end_offset) == (end, end + 2)
    client = await tiered.rig.client(tiered.leader.options.broker_id)
    committed = Isolation.READ_COMMITTED
    in_bucket = await fetched(client, 0, committed, max_wait_ms=5_000)
    aborted = (AbortedTransaction(producer_id=ABORTING, first_offset=0),)
    assert in_bucket.aborted_transactions == aborted
    assert values(in_bucket)[:2] == [b"aborted", b"committed"]
    assert (await fetched(client, end, committed)).aborted_transactions == aborted
    writer = Writer(tiered.leader.replica_manager)
    writer.data(LATE, b"late")
    writer.end(LATE, ControlType.COMMIT)
    await until(lambda: is_whole(tiered.partition))
    assert b"late" in values(await fetched(client, end, committed))
    tiered.partition.producers.check_invariants()
    await tiered.fill(20)
    await tiered.tier()
    assert tiered.partition.log.tiered_end_offset > end + 4
    assert is_whole(tiered.partition)


def test_the_only_replica_ends_the_transactions_as_they_had_ended() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        end = await write_transactions(tiered)
        await lose_all(tiered, 1)
        await goes_on(tiered, end)
        assert (await tiered.rig.status())["remote_recoveries_transactions_ended"] == 2

    run_tiered(test)


def test_a_crash_before_the_markers_does_not_leave_the_transactions_hanging() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        end = await write_transactions(tiered)
        with pytest.MonkeyPatch.context() as patch:
            never = asyncio.Event()
            patch.setattr(BucketEnds, "find_aborted", lambda *_: never.wait())
            await lose_all(tiered, 1)
            broker = tiered.rig.brokers[1]
            await until(lambda: hangs(tiered, broker))
            assert tiered.leader is None
            await tiered.rig.lose_power(1)
        await tiered.rig.start_broker(1, new=False)
        await goes_on(tiered, end)

    run_tiered(test)


def test_markers_that_the_disk_refuses_are_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, refused = Partition.end_hanging_transactions, iter((True, True))

    def end(partition: Partition, *args: Any, **more: Any) -> Iterator[Appended]:
        if next(refused, False):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        return ended(partition, *args, **more)

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        end_offset = await write_transactions(tiered)
        await lose_all(tiered, 1)
        await goes_on(tiered, end_offset)
        assert (await tiered.rig.status())["remote_recoveries_transactions_ended"] == 2
        assert next(refused, False) is False

    monkeypatch.setattr(Partition, "end_hanging_transactions", end)
    monkeypatch.setattr(bucket_recoveries, "RETRY_S", 0.05)
    run_tiered(test)


def test_nobody_appends_before_the_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer's next transaction would be committed with the one that hangs."""
    write, refuses = LeaderRole._write_alone, True

    def write_alone(role: LeaderRole, draft: AppendDraft, now_ms: int) -> Appended:
        if draft.ended is not None and refuses:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
        return write(role, draft, now_ms)

    async def test(tiered: TieredRig) -> None:
        nonlocal refuses
        refuses = False
        await tiered.start()
        end_offset = await write_transactions(tiered)
        refuses = True
        await lose_all(tiered, 1)
        await until(
            lambda: tiered.leader is not None and bool(tiered.partition.hanging_transactions)
        )
        assert tiered.leader is not None
        writer = Writer(tiered.leader.replica_manager)
        with pytest.raises(KafkaError, match="takes no records before the disk takes the markers"):
            writer.data(COMMITTING, b"next")
        refuses = False
        await goes_on(tiered, end_offset)

    monkeypatch.setattr(LeaderRole, "_write_alone", write_alone)
    monkeypatch.setattr(bucket_recoveries, "RETRY_S", 0.05)
    run_tiered(test)


def test_a_replica_that_never_saw_the_markers_ends_the_transactions_when_it_leads() -> None:
    """It began at the end of the bucket, and the first leader is gone before it has fetched."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        end = await write_transactions(tiered)
        await lose_all(tiered, 1)
        await until(lambda: tiered.leader is not None)
        log = tiered.partition.log
        before = tiered.partition
        # Power fails before the markers are on the disk.
        await until(lambda: is_whole(tiered.partition))
        await tiered.rig.lose_power(1)
        disk = tiered.rig.disk_of(1)
        dict(disk.files())[log.segments[-1].log_path].cut(0)
        await tiered.rig.start_broker(1, new=False)
        await until(lambda: tiered.leader is not None and tiered.partition is not before)
        await goes_on(tiered, end)

    run_tiered(test)


def test_a_log_start_that_has_moved_onto_the_recovery_leaves_nothing_hanging() -> None:
    """The markers are lost once more, and no record of the transactions is left."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        end = await write_transactions(tiered)
        await lose_all(tiered, 1)
        await until(lambda: tiered.leader is not None and is_whole(tiered.partition))
        await tiered.delete_records(end)
        log, before = tiered.partition.log, tiered.partition
        assert (log.log_start_offset, log.local_log_start_offset) == (end, end)
        await tiered.rig.lose_power(1)
        dict(tiered.rig.disk_of(1).files())[log.segments[-1].log_path].cut(0)
        await tiered.rig.start_broker(1, new=False)
        await until(lambda: tiered.leader is not None and tiered.partition is not before)
        await until(lambda: is_whole(tiered.partition))
        assert not tiered.partition.producers.transactions.ongoing

    run_tiered(test)


def test_deleting_the_beginning_of_an_open_transaction_does_not_end_it() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        assert tiered.leader is not None
        writer = Writer(tiered.leader.replica_manager)
        writer.data(LATE, b"first")
        await tiered.fill(20)
        writer.data(LATE, b"second")
        end = tiered.partition.log.log_end_offset
        await tiered.delete_records(end - 1)
        assert tiered.partition.log.local_log_start_offset == end - 1
        assert not tiered.partition.hanging_transactions
        assert list(tiered.partition.producers.transactions.ongoing.values()) == [LATE]

    run_tiered(test)


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_an_end_inside_of_a_segment_of_the_bucket_is_known(kind: ControlType) -> None:
    """Replicas roll at different offsets, so files may begin inside of a segment of the bucket."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(local_retention_bytes="100000")
        assert tiered.leader is not None
        writer = Writer(tiered.leader.replica_manager)
        writer.data(ABORTING, b"first")
        writer.plain(b"x")
        writer.end(ABORTING, kind)
        await tiered.fill(20)
        await tiered.tier()
        assert tiered.leader.tiering is not None
        find_aborted = tiered.leader.replica_manager.recoveries.find_aborted
        partition = tiered.partition
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(partition.log), "local_log_start_offset", 1)
            found = await find_aborted(partition)
            assert ((ABORTING, 0) in found) == (kind is ControlType.ABORT)
            patch.setattr(type(partition.log), "local_log_start_offset", 3)
            assert (ABORTING, 0) not in await find_aborted(partition), "it had ended before"

    run_tiered(test)


def test_damage_in_the_bucket_does_not_keep_the_partition_from_a_leader() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        end = await write_transactions(tiered)
        (topic,) = [name for name in tiered.bucket.list("") if name != CLUSTER_FILE]
        for name in objects_of(tiered):
            if name.endswith(INDEXES_SUFFIX):
                tiered.bucket.delete(f"{topic}/0/segments/{name}")
        await lose_all(tiered, 1)
        await until(lambda: tiered.leader is not None and is_whole(tiered.partition))
        assert tiered.partition.log.local_log_start_offset == end

    run_tiered(test)


def test_three_replicas_agree_on_the_ends() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(3, min_insync_replicas="2")
        end = await write_transactions(tiered)
        await lose_all(tiered, *BROKERS)
        await until(lambda: tiered.leader is not None)
        assert tiered.leader is not None
        assert tiered.leader.tiering is not None
        await tiered.leader.tiering.manager.look_after_all()  # followers wait for it
        await until(lambda: len(tiered.partition.state.isr) == 3)  # type: ignore[union-attr]
        await goes_on(tiered, end)
        for broker in tiered.rig.brokers.values():
            found = tiered.partition_at(broker)
            assert found is not None
            assert not found.hanging_transactions
            assert not found.producers.transactions.ongoing

    run_tiered(test)
