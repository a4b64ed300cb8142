"""The settings of tiering take effect while a broker runs."""

import asyncio
from typing import Any

import pytest

from sparklog.config.tiering import quota_burst_ms
from sparklog.executors.replica_manager import apply_retention
from sparklog.executors.tiering.copy_plan import copy_lag_bytes
from sparklog.remote_log.copy_job import CopyJob
from sparklog.types import MAX_INT64, ResourceType
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

BROKER = ResourceType.BROKER


def objects_of(tiered: TieredRig) -> list[str]:
    (topic,) = [name for name in tiered.bucket.list("") if name != "cluster.json"]
    return tiered.bucket.list(f"{topic}/0/segments")


async def alter(tiered: TieredRig, **values: str) -> None:
    """Set settings of all brokers, and wait until they are in force."""
    client = await tiered.client()
    await client.alter(BROKER, "", **values)
    (broker,) = tiered.rig.brokers.values()
    await until(
        lambda: all(
            str(getattr(broker.replica_manager.broker_config, name)) == value
            for name, value in values.items()
        )
    )


def test_objects_of_removed_segments_stay_for_a_while() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(retention_bytes="4000")
        await tiered.fill(60)
        await tiered.tier()
        before = objects_of(tiered)
        assert tiered.partition.log.log_start_offset > 20
        await alter(tiered, remote_object_delete_delay_ms="0")
        await tiered.tier()
        after = objects_of(tiered)
        assert set(after) < set(before)
        start = tiered.partition.log.log_start_offset
        assert await tiered.read_all(start) == tiered.values[start:]

    run_tiered(test)


def test_the_interval_of_the_looks() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await alter(tiered, remote_log_manager_task_interval_ms="1")
        await until(lambda: tiered.partition.log.tiered_end_offset > 10)

    run_tiered(test, looks_itself=True)


def test_the_rate_of_copies() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await alter(tiered, remote_log_manager_copy_max_bytes_per_second="5000")
        (broker,) = tiered.rig.brokers.values()
        assert broker.tiering is not None
        remote: Any = broker.tiering.manager._remote
        jobs: list[CopyJob] = []
        real = remote.call

        async def call(method: str, *args: Any, **kwargs: Any) -> Any:
            jobs.extend(each for each in args if isinstance(each, CopyJob))
            return await real(method, *args, **kwargs)

        remote.call = call
        await tiered.tier()
        assert {(job.bytes_per_second, job.burst_s) for job in jobs} == {(5000, 6.0)}

    run_tiered(
        test,
        remote_log_manager_copy_quota_window_num="4",
        remote_log_manager_copy_quota_window_size_seconds="2",
    )


