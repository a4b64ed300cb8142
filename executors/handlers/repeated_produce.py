"""Produce requests that repeat an earlier request of their connection with other batches.

Owns: the requests that a connection repeats (each for one topic), and the handling of repeated
requests that arrive together: nothing is decoded or looked up again, and each partition is written
to once.  Must not know how an append is decided, or what a response waits for.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias
from uuid import UUID

from sparklog.errors import KafkaError
from sparklog.executors.handlers import produce_response
from sparklog.executors.handlers.connection_owner import owner_of
from sparklog.executors.handlers.produce_response import (
    Outcome,
    PendingOutcome,
    answer_pending,
    pending_outcome,
)
from sparklog.executors.handlers.produce_transactions import transaction_of, withdraw_with_client
from sparklog.executors.partition import (
    ACKS_ALL,
    Appended,
    Partition,
    SentBatch,
    UnverifiedTransactionError,
)
from sparklog.executors.replica_manager import (
    DelayedPartitionRequests,
    OutcomeFuture,
    ReplicaManager,
)
from sparklog.metadata.topic_names import check_not_internal
from sparklog.service.handler import EncodeResult, RequestContext
from sparklog.transport import EncodedResponse, HandlerResult
from sparklog.types import TopicPartition
from sparklog.wire.protocol.codec import RequestHeader
from sparklog.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest
from sparklog.wire.protocol.produce import TOPIC_IDS_FROM, ZSTD_FROM
from sparklog.wire.protocol.repeated_produce import (
    BEFORE_AT,
    PARTITIONS_MAX,
    ProduceShape,
    SentPart,
    TakenPart,
)

#: Repeated requests that are handled together, and their batches.
REPEATED_REQUESTS_MAX = 256
REPEATED_BATCHES_MAX = 500
#: Request templates that are kept for one connection.
TEMPLATES_MAX = 256
#: Templates of all connections at which each connection keeps only its last template.
ALL_TEMPLATES_MAX = 20_000
#: Bytes in front of the batches of a request that is kept; names and client ids are shorter.
BEFORE_BYTES_MAX = 1024

_STATE_KEY = "produce"

#: The result of a batch; a future while the transaction coordinator is asked about it.
_Result: TypeAlias = Appended | KafkaError | OutcomeFuture


@dataclass(frozen=True, slots=True, eq=False)
class _Template:
    """A request whose repetitions differ only in correlation id and batches.

    ``partitions`` has the partitions that its repetitions named so far.
    """

    shape: ProduceShape
    version: int
    request: ProduceRequest
    topic: str
    topic_id: UUID
    partitions: dict[int, Partition]

    def request_for(self, indexes: Iterable[int]) -> ProduceRequest:
        """The request for these partitions, without their records."""
        (topic,) = self.request.topic_data
        parts = tuple([PartitionProduceData(index=index) for index in indexes])
        return replace(self.request, topic_data=(replace(topic, partition_data=parts),))


class _TemplateCount:
    """The number of templates of all connections of a broker."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _ConnectionTemplates:
    """The templates of one connection, by the bytes at the start of their frames."""

    __slots__ = ("_lengths", "_templates", "_total")

    def __init__(self, total: _TemplateCount) -> None:
        self._total = total
        self._templates: dict[bytes, _Template] = {}
        #: The lengths of these starts; few, because a client's names differ little in length.
        self._lengths: list[int] = []

    def add(self, template: _Template) -> None:
        templates_max = TEMPLATES_MAX if self._total.count < ALL_TEMPLATES_MAX else 1
        if len(self._templates) >= templates_max:
            self.clear()
        self._total.count += template.shape.before not in self._templates
        self._templates[template.shape.before] = template
        if template.shape.parts_at not in self._lengths:
            self._lengths.append(template.shape.parts_at)

    def forget(self, template: _Template) -> None:
        if self._templates.pop(template.shape.before, None) is not None:
            self._total.count -= 1

    def clear(self) -> None:
        self._total.count -= len(self._templates)
        self._templates.clear()
        self._lengths.clear()

    def find(self, frame: memoryview) -> tuple[_Template, int, list[SentPart]] | None:
        """Template, correlation id and batches of a frame; None when no template fits."""
        for length in self._lengths:
            template = self._templates.get(bytes(frame[BEFORE_AT:length]))
            if template is not None:
                found = template.shape.split(frame)
                return None if found is None else (template, *found)
        return None


