"""The remote_dir has nothing of a partition whose older records were there."""

import logging

import pytest

from sparklog.errors import ErrorCode
from sparklog.remote_log import names
from sparklog.wire.protocol.messages.fetch import FetchPartition
from tests.support.waiting import until
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered


async def lose_the_bucket(tiered: TieredRig) -> tuple[int, str]:
    """Empty the bucket but for its owner, and start the broker anew.

    Returns the local log start offset, and the folder that the topic had.
    """
    await tiered.start()
    await tiered.fill(40)
    await tiered.tier()
    local = tiered.partition.log.local_log_start_offset
    assert 0 < local < 40
    await tiered.rig.stop_broker(1)
    (folder,) = [name for name in tiered.bucket.list("") if name != names.CLUSTER_FILE]
    tiered.bucket.rename_folder(folder, "away")
    await tiered.rig.start_broker(1, new=False)
    await until(lambda: tiered.leader is not None)
    return local, folder


async def is_refused(tiered: TieredRig, local: int, folder: str, told: str) -> None:
    await tiered.tier()
    log = tiered.partition.log
    assert (log.log_start_offset, log.local_log_start_offset) == (0, local)
    assert tiered.bucket.list("") == ["away", names.CLUSTER_FILE]
    assert told == (
        f"t-0 is behind in the remote_dir: {tiered.bucket.url} never had a segment of partition "
        f"{folder}-0, but the log of the leader starts at offset 0, and its files only at {local}; "
        f"mount or restore the remote_dir that has [0, {local}), or accept the loss of these "
        f"records with DeleteRecords up to offset {local}"
    )


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.message for each in caplog.records if each.levelno == logging.ERROR]


def test_the_log_keeps_its_start_until_the_bucket_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(tiered: TieredRig) -> None:
        local, folder = await lose_the_bucket(tiered)
        await tiered.tier()
        await is_refused(tiered, local, folder, *errors(caplog))
        await tiered.fill(20)
        tiered.bucket.rename_folder("away", folder)
        await tiered.tier()
        assert tiered.partition.log.tiered_end_offset > 40
        assert await tiered.read_all() == tiered.values

    run_tiered(test)


def test_the_loss_is_accepted_with_delete_records(caplog: pytest.LogCaptureFixture) -> None:
    async def test(tiered: TieredRig) -> None:
        local, folder = await lose_the_bucket(tiered)
        await tiered.tier()
        await is_refused(tiered, local, folder, *errors(caplog))
        await tiered.delete_records(local)
        log = tiered.partition.log
        assert (log.log_start_offset, log.local_log_start_offset) == (local, local)
        await tiered.fill(20)
        await tiered.tier()
        assert log.log_start_offset == local < log.local_log_start_offset
        assert log.tiered_end_offset > 40
        assert await tiered.read_all(local) == tiered.values[local:]

    run_tiered(test)


def test_the_leader_goes_on_after_a_short_time_without_the_bucket() -> None:
    """A consumer reads old records meanwhile, and a look finds nothing either."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        await tiered.fill(40)
        await tiered.tier()
        log, end = tiered.partition.log, tiered.partition.log.tiered_end_offset
        (folder,) = [name for name in tiered.bucket.list("") if name != names.CLUSTER_FILE]
        owner = tiered.bucket.read(names.CLUSTER_FILE)
        tiered.bucket.delete(names.CLUSTER_FILE)
        tiered.bucket.rename_folder(folder, "away")
        assert tiered.leader is not None
        client = await tiered.rig.client(tiered.leader.options.broker_id)
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        response = await client.fetch_all("t", (part,), max_wait_ms=5_000)
        ((data,),) = [topic.partitions for topic in response.responses]
        assert data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await tiered.fill(20)
        for _ in range(2):
            await tiered.tier()
        assert tiered.bucket.list("") == ["away"], "nothing was written"
        assert log.tiered_end_offset == end
        tiered.bucket.rename_folder("away", folder)
        tiered.bucket.put(names.CLUSTER_FILE, owner)
        manager = tiered.leader.tiering.manager if tiered.leader.tiering else None
        assert manager is not None
        manager._led[tiered.partition.topic_partition].copy_retry.copied()
        await tiered.tier()
        assert log.tiered_end_offset == log.segments[-1].base_offset > end
        assert await tiered.read_all() == tiered.values

    run_tiered(test)
