"""Periodic work: retention, expiry of producers, checkpoints, and many partitions at once."""

import threading

from sparklog.executors.log import run_through
from sparklog.executors.partition.partition import Partition
from sparklog.executors.replica_manager.log_maintenance import (
    apply_local_retention,
    apply_retention,
    purge_deleted,
)
from sparklog.types import OffsetSpec, TopicPartition
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import OWN_BUCKET, Rig, run


def test_retention_deletes_segments_and_moves_the_log_start() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic(
            "t",
            segment_bytes="1000",
            retention_bytes="1000",
            retention_ms="-1",
            file_delete_delay_ms="0",
        )
        await rig.leads(1)
        for _ in range(5):
            assert (await client.produce("t", batch(b"x" * 600))).error_code == 0
        apply_retention(broker.replica_manager)
        threads: list[str] = []
        rig.disk.faults.slow = lambda operation, path: (
            threads.append(threading.current_thread().name) if path.endswith(".deleted") else None
        )
        await purge_deleted(broker.replica_manager)
        rig.disk.faults.clear()
        # Removing a large file takes long.
        assert {name.rpartition("_")[0] for name in threads} == {"sparklog-blocking"}
        (partition,) = broker.replica_manager
        assert partition.log.log_start_offset == 3
        assert (await rig.status())["segments_deleted"] == 3
        assert [n for n in rig.disk.list("broker-1/t-0") if n.endswith(".deleted")] == []
        partition.check_invariants()

    run(test)


def test_idle_producers_are_forgotten() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        records = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, timestamp=1)
        assert (await client.produce("t", records)).error_code == 0
        (partition,) = broker.replica_manager
        apply_retention(broker.replica_manager)
        assert list(partition.producers.entries) == [5]
        partition.producers.expire(broker.replica_manager.now_ms() + 86_400_001, 86_400_000)
        assert list(partition.producers.entries) == []

    # The record is old by its own timestamp; retention must not be what this is about.
    run(test, log_retention_ms="-1")


def test_checkpoints_tell_a_crashed_broker_what_is_safe() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t", flush_messages="1")
        await rig.leads(1)
        await client.produce("t", batch(b"a", b"b"))
        await broker.replica_manager.checkpoints.write()
        assert rig.disk.read("broker-1/recovery-point-offset-checkpoint") == b"0\n1\nt 0 2\n"
        await rig.crash_broker()
        await rig.start_broker(new=False)
        (partition,) = rig.brokers[1].replica_manager
        assert partition.log.log_end_offset == 2
        assert partition.log.recovery_point == 2

    run(test)


def test_what_a_crash_left_unflushed_is_flushed_when_the_settings_promise_it() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t")
        await rig.leads(1)
        await client.produce("t", batch(b"a"))
        await rig.crash_broker()
        broker = await rig.start_broker(
            new=False, settings={**rig.settings, "log.flush.interval.messages": "1"}
        )
        (partition,) = broker.replica_manager
        await until(lambda: partition.log.recovery_point == 1)

    run(test)


def test_a_recreated_topic_inherits_no_checkpoint() -> None:
    async def test(rig: Rig) -> None:
        from sparklog.wire.protocol.messages.delete_topics import (
            DeleteTopicsRequest,
            DeleteTopicState,
        )

        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t", flush_messages="1")
        await rig.leads(1)
        for _ in range(3):
            await client.produce("t", batch(b"a"))
        await broker.replica_manager.checkpoints.write()
        await client.ask(DeleteTopicsRequest(topics=(DeleteTopicState(name="t"),), timeout_ms=1000))
        await client.create_topic("t")

        def reopened() -> Partition | None:
            found = broker.replica_manager.get(TopicPartition("t", 0))
            return found if found is not None and found.log.log_end_offset == 0 else None

        await until(lambda: (found := reopened()) is not None and found.is_leader)
        assert rig.disk.read("broker-1/recovery-point-offset-checkpoint") == b"0\n1\nt 0 0\n"
        await client.produce("t", batch(b"new"))
        await rig.crash_broker()
        await rig.start_broker(new=False)
        assert await (await rig.client()).fetch("t") == (0, [b"new"])

    run(test)


def test_more_partitions_than_open_files() -> None:
    async def test(rig: Rig) -> None:
        await rig.start_broker()
        client = await rig.client()
        await client.create_topic("t", 40)
        await rig.leads(40)
        for number in range(40):
            assert (
                await client.produce("t", batch(b"%d" % number), partition=number)
            ).error_code == 0
        for number in range(40):
            assert await client.fetch("t", partition=number) == (0, [b"%d" % number])

    run(test, log_open_files_max="8")


def test_local_retention_tells_the_checkpoint_before_files_go() -> None:
    async def test(rig: Rig) -> None:
        broker = await rig.start_broker()
        client = await rig.client()
        await client.create_topic(
            "t",
            segment_bytes="1000",
            remote_storage_enable="true",
            local_retention_bytes="1000",
            retention_ms="-1",
        )
        await rig.leads(1)
        for _ in range(5):
            assert (await client.produce("t", batch(b"x" * 600))).error_code == 0
        (partition,) = broker.replica_manager
        await apply_local_retention(broker.replica_manager)
        assert partition.log.local_log_start_offset == 0, "nothing is in the bucket"
        partition.log.tiered_end_offset = 4
        rig.disk.faults.fail_next(operation="put", under="local-log-start")
        await apply_local_retention(broker.replica_manager)
        assert partition.log.local_log_start_offset == 0
        await apply_local_retention(broker.replica_manager)
        assert rig.disk.read("broker-1/local-log-start-offset-checkpoint") == b"0\n1\nt 0 3\n"
        assert (partition.log.log_start_offset, partition.log.local_log_start_offset) == (0, 3)
        assert (await rig.status())["segments_deleted"] == 3
        partition.log.tiered_end_offset = 3  # as after a truncation
        planned = {partition.topic_partition: 4}
        await broker.replica_manager.checkpoints.write(local_log_starts=planned)
        assert rig.disk.read("broker-1/local-log-start-offset-checkpoint") == b"0\n1\nt 0 3\n"
        partition.log.tiered_end_offset = 4
        special = (
            OffsetSpec.EARLIEST,
            OffsetSpec.EARLIEST_LOCAL,
            OffsetSpec.LATEST_TIERED,
            OffsetSpec.EARLIEST_PENDING_UPLOAD,
        )
        found = [run_through(partition.find_offset(timestamp)) for timestamp in special]
        assert [each.offset for each in found if each is not None] == [0, 3, 3, 4]
        await rig.crash_broker()
        await rig.start_broker(new=False)
        (partition,) = rig.brokers[1].replica_manager
        assert (partition.log.log_start_offset, partition.log.local_log_start_offset) == (0, 3)

    run(test, remote_dir=OWN_BUCKET)