def test_the_rate_of_fetches() -> None:
    """Above the limit fetches have no records of the bucket, and those of files as ever."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await set_topic(tiered, segment_bytes="150000")
        client = await tiered.client()
        for number in range(8):  # a segment each
            tiered.values.append(b"%d" % number + b"x" * 100_000)
            assert (await client.produce("t", batch(tiered.values[-1]))).error_code == 0
        await tiered.tier()
        (broker,) = tiered.rig.brokers.values()
        assert broker.tiering is not None
        status = broker.tiering.as_json
        await alter(
            tiered,
            remote_log_manager_fetch_max_bytes_per_second="1024",
            remote_fetch_max_wait_ms="20",
        )
        # The first read takes more than the bytes of a second, so there is a debt of 100 s.
        while not (await client.fetch("t", 0, max_wait_ms=500))[1]:
            assert status()["remote_read_failures"] == 0
        assert await client.fetch("t", 3, max_wait_ms=0) == (0, [])
        assert tiered.partition.log.local_log_start_offset == 7
        assert await tiered.read_all(7) == tiered.values[7:]
        assert status()["remote_reads"] == 1
        await alter(tiered, remote_log_manager_fetch_max_bytes_per_second=str(MAX_INT64))
        assert await tiered.read_all() == tiered.values
        assert status()["remote_reads_throttled"] == 1
        assert status()["remote_read_throttle_ms"] > 0

    run_tiered(test)


def test_quotas_save_up_the_bytes_of_whole_windows() -> None:
    assert [quota_burst_ms(*each) for each in ((11, 1), (4, 2), (1, 5), (2, 5))] == [
        10_000,
        6_000,
        5_000,
        5_000,
    ]


def test_how_long_a_fetch_waits_for_the_bucket() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(30)
        await tiered.tier()
        await alter(tiered, remote_fetch_max_wait_ms="20")
        (broker,) = tiered.rig.brokers.values()
        assert broker.tiering is not None
        remote: Any = broker.tiering.manager._remote
        arrives: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def call(*_: Any, **__: Any) -> Any:
            return await arrives

        remote.call = call
        client = await tiered.client()
        assert await client.fetch("t", 0, max_wait_ms=0) == (0, [])
        arrives.cancel()

    run_tiered(test)


def test_nothing_more_is_copied_and_what_was_is_read_until_it_is_too_old() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(local_retention_bytes="-2")
        await tiered.fill(60)
        await tiered.tier()
        copied, end = objects_of(tiered), tiered.partition.log.tiered_end_offset
        assert len(copied) > 10
        await set_topic(tiered, remote_log_copy_disable="true")
        await tiered.fill(60)
        await tiered.tier()
        assert objects_of(tiered) == copied
        assert copy_lag_bytes(tiered.partition) == 0
        assert await tiered.read_all() == tiered.values
        await retain(tiered, 15_000)
        log = tiered.partition.log
        assert 0 < log.log_start_offset < end
        assert await tiered.read_all(log.log_start_offset) == tiered.values[log.log_start_offset :]
        await retain(tiered, 4_000)
        assert end < log.log_start_offset == log.local_log_start_offset < 120
        assert await tiered.read_all(log.log_start_offset) == tiered.values[log.log_start_offset :]
        await alter(tiered, remote_object_delete_delay_ms="0")
        await tiered.tier()
        assert objects_of(tiered) == []
        await set_topic(tiered, remote_log_copy_disable="false")
        await tiered.tier()
        assert len(objects_of(tiered)) > 2
        assert await tiered.read_all(log.log_start_offset) == tiered.values[log.log_start_offset :]

    run_tiered(test)


def test_the_records_of_producers_that_have_stopped_are_copied_and_expire() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2, local_retention_bytes="-2", file_delete_delay_ms="0")
        await tiered.fill(10)
        await tiered.tier()
        log = tiered.partition.log
        assert 0 < log.tiered_end_offset < 10
        found = [tiered.partition_at(broker) for broker in tiered.rig.brokers.values()]
        # A follower seals what it knows to be replicated.
        await until(lambda: all(each is not None and each.high_watermark == 10 for each in found))
        await set_topic(tiered, local_retention_bytes="0")
        await retention(tiered)
        assert log.tiered_end_offset == 10
        logs = [partition.log for partition in found if partition is not None]
        await until(lambda: all(each.recovery_point == 10 for each in logs))
        await retention(tiered)
        assert [each.local_log_start_offset for each in logs] == [10, 10]
        assert await tiered.read_all() == tiered.values
        await set_topic(tiered, retention_bytes="0")
        await retention(tiered)
        assert log.log_start_offset == 10

    run_tiered(test)


async def retention(tiered: TieredRig) -> None:
    for broker in tiered.rig.brokers.values():
        apply_retention(broker.replica_manager)
    await tiered.tier()


async def set_topic(tiered: TieredRig, **values: str) -> None:
    """Set settings of the topic, and wait until they are in force."""
    client = await tiered.client()
    await client.alter(ResourceType.TOPIC, "t", **values)
    version = tiered.rig.control.image.version
    await until(
        lambda: all(
            each.replica_manager.image.version >= version for each in tiered.rig.brokers.values()
        )
    )


async def retain(tiered: TieredRig, size: int) -> None:
    """Retention by size, in both tiers."""
    await set_topic(tiered, retention_bytes=str(size))
    for _ in range(2):  # what is in the files alone goes after what is in the bucket
        await tiered.tier()
        for broker in tiered.rig.brokers.values():
            apply_retention(broker.replica_manager)


@pytest.mark.parametrize("value", ["false", None])
def test_a_tiered_topic_stays_one_without_leave_to_delete(value: str | None) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        client = await tiered.client()
        with pytest.raises(AssertionError, match="without deleting remote data"):
            await client.alter(ResourceType.TOPIC, "t", remote_storage_enable=value)
        assert tiered.partition.config.remote_storage_enable

    run_tiered(test)
