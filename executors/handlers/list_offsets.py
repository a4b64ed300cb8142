"""ListOffsets (key 2) v1-11: earliest, latest, by timestamp, largest timestamp, local and tiered.

Readers that are not replicas see up to the high watermark, or up to the last stable offset when
they read committed data alone (KIP-98).  Deviations: nothing is tiered, so
LATEST_TIERED and EARLIEST_PENDING_UPLOAD find nothing (offset -1).
"""

from collections import Counter

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import Isolation, OffsetSpec
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


def handler(table: PartitionTable) -> ApiHandler:
    def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        isolation = _isolation(request)
        times = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
        topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
        for topic in request.topics:
            partitions = topics.setdefault(topic.name, {})
            for part in topic.partitions:
                if times[topic.name, part.partition_index] > 1:
                    twice = KafkaError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
                    partitions[part.partition_index] = _failed(part, twice)
                else:
                    found = _find(table, context.version, isolation, topic.name, part)
                    partitions[part.partition_index] = found
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(name=name, partitions=tuple(partitions.values()))
                for name, partitions in topics.items()
            )
        )

    return ApiHandler(
        api_key=ListOffsetsRequest.API_KEY,
        min_version=ListOffsetsRequest.MIN_VERSION,
        max_version=ListOffsetsRequest.MAX_VERSION,
        handle=handle,
        error_response=_error_response,
    )


def _find(
    table: PartitionTable,
    version: int,
    isolation: Isolation,
    topic: str,
    part: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    try:
        if part.timestamp < 0 and version < _SPECIAL_SINCE.get(part.timestamp, version + 1):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"timestamp {part.timestamp} means nothing in ListOffsets v{version}",
            )
        partition = table.find(topic, part.partition_index)
        partition.require_leader(part.current_leader_epoch)
        found = partition.find_offset(part.timestamp, isolation)
    except KafkaError as error:
        return _failed(part, error)
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


def _error_response(request: ListOffsetsRequest, error: KafkaError) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name, partitions=tuple(_failed(part, error) for part in topic.partitions)
            )
            for topic in request.topics
        )
    )
