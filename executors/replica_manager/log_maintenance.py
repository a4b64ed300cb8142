"""Periodic work on all logs of a broker: retention, producer expiry, deleted and idle files.

Owns: what is done to each partition, and that an error in one partition does not stop the others.
Must not know how often it is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from sparklog.errors import SparklogError, StorageError
from sparklog.executors.log import Log
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.replica_manager import ReplicaManager
from sparklog.storage_backends.blocking import run_blocking

logger = logging.getLogger(__name__)


def apply_retention(replica_manager: ReplicaManager) -> None:
    """Apply retention to every partition."""
    now_ms = replica_manager.now_ms()
    for partition in replica_manager:
        if partition.log.offline is not None:
            continue
        log_start_offset = partition.log.log_start_offset
        try:
            deleted = partition.log.delete_old_segments(
                now_ms,
                partition.unclamped_last_stable_offset,
                noted_log_start=replica_manager.checkpoints.log_start_of(partition.topic_partition),
            )
            replica_manager.counters.segments_deleted += deleted
            if partition.log.roll_expired(now_ms, partition.unclamped_last_stable_offset):
                replica_manager.carry_out(partition.plan_flush(now_ms))
        except SparklogError as error:
            logger.error("retention of %s failed: %s", partition.topic_partition, error)
        if partition.log.log_start_offset != log_start_offset:
            replica_manager.delayed_operations.complete_all(partition.topic_partition)


async def apply_local_retention(replica_manager: ReplicaManager) -> None:
    """Delete the segments of tiered logs that are in the bucket and too old, or too many, for the
    brokers' disks.

    The checkpoints tell the new local log starts first.  Otherwise a start after a crash could take
    the records that were deleted for lost.
    """
    now_ms, planned = replica_manager.now_ms(), dict[Partition, int]()
    for partition in replica_manager:
        log = partition.log
        if log.config.remote_storage_enable and log.offline is None:
            stable_offset = partition.unclamped_last_stable_offset
            offset = log.local_retention_offset(now_ms, stable_offset)
            if offset > log.local_log_start_offset:
                planned[partition] = offset
    if planned:
        starts = {partition.topic_partition: offset for partition, offset in planned.items()}
        try:
            await replica_manager.checkpoints.write(
                local_log_starts=starts, then=partial(_delete_local, replica_manager, planned)
            )
        except StorageError as error:
            logger.error("no segments of tiered logs are deleted: %s", error)


def _delete_local(replica_manager: ReplicaManager, planned: Mapping[Partition, int]) -> None:
    now_ms = replica_manager.now_ms()
    for partition, offset in planned.items():
        if replica_manager.get(partition.topic_partition) is not partition:
            continue
        try:
            deleted = partition.log.delete_local_segments(offset, now_ms)
            replica_manager.counters.segments_deleted += deleted
        except SparklogError as error:
            logger.error("local retention of %s failed: %s", partition.topic_partition, error)


def expire_producers(replica_manager: ReplicaManager) -> None:
    """Forget the producers that have been idle for too long, in every partition."""
    now_ms = replica_manager.now_ms()
    for partition in replica_manager:
        if partition.log.truncating:  # another thread works on the producer state
            continue
        partition.producers.expire(now_ms, replica_manager.broker_config.producer_id_expiration_ms)


async def purge_deleted(replica_manager: ReplicaManager) -> None:
    """Remove the files whose ``file.delete.delay.ms`` is over."""
    await run_blocking(
        _purge, [partition.log for partition in replica_manager], replica_manager.now_ms()
    )


async def close_idle_files(replica_manager: ReplicaManager) -> None:
    """Close files that were not used since the last call, if many are open."""
    while replica_manager.files.close_idle():
        await asyncio.sleep(0)


def _purge(logs: Iterable[Log], now_ms: int) -> None:
    for log in logs:
        try:
            log.purge_deleted(now_ms)
        except StorageError as error:
            logger.error("files of %s stay: %s", log.topic_partition, error)


def synchronous(action: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    """Make a synchronous action awaitable."""

    async def run() -> None:
        action()

    return run
