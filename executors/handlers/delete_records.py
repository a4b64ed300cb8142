"""DeleteRecords (key 21) v0-2: move the log start offset (KIP-107).

A response waits until no replica on a live broker holds the deleted records any more; a leader
without followers answers at once.  A partition that is late gets REQUEST_TIMED_OUT and its
low watermark so far, as in Kafka.  When a partition is named several times, its last target
counts and it is answered once, as in Kafka.

A broker that is fenced in the leader's cluster image is not waited for, as in Kafka.  Until its
replica gets the new log start from the leader, a consumer that reads from that replica may still
see the records.  If the replica leads before then, for example because it is eligible (KIP-966),
the records are there again until they are deleted once more.

Deviation: the new log start offset is on the disk before any client sees it; Kafka writes it later.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.handlers.connection_owner import owner_of
from sparklog.executors.purgatory import Owner
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.metadata.topic_names import check_not_internal
from sparklog.service.error_responses import refuse_delete_records
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import SLICE_UNITS, Slices, in_groups, in_slices
from sparklog.types import NO_OFFSET, TopicPartition
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

#: Units of planning the deletion in one partition.
_PARTITION_UNITS: Final = 6


@dataclass(slots=True)
class _Deletion:
    """One partition of the response.  Its low watermark has to reach ``target``."""

    topic_partition: TopicPartition
    result: DeleteRecordsPartitionResult
    target: int | None = None


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(
        context: RequestContext, request: DeleteRecordsRequest
    ) -> Slices[Awaitable[Slices[DeleteRecordsResponse]]]:
        wanted: dict[str, dict[int, DeleteRecordsPartition]] = {}
        spent = 0
        for topic in request.topics:
            of_topic = wanted.setdefault(topic.name, {})
            of_topic.update([(part.partition_index, part) for part in topic.partitions])
            spent += 1 + len(topic.partitions) // 8
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
        plans = yield from in_groups(
            wanted.items(),
            lambda of_topic: of_topic[1].values(),
            lambda of_topic, part: _plan(replica_manager, of_topic[0], part),
            lambda of_topic, planned: (of_topic[0], planned),
            _PARTITION_UNITS,
        )
        deletions = dict(plans)
        owner = owner_of(replica_manager, context.connection)
        return _answer(replica_manager, request.timeout_ms / 1000, deletions, owner)

    return ApiHandler(
        api_key=DeleteRecordsRequest.API_KEY,
        min_version=DeleteRecordsRequest.MIN_VERSION,
        max_version=DeleteRecordsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_delete_records,
    )


async def _answer(
    replica_manager: ReplicaManager,
    timeout_s: float,
    deletions: Mapping[str, Sequence[_Deletion]],
    owner: Owner,
) -> Slices[DeleteRecordsResponse]:
    """The response once all deletions are done or late.  ``deletions`` are by topic."""
    every = [deletion for of_topic in deletions.values() for deletion in of_topic]
    targets = {d.topic_partition: d.target for d in every if d.target is not None}
    try:
        await replica_manager.checkpoints.write(
            targets, then=lambda: _move_starts(replica_manager, every)
        )
    except StorageError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    pending = [deletion for deletion in every if not _is_done(replica_manager, deletion)]
    if pending:
        delayed = _DelayedDeletions(replica_manager, pending)
        keys = [deletion.topic_partition for deletion in pending]
        replica_manager.delayed_operations.delete_records.watch(delayed, keys, timeout_s, owner)
        await delayed.done
    return _response(deletions)


def _response(deletions: Mapping[str, Sequence[_Deletion]]) -> Slices[DeleteRecordsResponse]:
    def answered(of_topic: tuple[str, Sequence[_Deletion]]) -> DeleteRecordsTopicResult:
        name, planned = of_topic
        results = tuple([deletion.result for deletion in planned])
        return DeleteRecordsTopicResult(name=name, partitions=results)

    topics = yield from in_slices(answered, deletions.items(), 2)
    return DeleteRecordsResponse(topics=tuple(topics))


class _DelayedDeletions:
    """A delayed operation: deletions that other replicas still have to carry out."""

    def __init__(self, replica_manager: ReplicaManager, pending: Sequence[_Deletion]) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._replica_manager = replica_manager
        self._pending = list(pending)

    def try_complete(self, key: TopicPartition, size: int) -> bool:
        del size
        self._pending = [
            deletion
            for deletion in self._pending
            if deletion.topic_partition != key or not _is_done(self._replica_manager, deletion)
        ]
        if not self._pending:
            self._finish()
        return not self._pending

    def expire(self) -> None:
        for deletion in self._pending:
            deletion.result = DeleteRecordsPartitionResult(
                partition_index=deletion.topic_partition.partition,
                low_watermark=deletion.result.low_watermark,
                error_code=int(ErrorCode.REQUEST_TIMED_OUT),
            )
        self._finish()

    def cancel(self) -> None:
        self.done.cancel()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _plan(replica_manager: ReplicaManager, topic: str, part: DeleteRecordsPartition) -> _Deletion:
    tp = TopicPartition(topic, part.partition_index)
    try:
        check_not_internal(topic, "delete its records")
        target = replica_manager.find(topic, part.partition_index).deletion_target(part.offset)
    except KafkaError as error:
        return _Deletion(tp, _failed(part.partition_index, error))
    return _Deletion(tp, _reached(tp, NO_OFFSET), target)


def _move_starts(replica_manager: ReplicaManager, deletions: Iterable[_Deletion]) -> None:
    for deletion in deletions:
        if deletion.target is None:
            continue
        tp = deletion.topic_partition
        try:
            replica_manager.carry_out(
                replica_manager.find(tp.topic, tp.partition).delete_records(deletion.target)
            )
        except KafkaError as error:
            deletion.result, deletion.target = _failed(tp.partition, error), None


def _is_done(replica_manager: ReplicaManager, deletion: _Deletion) -> bool:
    """Update the result.  Return whether the deletion need not wait any more."""
    if deletion.target is None:
        return True
    tp = deletion.topic_partition
    try:
        low_watermark = replica_manager.find(tp.topic, tp.partition).low_watermark(
            replica_manager.image.is_alive
        )
    except KafkaError as error:
        deletion.result = _failed(tp.partition, error)
        return True
    deletion.result = _reached(tp, low_watermark)
    return low_watermark >= deletion.target


def _reached(tp: TopicPartition, low_watermark: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=tp.partition, low_watermark=low_watermark)


def _failed(number: int, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=number, low_watermark=NO_OFFSET, error_code=int(error.code)
    )
