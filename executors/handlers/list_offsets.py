"""ListOffsets (key 2) v1-11: earliest, latest, by timestamp, largest timestamp, local and tiered.

Consumers see offsets up to the high watermark, or up to the last stable offset when they read only
committed data (KIP-98).  LATEST_TIERED and EARLIEST_PENDING_UPLOAD find nothing (offset -1) in a
topic that is not tiered.

In a tiered topic a timestamp is searched for in the bucket first, then on the broker's disk.  The
search in the bucket may take ``timeout_ms`` of the request (KIP-1075), or 30 seconds without one.
The largest timestamp is that of the records on the broker's disk, as in Kafka.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import run_through
from sparklog.executors.partition import Partition
from sparklog.executors.replica_manager import ReplicaManager, find_in_tiers
from sparklog.service.error_responses import refuse_list_offsets
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import SLICE_UNITS, Slices, in_groups
from sparklog.transport import ServerConnection
from sparklog.types import Isolation, OffsetSpec, OffsetTimestamp, TopicPartition
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

#: The first version of each special timestamp; other negative timestamps have no meaning.
_SPECIAL_SINCE: Final[Mapping[int, int]] = {
    OffsetSpec.LATEST: 1,
    OffsetSpec.EARLIEST: 1,
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}


#: Units of answering one partition, apart from a search.
_PARTITION_UNITS: Final = 6
#: Searches of one request that run at the same time.
_SEARCHES_MAX: Final = 64
#: How long a search in the bucket may take if the request does not say so, as in Kafka.
_REMOTE_TIMEOUT_MS: Final = 30_000

_Answer: TypeAlias = Coroutine[Any, Any, ListOffsetsPartitionResponse]
_Search: TypeAlias = partial[_Answer]
_Found: TypeAlias = ListOffsetsPartitionResponse | _Search


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(context: RequestContext, request: ListOffsetsRequest) -> Slices[Handled]:
        isolation = _isolation(request)
        timeout_s = (request.timeout_ms if request.timeout_ms > 0 else _REMOTE_TIMEOUT_MS) / 1000
        search = partial(_search, replica_manager, context.connection, isolation, timeout_s)
        wanted = yield from _wanted(request)
        found = yield from in_groups(
            wanted.items(),
            lambda of_topic: of_topic[1].values(),
            lambda of_topic, part: _find(
                replica_manager, context.version, isolation, of_topic[0], part, search
            ),
            lambda of_topic, answers: (of_topic[0], answers),
            _PARTITION_UNITS,
        )
        return _when_found(found)

    return ApiHandler(
        api_key=ListOffsetsRequest.API_KEY,
        min_version=ListOffsetsRequest.MIN_VERSION,
        max_version=ListOffsetsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_list_offsets,
    )


@dataclass(slots=True)
class _Wanted:
    """A partition of the request; if it is named twice, it is refused, and answered once."""

    part: ListOffsetsPartition
    is_named_twice: bool = False


def _wanted(request: ListOffsetsRequest) -> Slices[dict[str, dict[int, _Wanted]]]:
    """The partitions of the request by topic and number."""
    wanted: dict[str, dict[int, _Wanted]] = {}
    spent = 0
    for topic in request.topics:
        of_topic = wanted.setdefault(topic.name, {})
        spent += 1
        for part in topic.partitions:
            named = of_topic.get(part.partition_index)
            if named is None:
                of_topic[part.partition_index] = _Wanted(part)
            else:
                named.is_named_twice = True
            spent += 1
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
    yield spent
    return wanted


def _when_found(found: Sequence[tuple[str, Sequence[_Found]]]) -> Handled:
    """The response; it is made at once when no partition needs a search."""
    searches = [each for _, parts in found for each in parts if isinstance(each, partial)]
    return _wait(found, searches) if searches else _response(found, {})


async def _wait(
    found: Sequence[tuple[str, Sequence[_Found]]], searches: Sequence[_Search]
) -> Slices[ListOffsetsResponse]:
    """The response once all searches have ended, of which only some run at the same time."""
    results: dict[_Search, ListOffsetsPartitionResponse] = {}
    left = iter(searches)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(len(searches), _SEARCHES_MAX)):
            group.create_task(_search_all(left, results))
    return _response(found, results)


async def _search_all(
    searches: Iterator[_Search], results: dict[_Search, ListOffsetsPartitionResponse]
) -> None:
    for search in searches:
        results[search] = await search()


def _response(
    found: Sequence[tuple[str, Sequence[_Found]]],
    results: Mapping[_Search, ListOffsetsPartitionResponse],
) -> Slices[ListOffsetsResponse]:
    topics = yield from in_groups(
        found,
        lambda of_topic: of_topic[1],
        lambda _, each: results[each] if isinstance(each, partial) else each,
        lambda of_topic, parts: ListOffsetsTopicResponse(name=of_topic[0], partitions=parts),
        1,
    )
    return ListOffsetsResponse(topics=topics)


def _find(
    replica_manager: ReplicaManager,
    version: int,
    isolation: Isolation,
    topic: str,
    wanted: _Wanted,
    search: Callable[[Partition, ListOffsetsPartition], _Answer],
) -> _Found:
    part = wanted.part
    try:
        if wanted.is_named_twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
        if part.timestamp < 0 and version < _SPECIAL_SINCE.get(part.timestamp, version + 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {part.timestamp} means nothing in ListOffsets v{version}",
            )
        partition = replica_manager.find(topic, part.partition_index)
        partition.require_leader(part.current_leader_epoch)
        if part.timestamp >= 0 or part.timestamp == OffsetSpec.MAX_TIMESTAMP:
            return partial(search, partition, part)
        return _answer(part, run_through(partition.find_offset(part.timestamp, isolation)))
    except KafkaError as error:
        replica_manager.report_error(TopicPartition(topic, part.partition_index), error)
        return _failed(part, error)


async def _search(
    replica_manager: ReplicaManager,
    connection: ServerConnection,
    isolation: Isolation,
    remote_timeout_s: float,
    partition: Partition,
    part: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    """Search the records of both tiers; the partition may move meanwhile."""
    try:
        found = await find_in_tiers(
            replica_manager.searches,
            replica_manager.remote_reads,
            connection,
            partition,
            part.timestamp,
            isolation,
            remote_timeout_s=remote_timeout_s,
        )
        partition.require_leader(part.current_leader_epoch)
        return _answer(part, found)
    except KafkaError as error:
        replica_manager.report_error(partition.topic_partition, error)
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
