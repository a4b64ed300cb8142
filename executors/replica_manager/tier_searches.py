"""The search for an offset by timestamp in both tiers of a log.

Owns: which tier is searched, and in which order.  Must not know how either tier is searched, or how
many searches may run.
"""

from functools import partial

from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager.offset_searches import OffsetSearches
from sparklog.executors.replica_manager.remote_reads import RemoteReads
from sparklog.transport import ServerConnection
from sparklog.types import Isolation, OffsetTimestamp


async def find_in_tiers(
    searches: OffsetSearches,
    remote_reads: RemoteReads,
    connection: ServerConnection,
    partition: Partition,
    timestamp: int,
    isolation: Isolation,
    *,
    remote_timeout_s: float,
) -> OffsetTimestamp | None:
    """The offset for a client's ``timestamp``; see ``Partition.find_offset``.

    A time in milliseconds is searched in the bucket first, if the log begins there.
    ``OffsetSpec.MAX_TIMESTAMP`` is searched in the local log only, as in Kafka.  Local segments may
    be deleted meanwhile; then both tiers are searched again.  The bucket has ``remote_timeout_s``
    for each search.

    Raises KafkaError: as ``Partition.find_offset`` and ``RemoteReads.find_timestamp``, and
    REQUEST_TIMED_OUT when too many searches wait or the bucket takes longer.
    """
    log = partition.log
    while True:
        local_start = log.local_log_start_offset
        if timestamp >= 0 and log.log_start_offset < local_start:
            find = partial(_first_in_bucket, remote_reads, partition, timestamp)
            found = await searches.run_remote(connection, find, remote_timeout_s)
            if found is not None and found.offset < local_start:
                return partition.readable(found, isolation)
        search = partition.find_offset(timestamp, isolation)
        found = await searches.run(connection, partition.topic_partition, search)
        if log.local_log_start_offset == local_start:
            return found


async def _first_in_bucket(
    remote_reads: RemoteReads, partition: Partition, timestamp: int
) -> OffsetTimestamp | None:
    """The first record in the bucket with at least this timestamp, at or above the log start."""
    log = partition.log
    while True:
        start = log.log_start_offset
        found = await remote_reads.find_timestamp(partition, timestamp)
        if found is None or found.offset >= log.log_start_offset:
            return found
        if start == log.log_start_offset:
            return None
        # Records were deleted while the bucket was searched.