class RepeatedProduce:
    """The ``Repeats`` of Produce."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager
        self._total = _TemplateCount()

    def learn(self, context: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
        """Keep a request as a template, unless it has several topics, no response or a refusal."""
        version = context.version
        # In older versions the compression of each batch has to be checked.
        if version < ZSTD_FROM or request.acks not in (1, ACKS_ALL):
            return
        if len(request.topic_data) != 1:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) > PARTITIONS_MAX:
            return
        try:
            by_id = version >= TOPIC_IDS_FROM
            name = self._replica_manager.topic_name(topic.topic_id) if by_id else topic.name
            check_not_internal(name, "write to it")
            transaction_of(version, request)
            found = {part.index: self._replica_manager.find(name, part.index)
                     for part in topic.partition_data}  # fmt: skip
        except KafkaError:
            return
        if any(map(self._replica_manager.validations.wants, found.values())):
            return
        shape = ProduceShape.of(version, frame, request)
        if shape is None or shape.parts_at > BEFORE_BYTES_MAX:
            return
        topic_id = next(iter(found.values())).topic_id
        templates: _ConnectionTemplates | None = context.connection.state.get(_STATE_KEY)
        if templates is None:
            templates = context.connection.state[_STATE_KEY] = _ConnectionTemplates(self._total)
            context.connection.call_on_close(templates.clear)
        asked = produce_response.without_few_records(request)
        templates.add(_Template(shape, version, asked, name, topic_id, found))

    def handle(
        self,
        context: RequestContext,
        frame: memoryview,
        frames: deque[memoryview],
        answer: EncodeResult,
    ) -> Sequence[HandlerResult] | None:
        """See ``Repeats``."""
        templates: _ConnectionTemplates | None = context.connection.state.get(_STATE_KEY)
        if templates is None:
            return None
        repeated = _RepeatedRequests(self._replica_manager, context, templates)
        if not repeated.add(frame):
            return None
        for _ in range(min(len(frames), REPEATED_REQUESTS_MAX - 1)):
            if not repeated.add(frames[0]):
                break
            frames.popleft()
        return repeated.append(answer)


@dataclass(slots=True)
class _PartitionWrite:
    """The batches of repeated requests that are written to one partition together.

    ``positions`` has for each batch the position of its request among the repeated requests.
    """

    partition: Partition
    index: int
    batches: list[SentBatch] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)


class _MultiPartitionRequest:
    """A request for several partitions: its batches in its order, and their outcomes."""

    __slots__ = ("_results", "writes")

    def __init__(self, writes: Sequence[_PartitionWrite]) -> None:
        self.writes = writes
        self._results: dict[int, deque[_Result]] = {}

    def add_result(self, write: _PartitionWrite, result: _Result) -> None:
        """Add the outcome of the next batch of that partition."""
        self._results.setdefault(write.index, deque()).append(result)

    def take_results(self) -> list[_Result]:
        """The outcomes of all batches, in the order of the request."""
        return [self._results[write.index].popleft() for write in self.writes]


class _RepeatedRequests:
    """Repeated requests of one connection that arrived together, in their order."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        context: RequestContext,
        templates: _ConnectionTemplates,
    ) -> None:
        self._replica_manager = replica_manager
        self._context = context
        self._templates = templates
        #: Template and correlation id of each request, and its batches when it has several.
        self._requests: list[tuple[_Template, int, _MultiPartitionRequest | None]] = []
        self._batches = 0
        self._writes: dict[Partition, _PartitionWrite] = {}
        #: The batches that wait to be acknowledged, by template and partition.
        self._delayed: dict[tuple[_Template, Partition], DelayedPartitionRequests] = {}

    def add(self, frame: memoryview) -> bool:
        """Add a request.  Return whether the request repeats a template and its batches fit in."""
        found = self._templates.find(frame)
        if found is None:
            return False
        template, correlation_id, parts = found
        if template.version != self._context.version:  # all responses have the same version
            return False
        if self._requests and self._batches + len(parts) > REPEATED_BATCHES_MAX:
            return False
        self._batches += len(parts)
        acks = template.request.acks
        if len(parts) == 1:  # what most clients send, without a loop
            ((index, records),) = parts
            partition = template.partitions.get(index)
            write = None if partition is None else self._writes.get(partition)
            write = write or self._write_for(template, index)
            if write is None:
                return False
            write.batches.append((records, acks))
            write.positions.append(len(self._requests))
            self._requests.append((template, correlation_id, None))
            return True
        if len({index for index, _ in parts}) < len(parts):
            return False  # a partition that is named twice is refused
        writes = []
        for index, _ in parts:
            write = self._write_for(template, index)
            if write is None:
                return False
            writes.append(write)
        for write, part in zip(writes, parts, strict=True):
            write.batches.append((part[1], acks))
            write.positions.append(len(self._requests))
        self._requests.append((template, correlation_id, _MultiPartitionRequest(writes)))
        return True

    def _write_for(self, template: _Template, index: int) -> "_PartitionWrite | None":
        """The batches for a partition of the template's topic; None when it has to be looked up."""
        partition = template.partitions.get(index)
        if partition is None:
            partition = self._replica_manager.get(TopicPartition(template.topic, index))
            if partition is None:
                return None
            template.partitions[index] = partition
        write = self._writes.get(partition)
        if write is None:
            here = self._replica_manager.get(partition.topic_partition)
            if here is not partition or partition.topic_id != template.topic_id:
                self._templates.forget(
                    template
                )  # closed meanwhile, or of another topic of that name
                return None
            if self._replica_manager.validations.wants(partition):
                self._templates.forget(template)
                return None
            write = self._writes[partition] = _PartitionWrite(partition, index)
        return write

    def append(self, answer: EncodeResult) -> list[HandlerResult]:
        """Append the batches of every partition.  Return the responses in the requests' order."""
        answers: list[HandlerResult] = [None] * len(self._requests)
        now_ms = self._replica_manager.now_ms()
        for partition, write in self._writes.items():
            if not write.batches:  # its request was not added in the end
                continue
            results = self._replica_manager.append_records(partition, write.batches, now_ms=now_ms)
            for number, position in enumerate(write.positions):
                result: _Result = results[number]
                template, correlation_id, multi = self._requests[position]
                if isinstance(result, UnverifiedTransactionError):
                    result = self._verify(template, write, number, result)
                if multi is not None:
                    multi.add_result(write, result)
                elif isinstance(result, Appended) and result.size and result.refusal is None:
                    answers[position] = self._answer_appended(
                        template, correlation_id, write, result, answer
                    )
                else:
                    answers[position] = self._answer_outcomes(
                        template, correlation_id, (write,), (result,), answer
                    )
        for position, (template, correlation_id, multi) in enumerate(self._requests):
            if multi is not None:
                answers[position] = self._answer_multi(template, correlation_id, multi, answer)
        for (template, _), delayed in self._delayed.items():
            owner = owner_of(self._replica_manager, self._context.connection)
            delayed.begin_wait(template.request.timeout_ms, owner)
        return answers

    def _answer_appended(
        self,
        template: _Template,
        correlation_id: int,
        write: _PartitionWrite,
        result: Appended,
        answer: EncodeResult,
    ) -> HandlerResult:
        """The response to a request of one appended batch, now or once it is acknowledged."""
        encoded = template.shape.answer_one(
            correlation_id, write.index, 0, result.base_offset, result.log_append_time,
            result.log_start_offset,
        )  # fmt: skip
        if result.required_offset is None:
            return (encoded,)
        delayed = self._delayed_of(template, write.partition, answer)
        return delayed.add(result.required_offset, correlation_id, encoded)

    def _answer_multi(
        self,
        template: _Template,
        correlation_id: int,
        multi: _MultiPartitionRequest,
        answer: EncodeResult,
    ) -> HandlerResult:
        """The response to a request with several batches."""
        results = multi.take_results()
        taken: list[TakenPart] = [
            (write.index, 0, result.base_offset, result.log_append_time, result.log_start_offset)
            for write, result in zip(multi.writes, results, strict=True)
            if isinstance(result, Appended) and result.size
            and result.refusal is None and result.required_offset is None
        ]  # fmt: skip
        if len(taken) == len(results):
            return (template.shape.answer(correlation_id, taken),)
        return self._answer_outcomes(template, correlation_id, multi.writes, results, answer)

    def _delayed_of(
        self, template: _Template, partition: Partition, answer: EncodeResult
    ) -> DelayedPartitionRequests:
        delayed = self._delayed.get((template, partition))
        if delayed is None:
            tp = partition.topic_partition
            # A bound method would keep all requests, and with them the received bytes.
            asked = template.request_for([tp.partition])
            refuse = partial(_refuse, self._replica_manager, self._context, tp, asked, answer)
            delayed = self._delayed[template, partition] = DelayedPartitionRequests(
                self._replica_manager, tp, refuse
            )
        return delayed

    def _answer_outcomes(
        self,
        template: _Template,
        correlation_id: int,
        writes: Sequence[_PartitionWrite],
        results: Sequence[_Result],
        answer: EncodeResult,
    ) -> HandlerResult:
        """The response to a request of which a batch is a duplicate, is refused, waits, or has to
        be verified."""
        replica_manager = self._replica_manager
        outcomes: list[Outcome] = []
        pending: list[PendingOutcome] = []
        for write, result in zip(writes, results, strict=True):
            if isinstance(result, asyncio.Future):
                pending.append(pending_outcome(write.partition, result))
                outcomes.append(pending[-1].outcome)
            else:
                outcome = produce_response.outcome_of(replica_manager, write.partition, result)
                outcomes.append(outcome)
        context = _context_of(self._context, correlation_id)
        request = template.request_for([outcome.topic_partition.partition for outcome in outcomes])
        respond = partial(produce_response.answer, replica_manager, context, request, [outcomes])
        handled = (
            answer_pending(replica_manager, context.version, pending, respond)
            if pending
            else respond()
        )
        return answer(context.header, request, handled)

    def _verify(
        self,
        template: _Template,
        write: _PartitionWrite,
        number: int,
        result: UnverifiedTransactionError,
    ) -> _Result:
        """The outcome of a batch whose transaction the partition does not know yet."""
        records, acks = write.batches[number]
        transaction = transaction_of(template.version, template.request)
        found = self._replica_manager.verifications.resolve(
            write.partition, records, acks, transaction, result
        )
        if isinstance(found, asyncio.Future):
            withdraw_with_client(self._context.connection, acks, transaction, found)
        return found


def _refuse(
    replica_manager: ReplicaManager,
    context: RequestContext,
    tp: TopicPartition,
    request: ProduceRequest,
    answer: EncodeResult,
    correlation_id: int,
    error: KafkaError,
) -> EncodedResponse:
    """The response to a batch that was appended and was not acknowledged."""
    outcome = produce_response.not_acknowledged(replica_manager, tp, error)
    context = _context_of(context, correlation_id)
    handled = produce_response.answer(replica_manager, context, request, [[outcome]])
    reply = answer(context.header, request, handled)
    assert isinstance(reply, Sequence)
    return reply


def _context_of(context: RequestContext, correlation_id: int) -> RequestContext:
    """The context of another of the repeated requests."""
    asked = context.header
    header = RequestHeader(
        api_key=asked.api_key,
        api_version=asked.api_version,
        correlation_id=correlation_id,
        client_id=asked.client_id,
    )
    return RequestContext(header=header, connection=context.connection)
