"""Produce (key 0) v3-13, advertised from 0 because librdkafka decides about compression by that.

Batches are appended at receipt, so pipelined requests do not wait for each other's responses.
Requests that repeat earlier ones are not decoded again and share their work (``repeated_produce``).
acks=0 is never answered; when such an append fails the connection is closed, as in Kafka, so that
the client looks for the right leader.  acks=1 waits for a flush where the topic's settings promise
one, acks=all for the high watermark.  Where a topic asks for it (``sparklog.validate.batches``),
the records are decoded in a worker thread before the append (``record_validation``).

The first batch of a transaction waits, in order and with a copy of its bytes, until the transaction
coordinator has confirmed that the partition belongs to the transaction; from v12 on the partition
is added to it (KIP-890, ``transaction_verifications``).

Deviations: the field record_errors is always empty, because single records are not checked.  Only
the first batch of a transaction in a partition needs the transactional id of the request.  A
partition that a request names twice is refused and answered once (INVALID_REQUEST), and neither
batch is appended; Kafka appends the last one.

The batches of a request for many partitions are appended in slices; the requests of the connection
behind it wait, so that the order of each partition's batches stays that of the requests.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers import produce_response
from sparklog.executors.handlers.produce_response import (
    Outcome,
    PendingOutcome,
    answer_pending,
    pending_outcome,
)
from sparklog.executors.handlers.produce_transactions import transaction_of, withdraw_with_client
from sparklog.executors.handlers.repeated_produce import RepeatedProduce
from sparklog.executors.partition import (
    ACKS_ALL,
    ACKS_NONE,
    Appended,
    UnverifiedTransactionError,
)
from sparklog.executors.replica_manager import OutcomeFuture, ReplicaManager
from sparklog.metadata.topic_names import check_not_internal
from sparklog.service.handler import MANY_ITEMS, ApiHandler, RequestContext
from sparklog.slices import ITEMS_AT_ONCE, SLICE_UNITS, Slices, in_slices
from sparklog.types import Compression, TopicPartition
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparklog.wire.protocol.produce import (
    ADVERTISED_MIN_VERSION,
    MAX_VERSION,
    MIN_VERSION,
    TOPIC_IDS_FROM,
    ZSTD_FROM,
)
from sparklog.wire.protocol.schema import Records
from sparklog.wire.records.batch import COMPRESSION_MASK

#: Partitions of one request, and bytes, that are appended at once; more are appended in slices.
PARTITIONS_AT_ONCE: Final = 64
BYTES_AT_ONCE: Final = 4 * 1024 * 1024

_ATTRIBUTES_LOW_BYTE = 22
_VALID_ACKS = (ACKS_NONE, 1, ACKS_ALL)
#: Units of one append, beside its bytes.
_APPEND_UNITS: Final = 40
_BYTES_PER_UNIT_SHIFT: Final = 10


def handler(replica_manager: ReplicaManager) -> ApiHandler:
    def handle(context: RequestContext, request: ProduceRequest) -> Any:
        refusal = _refusal(request)
        topics = request.topic_data
        several = len(topics) != 1 or len(topics[0].partition_data) != 1
        if several and _is_long(context.version, topics):
            return _append_many(replica_manager, context, _owned(request), refusal)
        pending: list[PendingOutcome] = []
        outcomes = [
            [_append(replica_manager, context, request, topic, part, refusal, pending)
             for part in topic.partition_data]
            for topic in topics
        ]  # fmt: skip
        if pending:
            kept = produce_response.without_few_records(request)
            answer = partial(produce_response.answer, replica_manager, context, kept, outcomes)
            return answer_pending(replica_manager, context.version, pending, answer)
        return produce_response.answer(replica_manager, context, request, outcomes)

    return ApiHandler(
        api_key=ProduceRequest.API_KEY,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        advertised_min=ADVERTISED_MIN_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        repeats=RepeatedProduce(replica_manager),
        error_response=produce_response.error_response,
        keep=produce_response.without_records,
    )


def _is_long(version: int, topics: Sequence[TopicProduceData]) -> bool:
    """Whether a request has very many partitions or bytes, or names a partition twice."""
    count = sum([len(topic.partition_data) for topic in topics])
    if len(topics) + count > PARTITIONS_AT_ONCE:
        return True
    keys = {_key(version, topic, part) for topic in topics for part in topic.partition_data}
    size = sum([len(part.records or b"") for topic in topics for part in topic.partition_data])
    return len(keys) < count or size > BYTES_AT_ONCE


def _append_many(
    replica_manager: ReplicaManager,
    context: RequestContext,
    request: ProduceRequest,
    refusal: KafkaError | None,
) -> Slices[Any]:
    """Append in slices.  A partition that is named twice is refused, and answered once."""
    version = context.version
    pending: list[PendingOutcome] = []
    twice = yield from _repeated_partitions(version, request.topic_data)
    refused_twice = KafkaError(ErrorCode.INVALID_REQUEST, "the request names the partition twice")
    answered: set[tuple[object, int]] = set()
    topics: list[TopicProduceData] = []
    outcomes: list[list[Outcome]] = []
    spent = 0
    for topic in request.topic_data:
        of_topic: list[Outcome] = []
        parts: list[PartitionProduceData] = []
        spent += 2
        for part in topic.partition_data:
            key = _key(version, topic, part)
            spent += 2
            if key not in twice:
                of_topic.append(
                    _append(replica_manager, context, request, topic, part, refusal, pending)
                )
                parts.append(PartitionProduceData(index=part.index))
                spent += _APPEND_UNITS + (len(part.records or b"") >> _BYTES_PER_UNIT_SHIFT)
            elif key not in answered:
                answered.add(key)
                of_topic.append(
                    _append(replica_manager, context, request, topic, part, refused_twice, pending)
                )
                parts.append(PartitionProduceData(index=part.index))
            if spent >= SLICE_UNITS:
                yield spent
                spent = 0
        if parts or not topic.partition_data:
            topics.append(replace(topic, partition_data=tuple(parts)))
            outcomes.append(of_topic)
        if spent >= SLICE_UNITS:
            yield spent
            spent = 0
    yield spent
    asked = replace(request, topic_data=tuple(topics))
    answer = partial(produce_response.answer_many, replica_manager, context, asked, outcomes)
    if pending:
        return answer_pending(replica_manager, version, pending, partial(_in_turns, answer))
    return (yield from answer())


def _owned(request: ProduceRequest) -> ProduceRequest:
    """The request with records that stay valid after the memory of its frame is reused.

    A request that was decoded in slices, because it has many items, is a copy already.  The others
    are copied at once.
    """
    parts = (part.records for topic in request.topic_data for part in topic.partition_data)
    if not any(map(_is_borrowed, islice(parts, ITEMS_AT_ONCE + 1))):
        return request
    return replace(
        request,
        topic_data=tuple(
            replace(
                topic,
                partition_data=tuple(
                    replace(part, records=bytes(part.records or b""))
                    if _is_borrowed(part.records)
                    else part
                    for part in topic.partition_data
                ),
            )
            for topic in request.topic_data
        ),
    )


def _is_borrowed(records: Records | None) -> bool:
    return isinstance(records, memoryview) and not isinstance(records.obj, bytes)


def _repeated_partitions(
    version: int, topics: Sequence[TopicProduceData]
) -> Slices[set[tuple[object, int]]]:
    """The partitions that a request names several times."""
    seen: set[tuple[object, int]] = set()
    twice: set[tuple[object, int]] = set()
    named = (_key(version, topic, part) for topic in topics for part in topic.partition_data)

    def look(key: tuple[object, int]) -> None:
        (twice if key in seen else seen).add(key)

    yield from in_slices(look, named, 1)
    return twice


def _key(version: int, topic: TopicProduceData, part: PartitionProduceData) -> tuple[object, int]:
    return (topic.topic_id if version >= TOPIC_IDS_FROM else topic.name), part.index


def _refusal(request: ProduceRequest) -> KafkaError | None:
    if request.acks not in _VALID_ACKS:
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be 0, 1 or -1 (all), not {request.acks}"
        )
    return None


def _append(
    replica_manager: ReplicaManager,
    context: RequestContext,
    request: ProduceRequest,
    topic: TopicProduceData,
    part: PartitionProduceData,
    refusal: KafkaError | None,
    pending: list[PendingOutcome],
) -> Outcome:
    name, version = topic.name, context.version
    try:
        if refusal is not None:
            raise refusal
        if version >= TOPIC_IDS_FROM:
            name = replica_manager.topic_name(topic.topic_id)
        if not context.member:
            check_not_internal(name, "write to it")
        partition = replica_manager.find(name, part.index)
        _check_compression(version, part)
        transaction = transaction_of(version, request)
        found: OutcomeFuture | Appended | KafkaError
        if replica_manager.validations.wants(partition):
            found = replica_manager.validations.submit(
                partition, part.records, request.acks, transaction
            )
        else:
            (found,) = replica_manager.append_records(
                partition, ((part.records, request.acks),), now_ms=replica_manager.now_ms()
            )
            if isinstance(found, UnverifiedTransactionError):
                found = replica_manager.verifications.resolve(
                    partition, part.records, request.acks, transaction, found
                )
    except KafkaError as error:
        return produce_response.refused(replica_manager, TopicPartition(name, part.index), error)
    if isinstance(found, asyncio.Future):
        withdraw_with_client(context.connection, request.acks, transaction, found)
        pending.append(pending_outcome(partition, found))
        return pending[-1].outcome
    return produce_response.outcome_of(replica_manager, partition, found)


def _in_turns(make: Callable[[], Slices[Any]]) -> "asyncio.Future[Any]":
    """Run slices to their end, with other work in between.  The future is their final result."""

    async def run() -> Any:
        slices = make()
        while True:
            try:
                next(slices)
            except StopIteration as end:
                return await end.value if isinstance(end.value, asyncio.Future) else end.value
            await asyncio.sleep(0)

    return asyncio.ensure_future(run())


def _check_compression(version: int, part: PartitionProduceData) -> None:
    """Refuse zstd before v7: older consumers of the topic could not read it (KIP-110)."""
    records = part.records
    if version >= ZSTD_FROM or not records or len(records) <= _ATTRIBUTES_LOW_BYTE:
        return
    if records[_ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{ZSTD_FROM}, this is v{version}",
        )
