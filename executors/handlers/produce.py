"""Produce (key 0) v3-13, advertised from 0 because librdkafka decides about compression by that.

Appends at receipt, so pipelined requests do not wait for each other's answers.  acks=0 is never
answered; when such an append fails the connection is closed, as Kafka does, so that the client
looks for the right leader.  acks=1 waits for a flush where the topic's settings promise one,
acks=all for the high watermark.

Deviations: transactional producers are refused (INVALID_TXN_STATE); record_errors is always empty,
because single records are not looked at.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers.leader_hints import LeaderHint, leader_hint
from sparklog.executors.partition_values import ACKS_ALL, ACKS_NONE, AckWait, Appended
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import ApiHandler, RequestContext
from sparklog.transport import Reply
from sparklog.types import NO_OFFSET, Compression, TopicPartition
from sparklog.wire.batch import COMPRESSION_MASK
from sparklog.wire.codec import RequestHeader
from sparklog.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from sparklog.wire.produce import (
    MAX_VERSION,
    MIN_VERSION,
    decode_produce_request,
    encode_produce_response,
)

_FIRST_ZSTD_VERSION = 7
_ATTRIBUTES_LOW_BYTE = 22
_VALID_ACKS = (ACKS_NONE, 1, ACKS_ALL)


@dataclass(slots=True)
class _Outcome:
    """One partition of the answer; ``refusal`` stands in for it once ``wait`` is settled."""

    topic_partition: TopicPartition
    response: PartitionProduceResponse
    wait: AckWait | None = None
    refusal: KafkaError | None = None


def handler(table: PartitionTable) -> ApiHandler:
    def handle(context: RequestContext, request: ProduceRequest) -> Any:
        refusal = _refusal(request)
        outcomes = [
            [_append(table, context.version, request, topic, part, refusal)
             for part in topic.partition_data]
            for topic in request.topic_data
        ]  # fmt: skip
        if request.acks == ACKS_NONE:
            if any(outcome.response.error_code for topic in outcomes for outcome in topic):
                context.connection.finish()
            return None
        waiting = [outcome for topic in outcomes for outcome in topic if outcome.wait is not None]
        if not waiting:
            return _response(table, request, outcomes)
        parked = _ParkedProduce(table, request, outcomes, waiting)
        keys = [outcome.topic_partition for outcome in waiting]
        table.writers.park(parked, keys, max(request.timeout_ms, 1) / 1000)
        return parked.answer

    return ApiHandler(
        api_key=ProduceRequest.API_KEY,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        advertised_min=0,
        handle=handle,
        decode=_decode,
        encode=_encode,
        error_response=_error_response,
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
        return KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not available")
    return None


def _append(
    table: PartitionTable,
    version: int,
    request: ProduceRequest,
    topic: TopicProduceData,
    part: PartitionProduceData,
    refusal: KafkaError | None,
) -> _Outcome:
    name = topic.name
    try:
        if refusal is not None:
            raise refusal
        if topic.topic_id is not None or not name:
            name = table.topic_name(topic.topic_id)
        partition = table.find(name, part.index)
        _check_compression(version, part)
        appended = partition.append_as_leader(
            part.records, acks=request.acks, now_ms=table.now_ms()
        )
    except KafkaError as error:
        table.counters.refused_appends += 1
        tp = TopicPartition(name, part.index)
        return _Outcome(tp, _failed(table, tp, error))
    tp = partition.topic_partition
    if appended.size:
        table.counters.count_append(name, appended.size)
    elif appended.refusal is None:
        table.counters.duplicates += 1
    table.carry_out(appended.effects)
    wait = appended.wait
    if wait is not None and partition.is_settled(wait):
        wait = None
    return _Outcome(tp, _done(part.index, appended), wait, appended.refusal)


def _check_compression(version: int, part: PartitionProduceData) -> None:
    """zstd came with v7; older consumers of the topic would not be told (KIP-110)."""
    records = part.records
    if version >= _FIRST_ZSTD_VERSION or not records or len(records) <= _ATTRIBUTES_LOW_BYTE:
        return
    if records[_ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{_FIRST_ZSTD_VERSION}, this is v{version}",
        )


def _done(index: int, appended: Appended) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time,
        log_start_offset=appended.log_start_offset,
    )


def _failed(
    table: PartitionTable, tp: TopicPartition, error: KafkaError
) -> PartitionProduceResponse:
    response = PartitionProduceResponse(
        index=tp.partition,
        error_code=int(error.code),
        base_offset=NO_OFFSET,
        error_message=error.message,
    )
    hint = leader_hint(table, tp.topic, tp.partition, error.code)
    if hint is None:
        return response
    leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.leader_epoch)
    return replace(response, current_leader=leader)


def _response(
    table: PartitionTable, request: ProduceRequest, outcomes: Sequence[Sequence[_Outcome]]
) -> ProduceResponse:
    hints = {
        hint.node_id: hint
        for topic in outcomes
        for outcome in topic
        if (hint := _hint_of(table, outcome)) is not None
    }
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple([outcome.response for outcome in group]),
            )
            for topic, group in zip(request.topic_data, outcomes, strict=True)
        ),
        node_endpoints=tuple(
            NodeEndpoint(node_id=hint.node_id, host=hint.endpoint.host, port=hint.endpoint.port)
            for hint in hints.values()
        ),
    )


def _hint_of(table: PartitionTable, outcome: _Outcome) -> LeaderHint | None:
    code = outcome.response.error_code
    if not code:
        return None
    tp = outcome.topic_partition
    return leader_hint(table, tp.topic, tp.partition, code)


def _error_response(request: ProduceRequest, error: KafkaError) -> ProduceResponse | None:
    """When handling broke down as a whole."""
    if request.acks == ACKS_NONE:
        return None
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple(
                    PartitionProduceResponse(
                        index=part.index,
                        error_code=int(error.code),
                        base_offset=NO_OFFSET,
                        error_message=error.message,
                    )
                    for part in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
    )


class _ParkedProduce:
    """An answer whose partitions become safe one by one."""

    def __init__(
        self,
        table: PartitionTable,
        request: ProduceRequest,
        outcomes: Sequence[Sequence[_Outcome]],
        waiting: Sequence[_Outcome],
    ) -> None:
        self.answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        self._table = table
        self._request = _without_records(request)
        self._outcomes = outcomes
        self._waiting = list(waiting)

    def look(self, key: TopicPartition, size: int) -> bool:
        del size
        for outcome in [o for o in self._waiting if o.topic_partition == key]:
            if self._settle(outcome):
                self._waiting.remove(outcome)
        if not self._waiting:
            self._finish()
        return not self._waiting

    def expire(self) -> None:
        for outcome in self._waiting:
            late = KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"the append to {outcome.topic_partition} was not safe in time",
            )
            outcome.response = _failed(self._table, outcome.topic_partition, late)
        self._finish()

    def _settle(self, outcome: _Outcome) -> bool:
        tp = outcome.topic_partition
        assert outcome.wait is not None
        try:
            if not self._table.find(tp.topic, tp.partition).is_settled(outcome.wait):
                return False
            if outcome.refusal is not None:
                raise outcome.refusal
        except KafkaError as error:
            outcome.response = _failed(self._table, tp, error)
        return True

    def _finish(self) -> None:
        if not self.answer.done():
            self.answer.set_result(_response(self._table, self._request, self._outcomes))


def _without_records(request: ProduceRequest) -> ProduceRequest:
    """The records are valid only while the request is handled; the answer does not need them."""
    return replace(
        request,
        topic_data=tuple(replace(topic, partition_data=()) for topic in request.topic_data),
    )
