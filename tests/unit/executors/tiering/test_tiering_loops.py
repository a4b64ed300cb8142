"""What goes on while copies take long, or fail again and again."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.replica_manager import apply_retention
from sparklog.executors.tiering import segment_copier
from sparklog.executors.tiering.copy_retry import RETRY_MS_MAX, CopyRetry
from sparklog.types import TopicPartition
from tests.support.waiting import until
from tests.unit.executors.tiering.test_leaving import OFF, ON, held, log_of, manager_of
from tests.unit.executors.tiering.test_tiering_settings import alter, objects_of, set_topic
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

FAST = {"remote_log_manager_task_interval_ms": "20"}


def fail(tiered: TieredRig, method: str, error: Exception) -> None:
    """Let calls of one method of the leader's remote logs fail."""
    assert tiered.leader is not None
    remote: Any = manager_of(tiered.leader)._remote
    real = remote.call

    async def call(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == method:
            raise error
        return await real(name, *args, **kwargs)

    remote.call = call


def test_new_leaders_take_over_and_followers_learn_while_a_copy_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy waits for a slow bucket, and other partitions wait for the copy."""
    monkeypatch.setattr(segment_copier, "PREPARED_AT_ONCE", 1)

    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await tiered.fill(20)
        log, leader = tiered.partition.log, tiered.leader
        assert leader is not None
        (follower,) = (each for each in tiered.rig.brokers.values() if each is not leader)
        await until(lambda: log_of(tiered, follower).tiered_end_offset > 10)
        with held(manager_of(leader), "copy") as go_on:
            await tiered.fill(20)
            await until(lambda: manager_of(leader)._copier._copying.locked())
            client = await tiered.rig.client(leader.options.broker_id)
            await client.create_topic("u", replication_factor=2, remote_storage_enable="true")
            managers = [manager_of(broker) for broker in (leader, follower)]
            u = TopicPartition("u", 0)
            await until(lambda: any(u in m._led and m._led[u].state for m in managers))
            log_of(tiered, follower).tiered_end_offset = 0
            await until(lambda: log_of(tiered, follower).tiered_end_offset > 10)
            go_on.set()
            await until(lambda: log.tiered_end_offset == log.segments[-1].base_offset)
        assert await tiered.read_all() == tiered.values

    run_tiered(test, looks_itself=True, **FAST)


def test_a_partition_is_looked_after_while_one_of_its_segments_is_copied() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        log, leader = tiered.partition.log, tiered.leader
        assert leader is not None
        await until(lambda: log.tiered_end_offset > 10)
        with held(manager_of(leader), "copy") as go_on:
            await tiered.fill(20)
            await until(lambda: manager_of(leader)._copier._copying.locked())
            await set_topic(tiered, retention_bytes="2500")
            await until(lambda: log.log_start_offset > 0)
            go_on.set()
            await until(lambda: log.tiered_end_offset == log.segments[-1].base_offset)
        await set_topic(tiered, retention_bytes="-1")
        await manager_of(leader)._clean_up_all()  # a look that has begun before ends first
        start = log.log_start_offset
        assert await tiered.read_all(start) == tiered.values[start:]

    run_tiered(test, looks_itself=True, **FAST)


def test_a_copy_that_was_made_before_the_topic_left_the_bucket_is_not_added() -> None:
    """The topic has left meanwhile, and come back."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start(local_retention_bytes="1000000")
        await tiered.fill(10)
        await tiered.tier()
        log, leader = tiered.partition.log, tiered.leader
        assert leader is not None
        manager = manager_of(leader)
        await tiered.fill(10)
        await tiered.settle()
        with held(manager, "copy") as go_on:
            copying = asyncio.create_task(manager._copier.copy_all())
            await until(lambda: manager._copier._copying.locked())
            await set_topic(tiered, **OFF)
            await manager._take_over_all()
            await set_topic(tiered, **ON)
            await manager._take_over_all()
            go_on.set()
            await copying
        assert manager.metrics.failures == 0
        assert (await tiered.rig.status())["remote_segments"] > 0
        assert log.tiered_end_offset == log.segments[-1].base_offset
        await set_topic(tiered, local_retention_bytes="0")
        await tiered.tier()
        assert log.local_log_start_offset == log.segments[-1].base_offset
        assert await tiered.read_all() == tiered.values

    run_tiered(test)


def test_retention_and_deletion_go_on_while_copies_fail() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        log, end = tiered.partition.log, tiered.partition.log.tiered_end_offset
        objects = objects_of(tiered)
        await alter(tiered, remote_object_delete_delay_ms="0")
        fail(tiered, "copy", StorageError("the bucket takes no objects"))
        await tiered.fill(20)
        await set_topic(tiered, retention_bytes="5000")
        for _ in range(2):
            await tiered.tier()
        assert 0 < log.log_start_offset < end == log.tiered_end_offset
        assert set(objects_of(tiered)) < set(objects)

    run_tiered(test)


def test_a_damaged_segment_expires_and_is_told_with_a_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(local_retention_bytes="-2")
        log = tiered.partition.log
        fail(tiered, "copy", CorruptLogError("t-0/0.log", 7, "wrong checksum"))
        await tiered.fill(40)
        await tiered.tier()
        assert log.tiered_end_offset == log.log_start_offset == 0
        (told,) = [each for each in caplog.records if "wrong checksum" in each.getMessage()]
        assert "delete the records below" in told.getMessage()
        await set_topic(tiered, retention_bytes="3000")
        await tiered.tier()
        assert tiered.leader is not None
        apply_retention(tiered.leader.replica_manager)
        start = log.log_start_offset
        assert start == log.segments[0].base_offset > 10
        assert await tiered.read_all(start) == tiered.values[start:]

    run_tiered(test)


def test_a_copy_that_keeps_failing_is_tried_less_often() -> None:
    retry, now_ms, tries = CopyRetry(), 0, list[int]()
    while now_ms < 2_000_000:
        if retry.is_due(now_ms):
            tries.append(now_ms // 1000)
            retry.failed(now_ms, 1000)
        now_ms += 1000
    pauses = [after - before for before, after in pairwise(tries)]
    assert pauses[:6] == [1, 1, 3, 7, 15, 31]
    assert set(pauses[9:]) == {RETRY_MS_MAX // 1000}
    assert retry.failures == len(tries)
    retry.copied()
    assert retry.is_due(0)
    assert retry.failures == 0


def test_the_longest_pause_of_a_long_interval_is_the_interval() -> None:
    retry, interval_ms = CopyRetry(), 2 * RETRY_MS_MAX
    for _ in range(100):
        retry.failed(0, interval_ms)
    assert not retry.is_due(interval_ms - 1)
    assert retry.is_due(interval_ms)


def test_a_failing_partition_is_passed_by_and_others_are_copied() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await tiered.settle()
        assert tiered.leader is not None
        manager = manager_of(tiered.leader)
        fail(tiered, "copy", StorageError("no"))
        for _ in range(6):
            await manager.look_after_all()
        assert manager.metrics.failures == 2, "the third try is an hour later"
        led = manager._led[tiered.partition.topic_partition]
        assert led.copy_retry.failures == 2

    run_tiered(test)
