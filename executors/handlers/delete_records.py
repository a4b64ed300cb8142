"""DeleteRecords (key 21) v0-2: move the log start (KIP-107).

Deviation: the new log start is on the disk before the answer leaves; Kafka writes it down later.
"""

from collections.abc import Awaitable

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.types import NO_OFFSET
from sparklog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handler(table: PartitionTable) -> ApiHandler:
    def handle(
        _context: RequestContext, request: DeleteRecordsRequest
    ) -> Awaitable[DeleteRecordsResponse]:
        results = tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_delete(table, topic.name, part) for part in topic.partitions),
            )
            for topic in request.topics
        )
        return _persisted(table, DeleteRecordsResponse(topics=results))

    return ApiHandler(
        api_key=DeleteRecordsRequest.API_KEY,
        min_version=DeleteRecordsRequest.MIN_VERSION,
        max_version=DeleteRecordsRequest.MAX_VERSION,
        handle=handle,
        error_response=_error_response,
    )


async def _persisted(
    table: PartitionTable, response: DeleteRecordsResponse
) -> DeleteRecordsResponse:
    try:
        await table.write_checkpoints()
    except StorageError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    return response


def _delete(
    table: PartitionTable, topic: str, part: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        partition = table.find(topic, part.partition_index)
        low_watermark, effects = partition.delete_records(part.offset)
    except KafkaError as error:
        return _failed(part, error)
    table.carry_out(effects)
    return DeleteRecordsPartitionResult(
        partition_index=part.partition_index, low_watermark=low_watermark
    )


def _failed(part: DeleteRecordsPartition, error: KafkaError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=part.partition_index, low_watermark=NO_OFFSET, error_code=int(error.code)
    )


def _error_response(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name, partitions=tuple(_failed(part, error) for part in topic.partitions)
            )
            for topic in request.topics
        )
    )
