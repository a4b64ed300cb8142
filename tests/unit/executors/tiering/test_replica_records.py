"""Records that the bucket has lost, from the files of other replicas."""

import logging
from pathlib import Path

import pytest

from sparklog.errors import CorruptBatchError, ErrorCode, KafkaError
from sparklog.executors.partition import Partition, TransactionEnd
from sparklog.executors.replica_manager import apply_local_retention
from sparklog.executors.tiering.replica_records import take
from sparklog.remote_log import names
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import Isolation
from sparklog.wire.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    PartitionData,
)
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import decode_records
from sparklog.wire.records.control import ControlType, EndTxnMarker
from tests.unit.executors.broker.broker_rig import Client
from tests.unit.executors.broker.test_read_committed import Writer, fetched
from tests.unit.executors.partition.partition_maker import NOW
from tests.unit.executors.partition.replica_trio import Trio
from tests.unit.executors.tiering.test_damaged_buckets import flip
from tests.unit.executors.tiering.tiered_dataframes import rows
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

PRODUCER = 7
ABORTED = b"aborted"


async def filled(tiered: TieredRig, bucket: StorageBackend | None = None) -> str:
    """A topic in the bucket, of which all replicas have their files still.

    Returns the object of the second segment, which has an aborted transaction.
    """
    await tiered.start(3)
    leader = tiered.leader
    assert leader is not None
    writer = Writer(leader.replica_manager)
    await tiered.fill(7)
    writer.data(PRODUCER, ABORTED)
    writer.end(PRODUCER, ControlType.ABORT)
    await tiered.fill(33)
    await tiered.settle()
    for broker in tiered.rig.brokers.values():
        assert broker.tiering is not None
        await broker.tiering.manager.look_after_all()
    folder = names.segments_folder(tiered.partition.topic_id, 0)
    found = (bucket or tiered.bucket).list(folder)
    return f"{folder}/{sorted(name for name in found if name.endswith('.log'))[1]}"


async def committed(tiered: TieredRig, client: Client) -> list[tuple[int, bytes | None]]:
    """What a reader of committed records sees from offset 0 on."""
    found: list[tuple[int, bytes | None]] = []
    offset = 0
    while offset < tiered.partition.high_watermark:
        data = await fetched(client, offset, Isolation.READ_COMMITTED, max_wait_ms=5_000)
        records = bytes(data.records or b"")
        is_told = PRODUCER in {each.producer_id for each in data.aborted_transactions or ()}
        found += [
            (each.offset, each.value)
            for each in decode_records(records)
            if each.offset >= offset and not (is_told and each.value == ABORTED)
        ]
        offset = [header.next_offset for header, _ in iter_batches(records)][-1]
    return found


