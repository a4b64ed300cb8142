"""ListOffsets (key 2) v1-11: earliest, latest, by timestamp, largest timestamp, local and tiered.

Readers that are not replicas see up to the high watermark, or up to the last stable offset when
they read committed data alone (KIP-98).  Deviations: nothing is tiered, so
LATEST_TIERED and EARLIEST_PENDING_UPLOAD find nothing (offset -1).
"""

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
_LEAST_TIMESTAMP = min(*OffsetSpec, _EARLIEST_PENDING_UPLOAD)


def handler(table: PartitionTable) -> ApiHandler:
    def handle(_context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=tuple(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        _find(table, topic.name, part, _isolation(request))
                        for part in topic.partitions
                    ),
                )
                for topic in request.topics
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
    table: PartitionTable, topic: str, part: ListOffsetsPartition, isolation: Isolation
) -> ListOffsetsPartitionResponse:
    try:
        if part.timestamp < _LEAST_TIMESTAMP:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {part.timestamp}")
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
