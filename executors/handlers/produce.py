"""Produce (key 0) v3-13, advertised from 0 because librdkafka decides about compression by that.

Appends at receipt, so pipelined requests do not wait for each other's answers; those that repeat
earlier ones are not decoded again and share their work (``produce_repeats``).  acks=0 is never
answered; when such an append fails the connection is closed, as Kafka does, so that the client
looks for the right leader.  acks=1 waits for a flush where the topic's settings promise one,
acks=all for the high watermark.

Deviations: transactional producers are refused (INVALID_TXN_STATE); record_errors is always empty,
because single records are not looked at.
"""

from typing import Any

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers import produce_answer
from sparklog.executors.handlers.produce_answer import Outcome
from sparklog.executors.handlers.produce_repeats import ProduceRepeats
from sparklog.executors.partition_values import ACKS_ALL, ACKS_NONE
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.transport import Reply
from sparklog.types import Compression, TopicPartition
from sparklog.wire.batch import COMPRESSION_MASK
from sparklog.wire.codec import RequestHeader
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.produce import (
    ADVERTISED_MIN_VERSION,
    MAX_VERSION,
    MIN_VERSION,
    TOPIC_IDS_FROM,
    ZSTD_FROM,
    decode_produce_request,
    encode_produce_response,
)

_ATTRIBUTES_LOW_BYTE = 22
_VALID_ACKS = (ACKS_NONE, 1, ACKS_ALL)


def handler(table: PartitionTable) -> ApiHandler:
    def handle(context: RequestContext, request: ProduceRequest) -> Any:
        refusal = _refusal(request)
        outcomes = [
            [_append(table, context.version, request, topic, part, refusal)
             for part in topic.partition_data]
            for topic in request.topic_data
        ]  # fmt: skip
        return produce_answer.answer(table, context, request, outcomes)

    return ApiHandler(
        api_key=ProduceRequest.API_KEY,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        advertised_min=ADVERTISED_MIN_VERSION,
        handle=handle,
        repeats=ProduceRepeats(table),
        decode=_decode,
        encode=_encode,
        error_response=produce_answer.error_response,
        keep=produce_answer.without_records,
    )


def _decode(header: RequestHeader, body: memoryview) -> ProduceRequest:
    return decode_produce_request(header.api_version, body)


def _encode(header: RequestHeader, response: ProduceResponse) -> Reply:
    return (encode_produce_response(header.api_version, header.correlation_id, response),)


def _refusal(request: ProduceRequest) -> KafkaError | None:
    if request.acks not in _VALID_ACKS:
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1 (all), not {request.acks}"
        )
    if request.transactional_id is not None:
        return KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            "transactions are not available, because there is no transaction coordinator yet; "
            "remove transactional.id from the producer's settings",
        )
    return None


def _append(
    table: PartitionTable,
    version: int,
    request: ProduceRequest,
    topic: TopicProduceData,
    part: PartitionProduceData,
    refusal: KafkaError | None,
) -> Outcome:
    name = topic.name
    try:
        if refusal is not None:
            raise refusal
        if version >= TOPIC_IDS_FROM:
            name = table.topic_name(topic.topic_id)
        partition = table.find(name, part.index)
        _check_compression(version, part)
        result = partition.append_as_leader(part.records, acks=request.acks, now_ms=table.now_ms())
    except KafkaError as error:
        return produce_answer.refused(table, TopicPartition(name, part.index), error)
    if result.size:
        table.counters.count_appends(name, 1, result.size)
    table.carry_out(result.effects)
    return produce_answer.appended(table, partition, result)


def _check_compression(version: int, part: PartitionProduceData) -> None:
    """zstd came with v7; older consumers of the topic would not be told (KIP-110)."""
    records = part.records
    if version >= ZSTD_FROM or not records or len(records) <= _ATTRIBUTES_LOW_BYTE:
        return
    if records[_ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{ZSTD_FROM}, this is v{version}",
        )
