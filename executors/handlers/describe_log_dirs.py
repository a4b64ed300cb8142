"""DescribeLogDirs (key 35) v1-5: the data directories of this broker, and what lies in them.

Sizes are those of the log files alone, as Kafka counts them.  A directory that does not work is
answered with KAFKA_STORAGE_ERROR and without partitions.  Deviation: partitions are never moved
between directories (AlterReplicaLogDirs is not served), so no log is a future one, and directories
cannot be cordoned.
"""

from collections.abc import Collection, Iterable

from sparklog.errors import ErrorCode, StorageError
from sparklog.executors.broker_folder import BrokerFolder
from sparklog.executors.partition import Partition
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition
from sparklog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def handler(table: PartitionTable) -> ApiHandler:
    async def handle(
        _context: RequestContext, request: DescribeLogDirsRequest
    ) -> DescribeLogDirsResponse:
        wanted = _wanted(request)
        spaces = [(folder, await run_blocking(_space, folder)) for folder in table.folders]
        return DescribeLogDirsResponse(
            results=(
                *(
                    _working(folder, space, table.partitions_in(folder), wanted)
                    for folder, space in spaces
                    if folder in table.folders.working
                ),
                *(_failed(failure.location) for failure in table.folders.failed),
            )
        )

    return ApiHandler(
        api_key=DescribeLogDirsRequest.API_KEY,
        min_version=DescribeLogDirsRequest.MIN_VERSION,
        max_version=DescribeLogDirsRequest.MAX_VERSION,
        handle=handle,
    )


def _wanted(request: DescribeLogDirsRequest) -> Collection[TopicPartition] | None:
    """The partitions to describe; None for all."""
    if request.topics is None:
        return None
    return {TopicPartition(t.topic, number) for t in request.topics for number in t.partitions}


def _space(folder: BrokerFolder) -> tuple[int, int]:
    try:
        return folder.half.space()
    except StorageError:
        return -1, -1


def _working(
    folder: BrokerFolder,
    space: tuple[int, int],
    partitions: Iterable[Partition],
    wanted: Collection[TopicPartition] | None,
) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in sorted(partitions, key=_key):
        tp = partition.topic_partition
        if wanted is None or tp in wanted:
            topics.setdefault(tp.topic, []).append(_described(partition))
    total_bytes, usable_bytes = space
    return DescribeLogDirsResult(
        log_dir=folder.location,
        topics=tuple(
            DescribeLogDirsTopic(name=name, partitions=tuple(found))
            for name, found in topics.items()
        ),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _key(partition: Partition) -> TopicPartition:
    return partition.topic_partition


def _described(partition: Partition) -> DescribeLogDirsPartition:
    log = partition.log
    return DescribeLogDirsPartition(
        partition_index=partition.topic_partition.partition,
        partition_size=log.size,
        offset_lag=max(partition.high_watermark - log.log_end_offset, 0),
    )


def _failed(location: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=location)
