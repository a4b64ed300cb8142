"""The responses to Produce requests whose batches were appended or refused.

Owns: the outcome of each partition, the delayed produce of a request, and the messages.  Must not
know how batches are appended or frames arrive.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.handlers.connection_owner import owner_of
from sparklog.executors.handlers.leader_hints import leader_hint
from sparklog.executors.handlers.produce_transactions import known_to_producer
from sparklog.executors.partition import ACKS_NONE, Appended, Partition, RequiredOffset
from sparklog.executors.replica_manager import DelayedProduce, OutcomeFuture, ReplicaManager
from sparklog.service.handler import RequestContext
from sparklog.slices import Slices, in_groups, in_slices
from sparklog.types import NO_OFFSET, TopicPartition
from sparklog.wire.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

#: Refusals because of the content of the log; their answers say where the log starts.
_FOUND_IN_THE_LOG = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)


_UNKNOWN: Final = PartitionProduceResponse()
#: A request with more partitions is answered in slices.
_MANY: Final = 200
#: Units of answering one partition.
_PARTITION_UNITS: Final = 3


@dataclass(slots=True, eq=False)
class Outcome:
    """One partition of the response.

    Once ``required_offset`` is reached, the response is ``refusal``, if set, else ``response``.
    """

    topic_partition: TopicPartition
    response: PartitionProduceResponse
    required_offset: RequiredOffset | None = None
    refusal: KafkaError | None = None

    def take(self, other: "Outcome") -> None:
        """Take over another outcome of the same partition."""
        self.response, self.required_offset, self.refusal = (
            other.response,
            other.required_offset,
            other.refusal,
        )


class PendingOutcome(NamedTuple):
    """An outcome that is known later: records are decoded, or a transaction is verified."""

    outcome: Outcome
    partition: Partition
    appended: OutcomeFuture


async def answer_pending(
    replica_manager: ReplicaManager,
    version: int,
    pending: Sequence[PendingOutcome],
    answer: Callable[[], Any],
) -> ProduceResponse | Slices[ProduceResponse] | None:
    """Call ``answer`` once the pending outcomes are known."""
    for outcome, partition, appended in pending:
        result = await appended
        if isinstance(result, KafkaError):
            result = known_to_producer(version, result)
        outcome.take(outcome_of(replica_manager, partition, result))
    handled = answer()
    found: ProduceResponse | None = (
        await handled if isinstance(handled, asyncio.Future) else handled
    )
    return found


def pending_outcome(partition: Partition, appended: OutcomeFuture) -> PendingOutcome:
    """The outcome of a batch of which nothing is known yet."""
    return PendingOutcome(Outcome(partition.topic_partition, _UNKNOWN), partition, appended)


def refused(replica_manager: ReplicaManager, tp: TopicPartition, error: KafkaError) -> Outcome:
    """The outcome of a batch that changed nothing."""
    replica_manager.counters.refused_appends += 1
    replica_manager.report_error(tp, error)
    return Outcome(tp, _failed(replica_manager, tp, error))


def not_acknowledged(
    replica_manager: ReplicaManager, tp: TopicPartition, error: KafkaError
) -> Outcome:
    """The outcome of a batch that was appended and was not acknowledged."""
    return Outcome(tp, _failed(replica_manager, tp, error))


def outcome_of(
    replica_manager: ReplicaManager, partition: Partition, result: Appended | KafkaError
) -> Outcome:
    """The outcome of a batch by its result from ``ReplicaManager.append_records``.

    The batch was refused, or was appended now or before, or is refused once it is acknowledged.
    """
    tp = partition.topic_partition
    if isinstance(result, KafkaError):
        return refused(replica_manager, tp, result)
    if not result.size and result.refusal is None:
        replica_manager.counters.duplicates += 1
    response = PartitionProduceResponse(
        index=tp.partition,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time,
        log_start_offset=result.log_start_offset,
    )
    try:
        if result.required_offset is not None and not partition.has_reached(result.required_offset):
            return Outcome(tp, response, result.required_offset, result.refusal)
        if result.refusal is not None:
            raise result.refusal
    except KafkaError as error:
        return refused(replica_manager, tp, error)
    return Outcome(tp, response)


def answer(
    replica_manager: ReplicaManager,
    context: RequestContext,
    request: ProduceRequest,
    outcomes: Sequence[Sequence[Outcome]],
) -> Any:
    """A response, a future of one, or None.  ``outcomes`` by topic as in the request."""
    if request.acks == ACKS_NONE:
        if any(outcome.response.error_code for topic in outcomes for outcome in topic):
            context.connection.finish()
        return None
    if not [
        outcome for topic in outcomes for outcome in topic if outcome.required_offset is not None
    ]:
        return _response(replica_manager, request, outcomes)
    delayed = _DelayedRequest(replica_manager, without_few_records(request), outcomes)
    delayed.begin_wait(request.timeout_ms, owner_of(replica_manager, context.connection))
    return delayed.answer


def answer_many(
    replica_manager: ReplicaManager,
    context: RequestContext,
    request: ProduceRequest,
    outcomes: Sequence[Sequence[Outcome]],
) -> Slices[Any]:
    """As ``answer``, in slices; ``request`` is without its records."""
    waiting: list[Outcome] = []
    failed: list[Outcome] = []

    def look(outcome: Outcome) -> None:
        if outcome.required_offset is not None:
            waiting.append(outcome)
        elif outcome.response.error_code:
            failed.append(outcome)

    yield from in_slices(look, (outcome for topic in outcomes for outcome in topic), 1)
    if request.acks == ACKS_NONE:
        if failed:
            context.connection.finish()
        return None
    if waiting:
        delayed = _DelayedRequest(replica_manager, request, outcomes)
        owner = owner_of(replica_manager, context.connection)
        yield from delayed.begin_long_wait(request.timeout_ms, owner)
        return delayed.answer
    return (yield from _long_response(replica_manager, request, outcomes))


def error_response(request: ProduceRequest, error: KafkaError) -> Slices[ProduceResponse | None]:
    """The response when the request failed as a whole."""
    if request.acks == ACKS_NONE:
        return None
    responses = yield from in_groups(
        request.topic_data,
        lambda topic: topic.partition_data,
        lambda _, part: PartitionProduceResponse(
            index=part.index,
            error_code=int(error.code),
            base_offset=NO_OFFSET,
            error_message=error.message,
        ),
        lambda topic, parts: TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=parts
        ),
        _PARTITION_UNITS,
    )
    return ProduceResponse(responses=responses)


def without_records(request: ProduceRequest) -> ProduceRequest | Slices[ProduceRequest]:
    """The request without its records, which are valid only while the request is handled."""
    topics = request.topic_data
    if len(topics) + sum([len(topic.partition_data) for topic in topics]) > _MANY:
        return _without_many_records(request)
    return without_few_records(request)


def _without_many_records(request: ProduceRequest) -> Slices[ProduceRequest]:
    topics = yield from in_groups(
        request.topic_data,
        lambda topic: topic.partition_data,
        lambda _, part: PartitionProduceData(index=part.index),
        lambda topic, parts: replace(topic, partition_data=parts),
        2,
    )
    return replace(request, topic_data=topics)


def without_few_records(request: ProduceRequest) -> ProduceRequest:
    """As ``without_records``, at once instead of in slices."""
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
    replica_manager: ReplicaManager, tp: TopicPartition, error: KafkaError
) -> PartitionProduceResponse:
    partition = replica_manager.get(tp) if error.code in _FOUND_IN_THE_LOG else None
    response = PartitionProduceResponse(
        index=tp.partition,
        error_code=int(error.code),
        base_offset=NO_OFFSET,
        log_start_offset=NO_OFFSET if partition is None else partition.log.log_start_offset,
        error_message=error.message,
    )
    hint = leader_hint(replica_manager, tp.topic, tp.partition, error.code)
    if hint is None:
        return response
    leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.leader_epoch)
    return replace(response, current_leader=leader)


def _response(
    replica_manager: ReplicaManager, request: ProduceRequest, outcomes: Sequence[Sequence[Outcome]]
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
        node_endpoints=_leader_endpoints(replica_manager, failures) if failures else (),
    )


def _long_response(
    replica_manager: ReplicaManager, request: ProduceRequest, outcomes: Sequence[Sequence[Outcome]]
) -> Slices[ProduceResponse]:
    """As ``_response``, in slices."""
    #: A failure for each leader that failures name, which is enough to find all leaders.
    failures: dict[int, Outcome] = {}

    def responded(_: object, outcome: Outcome) -> PartitionProduceResponse:
        if outcome.response.error_code:
            failures.setdefault(outcome.response.current_leader.leader_id, outcome)
        return outcome.response

    responses = yield from in_groups(
        zip(request.topic_data, outcomes, strict=True),
        lambda of_topic: of_topic[1],
        responded,
        lambda of_topic, parts: TopicProduceResponse(
            name=of_topic[0].name, topic_id=of_topic[0].topic_id, partition_responses=parts
        ),
        _PARTITION_UNITS,
    )
    return ProduceResponse(
        responses=responses, node_endpoints=_leader_endpoints(replica_manager, failures.values())
    )


def _leader_endpoints(
    replica_manager: ReplicaManager, failures: Iterable[Outcome]
) -> tuple[NodeEndpoint, ...]:
    """The endpoints of the leaders that the failures name, each once."""
    endpoints: dict[int, NodeEndpoint] = {}
    for outcome in failures:
        tp = outcome.topic_partition
        hint = leader_hint(replica_manager, tp.topic, tp.partition, outcome.response.error_code)
        if hint is not None:
            host, port = hint.endpoint.host, hint.endpoint.port
            endpoints[hint.node_id] = NodeEndpoint(node_id=hint.node_id, host=host, port=port)
    return tuple(endpoints.values())


class _DelayedRequest(DelayedProduce[Outcome]):
    """A request, without its records, that is answered once all its batches are acknowledged."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        request: ProduceRequest,
        outcomes: Sequence[Sequence[Outcome]],
    ) -> None:
        """``request`` is without its records."""
        super().__init__(replica_manager)
        self.answer: asyncio.Future[ProduceResponse | Slices[ProduceResponse]]
        self.answer = asyncio.get_running_loop().create_future()
        self._request = request
        self._outcomes = outcomes
        for outcome in (outcome for topic in outcomes for outcome in topic):
            if outcome.required_offset is not None:
                waiting = self._waiting.setdefault(outcome.topic_partition, deque())
                waiting.append((outcome.required_offset, outcome))

    def cancel(self) -> None:
        super().cancel()
        self.answer.cancel()

    def _complete(self, batch: Outcome) -> None:
        if batch.refusal is not None:
            self._refuse(batch, batch.refusal)

    def _refuse(self, batch: Outcome, error: KafkaError) -> None:
        batch.response = _failed(self._replica_manager, batch.topic_partition, error)

    def _finish(self) -> None:
        if self.answer.done():
            return
        many = len(self._outcomes) + sum(map(len, self._outcomes)) > _MANY
        respond = _long_response if many else _response
        self.answer.set_result(respond(self._replica_manager, self._request, self._outcomes))
