"""DescribeLogDirs (key 35) v1-5: the log directories of this broker, and the logs in them.

Sizes count the log files only, as in Kafka.  A log directory that does not work is answered with
KAFKA_STORAGE_ERROR and without partitions.  Deviation: logs are never moved between log directories
(AlterReplicaLogDirs is not served), so there are no future logs, and log directories cannot be
cordoned.  To sparklog's own clients the leader of a tiered partition tells, in tagged fields, what
is in the remote_dir.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from sparklog.errors import ErrorCode, StorageError
from sparklog.executors.log_dirs import BrokerDir
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import RemoteSizes, ReplicaManager, no_remote_sizes
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import SLICE_UNITS, Slices, in_slices
from sparklog.storage_backends.blocking import run_blocking
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

#: Units of describing one partition.
_PARTITION_UNITS: Final = 5
#: A size that this broker does not know, or that the client would not know what to do with.
NOT_KNOWN: Final = -1

_FindSizes: TypeAlias = Callable[[Partition], RemoteSizes | None]


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    async def handle(
        context: RequestContext, request: DescribeLogDirsRequest
    ) -> Slices[DescribeLogDirsResponse]:
        spaces = [
            (log_dir, await run_blocking(_space, log_dir)) for log_dir in replica_manager.log_dirs
        ]
        remote_sizes = replica_manager.remote_sizes if context.own_client else no_remote_sizes
        return _response(replica_manager, request, spaces, remote_sizes)

    return ApiHandler(
        api_key=DescribeLogDirsRequest.API_KEY,
        min_version=DescribeLogDirsRequest.MIN_VERSION,
        max_version=DescribeLogDirsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
    )


def _response(
    replica_manager: ReplicaManager,
    request: DescribeLogDirsRequest,
    spaces: Iterable[tuple[BrokerDir, tuple[int, int]]],
    remote_sizes: _FindSizes,
) -> Slices[DescribeLogDirsResponse]:
    wanted = yield from _wanted(request)
    results: list[DescribeLogDirsResult] = []
    for log_dir, space in spaces:
        if log_dir in replica_manager.log_dirs.working:
            partitions = replica_manager.partitions_in(log_dir)
            working = _working(log_dir, space, partitions, wanted, remote_sizes)
            results.append((yield from working))
    failed = [_failed(failure.location) for failure in replica_manager.log_dirs.failed]
    return DescribeLogDirsResponse(results=(*results, *failed))


def _wanted(request: DescribeLogDirsRequest) -> Slices[Collection[TopicPartition] | None]:
    """The partitions to describe; None for all."""
    if request.topics is None:
        return None
    wanted: set[TopicPartition] = set()
    named = (TopicPartition(t.topic, number) for t in request.topics for number in t.partitions)
    yield from in_slices(wanted.add, named, 1)
    return wanted


def _space(log_dir: BrokerDir) -> tuple[int, int]:
    try:
        return log_dir.half.space()
    except StorageError:
        return -1, -1


def _working(
    log_dir: BrokerDir,
    space: tuple[int, int],
    partitions: Iterable[Partition],
    wanted: Collection[TopicPartition] | None,
    remote_sizes: _FindSizes,
) -> Slices[DescribeLogDirsResult]:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    spent = 0
    for partition in sorted(partitions, key=_key):
        spent += _PARTITION_UNITS
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
        tp = partition.topic_partition
        if wanted is None or tp in wanted:
            described = _described(partition, remote_sizes(partition))
            topics.setdefault(tp.topic, []).append(described)
    yield spent
    total_bytes, usable_bytes = space
    return DescribeLogDirsResult(
        log_dir=log_dir.location,
        topics=tuple(
            DescribeLogDirsTopic(name=name, partitions=tuple(found))
            for name, found in topics.items()
        ),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )


def _key(partition: Partition) -> TopicPartition:
    return partition.topic_partition


def _described(partition: Partition, sizes: RemoteSizes | None) -> DescribeLogDirsPartition:
    log = partition.log
    return DescribeLogDirsPartition(
        partition_index=partition.topic_partition.partition,
        partition_size=log.size,
        offset_lag=max(partition.high_watermark - log.log_end_offset, 0),
        remote_size=NOT_KNOWN if sizes is None else sizes.remote_bytes,
        remote_copy_lag=NOT_KNOWN if sizes is None else sizes.copy_lag_bytes,
    )


def _failed(location: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=location)