def test_a_leader_takes_what_the_bucket_has_lost_from_other_replicas(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(tiered: TieredRig) -> None:
        path = await filled(tiered)
        leader = tiered.leader
        assert leader is not None
        broker_id = leader.options.broker_id
        client = await tiered.rig.client(broker_id)
        everything = await committed(tiered, client)  # from files
        assert len(everything) == 40
        assert ABORTED not in dict(everything).values()
        await apply_local_retention(leader.replica_manager)
        assert (await tiered.rig.status(broker_id))["remote_reads_from_replicas"] == 0
        tiered.bucket.delete(path)
        assert await committed(tiered, client) == everything
        assert tiered.leader is leader
        assert (await tiered.rig.status(broker_id))["remote_reads_from_replicas"] > 0
        told = [each for each in caplog.records if path in each.getMessage()]
        assert [each.levelno for each in told] == [logging.WARNING]
        for broker in tiered.rig.brokers.values():
            await apply_local_retention(broker.replica_manager)
        damaged = FetchPartition(partition=0, fetch_offset=6, partition_max_bytes=1)
        response = await client.fetch_all("t", (damaged,), max_wait_ms=10_000)
        assert response.responses[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE

    run_tiered(test)


def test_a_follower_takes_it_for_clients_and_not_for_other_replicas() -> None:
    """KIP-392.  Otherwise two replicas would ask each other for ever."""

    async def test(tiered: TieredRig) -> None:
        path = await filled(tiered)
        leader, brokers = tiered.leader, tiered.rig.brokers
        assert leader is not None
        everything = await committed(tiered, await tiered.rig.client(leader.options.broker_id))
        first, second = (each for each in brokers.values() if each is not leader)
        for broker in (leader, first):
            await apply_local_retention(broker.replica_manager)
        tiered.bucket.delete(path)
        broker_id = first.options.broker_id
        reads = leader.replication.replica_reads
        partition = tiered.partition
        with pytest.raises(KafkaError) as refused:
            await reads.read(broker_id, partition, 6, Isolation.READ_COMMITTED)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert (await tiered.rig.status(broker_id))["remote_reads_from_replicas"] == 0
        assert await committed(tiered, await tiered.rig.client(broker_id)) == everything
        assert (await tiered.rig.status(broker_id))["remote_reads_from_replicas"] > 0
        await apply_local_retention(second.replica_manager)
        client = await tiered.rig.client(second.options.broker_id)
        damaged = FetchPartition(partition=0, fetch_offset=6, partition_max_bytes=1)
        response = await client.fetch_all("t", (damaged,), max_wait_ms=10_000)
        assert response.responses[0].partitions[0].error_code == ErrorCode.CORRUPT_MESSAGE

    run_tiered(test)


def test_a_task_asks_the_brokers_for_what_the_bucket_has_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(tiered: TieredRig) -> None:
        store = LocalBackend(tmp_path)
        path = await filled(tiered, store)
        leader = tiered.leader
        assert leader is not None
        everything = await rows(tiered)  # from files
        assert len(everything) == 40
        await apply_local_retention(leader.replica_manager)
        assert await rows(tiered) == everything
        assert (await tiered.rig.status(leader.options.broker_id))["remote_reads"] == 0
        flip(store, path)
        assert await rows(tiered) == everything
        assert "a broker has sent offsets from 6 on" in caplog.text
        for broker in tiered.rig.brokers.values():
            await apply_local_retention(broker.replica_manager)
        # Not the read before, which the leader has still.
        with pytest.raises(CorruptBatchError, match=path):
            await rows(tiered, isolation=Isolation.READ_UNCOMMITTED)

    run_tiered(test, remote_dir=str(tmp_path))


def whole_log(partition: Partition) -> bytes:
    read = partition.log.read(0, 1 << 20, end_offset=partition.log.log_end_offset)
    assert read.region is not None
    return read.region.read()


def test_only_batches_of_this_log_are_taken() -> None:
    trio = Trio(2)
    trio.elect(1, isr=[1])
    trio.append(b"0", b"1")
    trio.append(b"2", b"3")
    trio.elect(1, isr=[1])
    trio.append(b"4", b"5")
    partition = trio[1]
    records = whole_log(partition)
    partition.log._local_log_start_offset = 6
    starts = [start for _, start in iter_batches(records)]

    def taken(offset: int, sent: bytes) -> tuple[int, int, int] | ErrorCode:
        try:
            found = take(partition, offset, PartitionData(records=sent))
        except KafkaError as error:
            return error.code
        assert found.data == sent[: len(found.data)]
        return found.first_offset, found.next_offset, len(found.data)

    assert taken(0, records) == (0, 6, len(records))
    assert taken(1, records) == (0, 6, len(records)), "an offset inside of a batch"
    assert taken(2, records[starts[1] :]) == (2, 6, len(records) - starts[1])
    assert taken(0, records[:-1]) == (0, 4, starts[2]), "a batch that is cut off"
    partition.log._local_log_start_offset = 4
    assert taken(0, records) == (0, 4, starts[2]), "what the leader has in files"
    assert taken(2, records) is ErrorCode.CORRUPT_MESSAGE, "another batch"
    assert taken(0, b"") is ErrorCode.OFFSET_NOT_AVAILABLE
    assert taken(0, records[: starts[1]] + records[starts[2] :]) == (0, 2, starts[1])
    partition.log._local_log_start_offset = 6
    gap = records[: starts[1]] + records[starts[2] :]
    assert taken(0, gap) is ErrorCode.CORRUPT_MESSAGE, "a gap"
    flipped = bytearray(records)
    flipped[starts[1] - 1] ^= 1
    assert taken(0, bytes(flipped)) is ErrorCode.CORRUPT_MESSAGE
    partition.log.leader_epochs.clear()
    partition.log.leader_epochs.assign(9, 0)
    assert taken(0, records) is ErrorCode.CORRUPT_MESSAGE, "other leaders wrote here"


def test_an_aborted_transaction_ends_at_its_marker_or_behind_the_answer() -> None:
    trio = Trio(2)
    trio.elect(1, isr=[1])
    partition = trio[1]
    trio.append(b"0", sequence=0, producer_id=PRODUCER, epoch=0, transactional=True)
    marker = EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=0)
    end = TransactionEnd(producer_id=PRODUCER, producer_epoch=0, marker=marker)
    partition.end_transaction(end, now_ms=NOW)
    trio.append(b"2", sequence=1, producer_id=PRODUCER, epoch=0, transactional=True)
    records = whole_log(partition)
    partition.log._local_log_start_offset = 3
    aborted = tuple(
        AbortedTransaction(producer_id=PRODUCER, first_offset=first) for first in (0, 2, 5)
    )
    data = PartitionData(records=records, aborted_transactions=aborted)
    assert take(partition, 0, data).aborted == (
        RemoteAbortedTxn(PRODUCER, 0, 1),
        RemoteAbortedTxn(PRODUCER, 2, 3),
    )
