"""Periodic work on all logs of a broker: retention, producer expiry, deleted and idle files.

Owns: what is done to each partition, and that an error in one partition does not stop the others.
Must not know how often it is done.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from sparklog.errors import SparklogError, StorageError
from sparklog.executors.log import Log
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
                now_ms, partition.unclamped_last_stable_offset
            )
            replica_manager.counters.segments_deleted += deleted
        except SparklogError as error:
            logger.error("retention of %s failed: %s", partition.topic_partition, error)
        if partition.log.log_start_offset != log_start_offset:
            replica_manager.delayed_operations.complete_all(partition.topic_partition)


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
