"""What a Produce request is answered with, once its batches were judged.

Owns: the outcome of each partition, parking until what it rests on is safe, and the messages.  Must
not know how batches are appended or frames arrive.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers.connection_waits import owner_of
from sparklog.executors.handlers.leader_hints import leader_hint
from sparklog.executors.partition import Partition
from sparklog.executors.partition_values import ACKS_NONE, AckWait, Appended
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import RequestContext
from sparklog.types import NO_OFFSET, TopicPartition
from sparklog.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

#: Refusals that rest on what is in the log; they say where it starts.
_FOUND_IN_THE_LOG = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


@dataclass(slots=True)
class Outcome:
    """One partition of the answer; ``refusal`` stands in for it once ``wait`` is settled."""

    topic_partition: TopicPartition
    response: PartitionProduceResponse
    wait: AckWait | None = None
    refusal: KafkaError | None = None


def refused(table: PartitionTable, tp: TopicPartition, error: KafkaError) -> Outcome:
    """The outcome of a batch that changed nothing."""
    table.counters.refused_appends += 1
    table.hear(tp, error)
    return Outcome(tp, _failed(table, tp, error))


def not_safe(table: PartitionTable, tp: TopicPartition, error: KafkaError) -> Outcome:
    """The outcome of a batch that was written, when what its answer waited for did not come."""
    return Outcome(tp, _failed(table, tp, error))


def appended(table: PartitionTable, partition: Partition, result: Appended) -> Outcome:
    """The outcome of a batch that was written, or was before, or is refused later."""
    tp = partition.topic_partition
    if not result.size and result.refusal is None:
        table.counters.duplicates += 1
    response = PartitionProduceResponse(
        index=tp.partition,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time,
        log_start_offset=result.log_start_offset,
    )
    try:
        if result.wait is not None and not partition.is_settled(result.wait):
            return Outcome(tp, response, result.wait, result.refusal)
        if result.refusal is not None:
            raise result.refusal
    except KafkaError as error:
        return refused(table, tp, error)
    return Outcome(tp, response)


def answer(
    table: PartitionTable,
    context: RequestContext,
    request: ProduceRequest,
    outcomes: Sequence[Sequence[Outcome]],
) -> Any:
    """A response, a future of one, or None.  ``outcomes`` by topic as in the request."""
    if request.acks == ACKS_NONE:
        if any(outcome.response.error_code for topic in outcomes for outcome in topic):
            context.connection.finish()
        return None
    waiting = [outcome for topic in outcomes for outcome in topic if outcome.wait is not None]
    if not waiting:
        return _response(table, request, outcomes)
    parked = _ParkedProduce(table, request, outcomes, waiting)
    keys = [outcome.topic_partition for outcome in waiting]
    owner = owner_of(table, context.connection)
    table.waits.writers.park(parked, keys, max(request.timeout_ms, 1) / 1000, owner)
    return parked.answer


def error_response(request: ProduceRequest, error: KafkaError) -> ProduceResponse | None:
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


def without_records(request: ProduceRequest) -> ProduceRequest:
    """The records are valid only while the request is handled; the answer does not need them."""
    return replace(
        request,
        topic_data=tuple([
            replace(
                topic,
                partition_data=tuple([
                    PartitionProduceData(index=part.index) for part in topic.partition_data
                ]),
            )
            for topic in request.topic_data
        ]),
    )  # fmt: skip


def _failed(
    table: PartitionTable, tp: TopicPartition, error: KafkaError
) -> PartitionProduceResponse:
    partition = table.get(tp) if error.code in _FOUND_IN_THE_LOG else None
    response = PartitionProduceResponse(
        index=tp.partition,
        error_code=int(error.code),
        base_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET if partition is None else partition.log.log_start_offset,
        error_message=error.message,
    )
    hint = leader_hint(table, tp.topic, tp.partition, error.code)
    if hint is None:
        return response
    leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.leader_epoch)
    return replace(response, current_leader=leader)


def _response(
    table: PartitionTable, request: ProduceRequest, outcomes: Sequence[Sequence[Outcome]]
) -> ProduceResponse:
    failures = [o for topic in outcomes for o in topic if o.response.error_code]
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=tuple([outcome.response for outcome in group]),
            )
            for topic, group in zip(request.topic_data, outcomes, strict=True)
        ),
        node_endpoints=_leader_endpoints(table, failures) if failures else (),
    )


def _leader_endpoints(
    table: PartitionTable, failures: Iterable[Outcome]
) -> tuple[NodeEndpoint, ...]:
    """Where the leaders are that the failures name, each once."""
    endpoints: dict[int, NodeEndpoint] = {}
    for outcome in failures:
        tp = outcome.topic_partition
        hint = leader_hint(table, tp.topic, tp.partition, outcome.response.error_code)
        if hint is not None:
            host, port = hint.endpoint.host, hint.endpoint.port
            endpoints[hint.node_id] = NodeEndpoint(node_id=hint.node_id, host=host, port=port)
    return tuple(endpoints.values())


class _ParkedProduce:
    """An answer whose partitions become safe one by one."""

    def __init__(
        self,
        table: PartitionTable,
        request: ProduceRequest,
        outcomes: Sequence[Sequence[Outcome]],
        waiting: Sequence[Outcome],
    ) -> None:
        self.answer: asyncio.Future[ProduceResponse] = asyncio.get_running_loop().create_future()
        self._table = table
        self._request = without_records(request)
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

    def drop(self) -> None:
        self.answer.cancel()

    def _settle(self, outcome: Outcome) -> bool:
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
