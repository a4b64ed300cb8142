"""ListOffsets (key 2) v1-11: earliest, latest, by timestamp, largest timestamp, local and tiered.

Readers that are not replicas see up to the high watermark, or up to the last stable offset when
they read committed data alone (KIP-98).  Deviations: nothing is tiered, so
LATEST_TIERED and EARLIEST_PENDING_UPLOAD find nothing (offset -1).
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, TypeAlias, cast

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.steps import run_through
from sparklog.executors.partition import Partition
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.service.refusals import refuse_list_offsets
from sparklog.types import Isolation, OffsetSpec, OffsetTimestamp
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_EARLIEST_PENDING_UPLOAD = -6
#: The version with which each special timestamp came; others that are negative have no meaning.
_SPECIAL_SINCE = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}


_Found: TypeAlias = ListOffsetsPartitionResponse | Coroutine[Any, Any, ListOffsetsPartitionResponse]


def handler(table: PartitionTable) -> ApiHandler:
    def handle(context: RequestContext, request: ListOffsetsRequest) -> Handled:
        isolation = _isolation(request)
        times = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
        topics: dict[str, dict[int, _Found]] = {}
        for topic in request.topics:
            partitions = topics.setdefault(topic.name, {})
            for part in topic.partitions:
                if times[topic.name, part.partition_index] > 1:
                    twice = KafkaError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
                    partitions[part.partition_index] = _failed(part, twice)
                else:
                    found = _find(table, context.version, isolation, topic.name, part)
                    partitions[part.partition_index] = found
        return _when_found([(name, list(parts.values())) for name, parts in topics.items()])

    return ApiHandler(
        api_key=ListOffsetsRequest.API_KEY,
        min_version=ListOffsetsRequest.MIN_VERSION,
        max_version=ListOffsetsRequest.MAX_VERSION,
        handle=handle,
        error_response=refuse_list_offsets,
    )


def _when_found(found: Sequence[tuple[str, Sequence[_Found]]]) -> Handled:
    """The response at once when nothing has to be waited for."""
    waits = [each for _, parts in found for each in parts if isinstance(each, Coroutine)]
    if waits:
        return _wait(found)
    return _response([(name, cast(list[ListOffsetsPartitionResponse], p)) for name, p in found])


async def _wait(found: Sequence[tuple[str, Sequence[_Found]]]) -> ListOffsetsResponse:
    return _response([(name, await asyncio.gather(*map(_awaited, parts))) for name, parts in found])


async def _awaited(found: _Found) -> ListOffsetsPartitionResponse:
    return await found if isinstance(found, Coroutine) else found


def _response(
    topics: Sequence[tuple[str, Sequence[ListOffsetsPartitionResponse]]],
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(name=name, partitions=tuple(parts)) for name, parts in topics
        )
    )


def _find(
    table: PartitionTable,
    version: int,
    isolation: Isolation,
    topic: str,
    part: ListOffsetsPartition,
) -> _Found:
    try:
        if part.timestamp < 0 and version < _SPECIAL_SINCE.get(part.timestamp, version + 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {part.timestamp} means nothing in ListOffsets v{version}",
            )
        partition = table.find(topic, part.partition_index)
        partition.require_leader(part.current_leader_epoch)
        if part.timestamp >= 0 or part.timestamp == OffsetSpec.MAX_TIMESTAMP:
            return _search(table, partition, part, isolation)
        return _answer(part, run_through(partition.find_offset(part.timestamp, isolation)))
    except KafkaError as error:
        return _failed(part, error)


async def _search(
    table: PartitionTable, partition: Partition, part: ListOffsetsPartition, isolation: Isolation
) -> ListOffsetsPartitionResponse:
    """Records are looked into, off the loop; the partition may move meanwhile."""
    try:
        search = partition.find_offset(part.timestamp, isolation)
        found = await table.log_work.run(partition.topic_partition, search)
        partition.require_leader(part.current_leader_epoch)
        return _answer(part, found)
    except KafkaError as error:
        return _failed(part, error)


def _answer(
    part: ListOffsetsPartition, found: OffsetTimestamp | None
) -> ListOffsetsPartitionResponse:
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=part.partition_index)
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _isolation(request: ListOffsetsRequest) -> Isolation:
    committed = request.isolation_level == Isolation.READ_COMMITTED
    return Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED


def _failed(part: ListOffsetsPartition, error: KafkaError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index, error_code=int(error.code)
    )
