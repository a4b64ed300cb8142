"""A bucket that refuses to delete an object: everything else of the partition goes on."""

import errno

import pytest

from sparklog.errors import StorageError
from sparklog.executors.tiering import remote_log_manager
from sparklog.executors.tiering.leadership import Leadership, remote_partition
from sparklog.executors.tiering.remote_log_manager import (
    LOG_REFUSALS_EVERY_MS,
    SWEEP_AGAIN_MS,
    SWEEP_EVERY_MS,
    RemoteLogManager,
)
from sparklog.remote_log import garbage, names
from sparklog.storage_backends.base import storage_error
from tests.support.logged import messages_of
from tests.unit.executors.tiering.test_leaving import manager_of
from tests.unit.executors.tiering.test_tiering_loops import fail
from tests.unit.executors.tiering.test_tiering_settings import alter, objects_of
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


def refuse_deletes(tiered: TieredRig, name: str) -> None:
    def slow(operation: str, where: str) -> None:
        if operation == "delete" and name in where:
            raise storage_error("delete", where, OSError(errno.EACCES, ""))

    tiered.bucket.faults.slow = slow


async def with_objects(tiered: TieredRig) -> tuple[RemoteLogManager, Leadership, list[str]]:
    """The manager of a partition whose garbage goes at once, and its objects in the bucket."""
    await tiered.start()
    await tiered.fill(40)
    await tiered.tier()
    await alter(tiered, remote_object_delete_delay_ms="0")
    assert tiered.leader is not None
    manager = manager_of(tiered.leader)
    return manager, manager._led[tiered.partition.topic_partition], objects_of(tiered)


def put_orphan(tiered: TieredRig) -> str:
    folder = names.segments_folder(*remote_partition(tiered.partition))
    orphan = names.log_object(folder, names.segment_id(0, 0, 1, bytes(8)))
    tiered.bucket.put(orphan, b"x")
    return orphan


def test_a_refused_object_ends_neither_deletions_nor_sweeps(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "REFUSED_REST_MS", 0)

    async def test(tiered: TieredRig) -> None:
        manager, led, objects = await with_objects(tiered)
        refused, orphan = objects[0], put_orphan(tiered)
        refuse_deletes(tiered, refused)
        await tiered.delete_records(tiered.partition.log.tiered_end_offset)
        state = led.state
        led.sweep_at_ms = 0
        for _ in range(3):
            await manager._clean_up_all()
        assert objects_of(tiered) == [refused]
        assert not tiered.bucket.exists(orphan)
        assert state is not None
        assert led.state is not None
        assert manager.metrics.failures == 3
        assert manager.metrics.orphans_deleted == 1
        [line] = messages_of(caplog, remote_log_manager)
        assert line.startswith("t-0 has objects in the remote_dir that it does not need any more")
        assert refused in line
        assert "s3:DeleteObject" in line
        assert led.refusal_logged_ms is not None
        led.refusal_logged_ms -= LOG_REFUSALS_EVERY_MS
        await manager._clean_up_all()
        assert len(messages_of(caplog, remote_log_manager)) == 2
        tiered.bucket.faults.clear()
        await manager._clean_up_all()
        assert objects_of(tiered) == []
        assert manager.metrics.failures == 4

    run_tiered(test)


def test_orphans_are_swept_though_the_deletion_of_garbage_fails() -> None:
    async def test(tiered: TieredRig) -> None:
        manager, led, objects = await with_objects(tiered)
        orphan = put_orphan(tiered)
        fail(tiered, "collect_garbage", StorageError("the bucket takes no request for many"))
        led.sweep_at_ms = 0
        await manager._clean_up_all()
        assert objects_of(tiered) == objects
        assert not tiered.bucket.exists(orphan)
        assert (manager.metrics.failures, led.state) == (1, None)

    run_tiered(test)


def test_a_refused_orphan_is_told_and_a_sweep_that_fails_is_made_again_soon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(tiered: TieredRig) -> None:
        manager, led, _ = await with_objects(tiered)
        assert tiered.leader is not None
        now_ms = tiered.leader.replica_manager.monotonic_ms
        orphan = put_orphan(tiered)
        tiered.bucket.faults.fail_next(operation="delete", under=orphan)
        led.sweep_at_ms = 0
        await manager._clean_up_all()
        assert led.sweep_at_ms <= now_ms() + SWEEP_AGAIN_MS
        refuse_deletes(tiered, orphan)
        led.sweep_at_ms = 0
        await manager._take_over_all()
        await manager._clean_up_all()
        assert led.state is not None
        assert led.sweep_at_ms > now_ms() + SWEEP_EVERY_MS - SWEEP_AGAIN_MS
        assert orphan in messages_of(caplog, remote_log_manager)[-1]

    run_tiered(test)
