"""Tiered topics whose log start, leader epochs or helper process are not what was expected."""

from sparklog.executors.tiering.leadership import remote_partition
from sparklog.executors.tiering.remote_log_manager import RemoteLogManager
from sparklog.executors.tiering.remote_process import InlineRemoteLogs
from sparklog.remote_log import names
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


def manager_of(tiered: TieredRig) -> RemoteLogManager:
    assert tiered.leader is not None
    assert tiered.leader.tiering is not None
    return tiered.leader.tiering.manager


def remote_of(tiered: TieredRig) -> InlineRemoteLogs:
    remote = manager_of(tiered)._remote
    assert isinstance(remote, InlineRemoteLogs)
    return remote


def test_a_log_that_starts_inside_of_a_segment_is_copied_from_its_start_on() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        tiered.partition.log.advance_log_start(9)
        await tiered.tier()
        log = tiered.partition.log
        assert log.tiered_end_offset == log.segments[-1].base_offset
        assert await tiered.read_all(9) == tiered.values[9:]
        status = await tiered.rig.status()
        assert status["remote_failures"] == 0

    run_tiered(test)


def test_a_log_start_that_passes_the_end_of_the_bucket_is_told_to_the_manifest_first() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await tiered.tier()
        end = tiered.partition.log.tiered_end_offset
        await tiered.fill(40)
        tiered.partition.log.advance_log_start(end + 9)
        await tiered.tier()
        log = tiered.partition.log
        assert log.tiered_end_offset == log.segments[-1].base_offset
        assert await tiered.read_all(end + 9) == tiered.values[end + 9 :]
        status = await tiered.rig.status()
        assert status["remote_failures"] == 0

    run_tiered(test)


def test_a_leader_whose_log_start_is_lost_takes_that_of_a_manifest_without_segments() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(local_retention_bytes="0")
        await tiered.fill(40)
        await tiered.tier()
        log, manager = tiered.partition.log, manager_of(tiered)
        local_start = log.local_log_start_offset
        assert local_start == log.tiered_end_offset
        # Retention has removed all segments, of which this log has heard nothing.
        where = remote_partition(tiered.partition), tiered.partition.leader_epoch
        await remote_of(tiered).call("move_log_start", *where, local_start, 1)
        log.leader_epochs.truncate_from_start(local_start, log.log_end_offset)
        manager._led.clear()
        await manager.look_after_all()
        assert (log.log_start_offset, log.local_log_start_offset) == (local_start, local_start)
        assert manager.metrics.failures == 0
        await tiered.fill(40)
        await tiered.tier()
        assert await tiered.read_all(local_start) == tiered.values[local_start:]

    run_tiered(test)


def test_a_new_leader_looks_at_the_manifest_at_once() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start(2)
        await tiered.fill(20)
        first = tiered.leader
        assert first is not None
        await tiered.rig.crash_broker(first.options.broker_id)
        await until(lambda: tiered.leader not in (None, first))
        await until(lambda: tiered.partition.log.tiered_end_offset > 0)

    run_tiered(test, looks_itself=True)


def test_orphans_are_deleted_once_a_day() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await tiered.tier()
        manager, tp = manager_of(tiered), tiered.partition.topic_partition
        folder = names.segments_folder(*remote_partition(tiered.partition))
        kept = tiered.bucket.list(folder)
        orphan = names.log_object(folder, names.segment_id(0, 0, 1, bytes(8)))
        tiered.bucket.put(orphan, b"x")
        await tiered.tier()
        assert tiered.bucket.exists(orphan)
        manager._led[tp].sweep_at_ms = 0
        await tiered.tier()
        assert tiered.bucket.list(folder) == kept
        tiered.bucket.put(orphan, b"x")
        await tiered.tier()
        assert tiered.bucket.exists(orphan)
        assert (await tiered.rig.status())["remote_orphans_deleted"] == 1

    run_tiered(test)


def test_a_new_process_for_the_bucket_takes_the_manifests_over_again() -> None:
    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(20)
        await tiered.tier()
        remote_of(tiered)._service = None
        await tiered.fill(20)
        await tiered.tier()
        assert manager_of(tiered).metrics.failures == 1
        await tiered.tier()
        log = tiered.partition.log
        assert log.tiered_end_offset == log.segments[-1].base_offset
        assert manager_of(tiered).metrics.failures == 1
        assert await tiered.read_all() == tiered.values

    run_tiered(test)
