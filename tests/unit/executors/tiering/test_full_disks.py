"""Disks that are full to the last byte: what frees them needs no room on them."""

from sparklog.errors import ErrorCode
from sparklog.executors.replica_manager import (
    apply_local_retention,
    apply_retention,
    purge_deleted,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


async def fill_disks(tiered: TieredRig) -> None:
    """Nothing more fits on any disk; the brokers write their checkpoints now and then."""
    await tiered.settle()
    for broker_id, broker in tiered.rig.brokers.items():
        tiered.rig.disk_of(broker_id).disk.fill_after(0)
        await broker.replica_manager.checkpoints.write()
        tiered.rig.disk_of(broker_id).disk.fill_after(0)
    assert await error_of_produce(tiered) == ErrorCode.KAFKA_STORAGE_ERROR


async def error_of_produce(tiered: TieredRig) -> int:
    assert tiered.leader is not None
    client = await tiered.rig.client(tiered.leader.options.broker_id)
    code: int = (await client.produce("t", batch(b"x" * 100))).error_code
    return code


async def clean_up(tiered: TieredRig) -> None:
    """The periodic work of all brokers."""
    for broker in tiered.rig.brokers.values():
        apply_retention(broker.replica_manager)
        await apply_local_retention(broker.replica_manager)
        await purge_deleted(broker.replica_manager)


def test_what_is_in_the_bucket_leaves_full_disks() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2, file_delete_delay_ms="0")
        await tiered.fill(40)
        await fill_disks(tiered)
        await tiered.tier()
        for broker in tiered.rig.brokers.values():
            partition = tiered.partition_at(broker)
            assert partition is not None
            assert partition.log.local_log_start_offset > 20
        await clean_up(tiered)
        await tiered.fill(12)
        assert await tiered.read_all() == tiered.values

    run_tiered(test)


def test_local_log_starts_that_a_full_disk_took_outlive_the_broker() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await fill_disks(tiered)
        await tiered.tier()
        local_start = tiered.partition.log.local_log_start_offset
        assert local_start > 20
        tiered.rig.disk.disk.fill_after(0)
        await tiered.rig.crash_broker()
        await tiered.rig.start_broker(new=False)
        await until(lambda: tiered.leader is not None)
        log = tiered.partition.log
        assert (log.log_start_offset, log.local_log_start_offset) == (0, local_start)
        assert await tiered.read_all() == tiered.values
        tiered.rig.disk.faults.clear()

    run_tiered(test)


def test_records_are_deleted_from_a_full_disk() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(file_delete_delay_ms="0")
        await tiered.fill(40)
        await fill_disks(tiered)
        await tiered.delete_records(30)
        await tiered.rig.brokers[1].replica_manager.checkpoints.write()
        await clean_up(tiered)
        assert tiered.partition.log.segments[0].base_offset > 20
        await tiered.fill(12)
        assert await tiered.read_all(30) == tiered.values[30:]

    run_tiered(test)


def test_the_retention_of_the_whole_log_frees_a_full_disk() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(
            file_delete_delay_ms="0", local_retention_bytes="-2", retention_bytes="2000"
        )
        await tiered.fill(40)
        await fill_disks(tiered)
        await tiered.tier()
        await clean_up(tiered)
        assert tiered.partition.log.log_start_offset > 20
        assert await error_of_produce(tiered) == ErrorCode.NONE

    run_tiered(test)


def test_a_topic_is_deleted_from_a_full_disk() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker(2)  # the journal is on another disk
        client = await rig.client(2)
        await client.create_topic("t")
        await rig.leads(1, 2)
        assert (await client.produce("t", batch(b"x" * 1000))).error_code == 0
        half = rig.disk_of(2)
        half.disk.fill_after(0)
        await client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000))
        await until(lambda: not half.is_folder("broker-2/t-0"))
        half.faults.clear()

    run(test)
