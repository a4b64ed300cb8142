"""Produce requests that repeat earlier ones of their connection but for their records.

Owns: what a connection is known to repeat (requests with one batch), and handling neighbours as one
run: nothing is decoded or looked up again, and each partition is written to once.  Must not know
how an append is judged or what an answer rests on.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from sparklog.errors import KafkaError
from sparklog.executors.handlers import produce_answer
from sparklog.executors.handlers.connection_waits import owner_of
from sparklog.executors.handlers.parked_batches import ParkedBatches
from sparklog.executors.partition import Partition
from sparklog.executors.partition_values import ACKS_ALL, Appended, SentBatch
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import AnswerWith, RequestContext
from sparklog.transport import Answer, Reply
from sparklog.types import TopicPartition
from sparklog.wire.codec import RequestHeader
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.produce import TOPIC_IDS_FROM, ZSTD_FROM
from sparklog.wire.produce_shape import BEFORE_AT, ProduceShape

#: Requests of one run.
RUN_MAX = 256
#: Kinds of requests that are remembered of one connection.
KINDS_MAX = 256

_STATE_KEY = "produce"


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """Requests that differ in correlation id and records alone, and where they go."""

    shape: ProduceShape
    request: ProduceRequest
    partition: Partition


class _Known:
    """The kinds of one connection, by what stands at the start of their frames."""

    __slots__ = ("_kinds", "_lengths")

    def __init__(self) -> None:
        self._kinds: dict[bytes, _Kind] = {}
        #: Where the start may end; few, because a client's names differ little in length.
        self._lengths: list[int] = []

    def add(self, kind: _Kind) -> None:
        if len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
            self._lengths.clear()
        self._kinds[kind.shape.before] = kind
        if kind.shape.size_at not in self._lengths:
            self._lengths.append(kind.shape.size_at)

    def forget(self, kind: _Kind) -> None:
        self._kinds.pop(kind.shape.before, None)

    def find(self, frame: memoryview) -> tuple[_Kind, int, memoryview] | None:
        """Kind, correlation id and records of a frame."""
        for length in self._lengths:
            kind = self._kinds.get(bytes(frame[BEFORE_AT:length]))
            if kind is not None:
                found = kind.shape.split(frame)
                return None if found is None else (kind, *found)
        return None


@dataclass(slots=True)
class _Share:
    """What of a run goes to one partition; ``members`` says where in the run each batch stands."""

    batches: list[SentBatch] = field(default_factory=list)
    members: list[int] = field(default_factory=list)


class ProduceRepeats:
    """The ``Repeats`` of Produce."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table

    def learn(self, context: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
        """Several batches, no answer or a refusal: such requests go their own way."""
        version = context.version
        # Older ones need a look at the compression of each batch.
        if version < ZSTD_FROM or request.acks not in (1, ACKS_ALL):
            return
        shape = ProduceShape.of(version, frame, request)
        if shape is None or request.transactional_id is not None:
            return
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        try:
            by_id = version >= TOPIC_IDS_FROM
            name = self._table.topic_name(topic.topic_id) if by_id else topic.name
            partition = self._table.find(name, part.index)
        except KafkaError:
            return
        known: _Known = context.connection.state.setdefault(_STATE_KEY, _Known())
        known.add(_Kind(shape, produce_answer.without_records(request), partition))

    def handle(
        self,
        context: RequestContext,
        frame: memoryview,
        frames: deque[memoryview],
        answer: AnswerWith,
    ) -> Sequence[Answer] | None:
        """See ``Repeats``."""
        known: _Known | None = context.connection.state.get(_STATE_KEY)
        if known is None:
            return None
        run = _Run(self._table, context, known)
        if not run.add(frame):
            return None
        for _ in range(min(len(frames), RUN_MAX - 1)):
            if not run.add(frames[0]):
                break
            frames.popleft()
        return run.append(answer)


class _Run:
    """Requests of one connection that arrived together, in order."""

    def __init__(self, table: PartitionTable, context: RequestContext, known: _Known) -> None:
        self._table = table
        self._context = context
        self._known = known
        self._members: list[tuple[_Kind, int]] = []
        self._shares: dict[Partition, _Share] = {}
        #: Of each kind, what waits to be safe.
        self._parked: dict[_Kind, ParkedBatches] = {}

    def add(self, frame: memoryview) -> bool:
        """Take a request in if its kind is known."""
        found = self._known.find(frame)
        if found is None:
            return False
        kind, correlation_id, records = found
        share = self._shares.get(kind.partition)
        if share is None:
            if self._table.get(kind.partition.topic_partition) is not kind.partition:
                self._known.forget(kind)  # closed meanwhile, or another topic of that name
                return False
            share = self._shares[kind.partition] = _Share()
        share.batches.append((records, kind.request.acks))
        share.members.append(len(self._members))
        self._members.append((kind, correlation_id))
        return True

    def append(self, answer: AnswerWith) -> list[Answer]:
        """Write every partition's share; the answers in the order of the requests."""
        answers: list[Answer] = [None] * len(self._members)
        now_ms = self._table.now_ms()
        for partition, share in self._shares.items():
            results = partition.append_all_as_leader(share.batches, now_ms=now_ms)
            self._count(partition.topic_partition, results)
            for index, result in zip(share.members, results, strict=True):
                kind, correlation_id = self._members[index]
                if isinstance(result, Appended) and result.effects:
                    self._table.carry_out(result.effects)
                if isinstance(result, Appended) and result.size and result.refusal is None:
                    answers[index] = self._taken(kind, correlation_id, result, answer)
                else:
                    answers[index] = self._answer(kind, correlation_id, result, answer)
        for kind, parked in self._parked.items():
            owner = owner_of(self._table, self._context.connection)
            parked.park(max(kind.request.timeout_ms, 1) / 1000, owner)
        return answers

    def _taken(
        self, kind: _Kind, correlation_id: int, result: Appended, answer: AnswerWith
    ) -> Answer:
        """The answer to a batch that was written, now or once it is safe."""
        taken = kind.shape.answer(
            correlation_id, result.base_offset, result.log_append_time, result.log_start_offset
        )
        if result.wait is None:
            return (taken,)
        parked = self._parked.get(kind)
        if parked is None:
            tp = kind.partition.topic_partition
            # Not by a method: a run holds what was received.
            refuse = partial(_refuse, self._table, self._context, kind, answer)
            parked = self._parked[kind] = ParkedBatches(self._table, tp, refuse)
        return parked.add(result.wait, correlation_id, taken)

    def _count(self, tp: TopicPartition, results: Sequence[Appended | KafkaError]) -> None:
        sizes = [result.size for result in results if isinstance(result, Appended) and result.size]
        if sizes:
            self._table.counters.count_appends(tp.topic, len(sizes), sum(sizes))

    def _answer(
        self, kind: _Kind, correlation_id: int, result: Appended | KafkaError, answer: AnswerWith
    ) -> Answer:
        """The answer to a batch that was not simply taken."""
        table, partition = self._table, kind.partition
        if isinstance(result, KafkaError):
            outcome = produce_answer.refused(table, partition.topic_partition, result)
        else:
            outcome = produce_answer.appended(table, partition, result)
        context = _context_of(self._context, correlation_id)
        handled = produce_answer.answer(table, context, kind.request, [[outcome]])
        return answer(context.header, kind.request, handled)


def _refuse(
    table: PartitionTable,
    context: RequestContext,
    kind: _Kind,
    answer: AnswerWith,
    correlation_id: int,
    error: KafkaError,
) -> Reply:
    """The answer to a batch that was written and did not become safe."""
    outcome = produce_answer.not_safe(table, kind.partition.topic_partition, error)
    context = _context_of(context, correlation_id)
    handled = produce_answer.answer(table, context, kind.request, [[outcome]])
    reply = answer(context.header, kind.request, handled)
    assert isinstance(reply, Sequence)
    return reply


def _context_of(context: RequestContext, correlation_id: int) -> RequestContext:
    """Of another request of the same run."""
    asked = context.header
    header = RequestHeader(
        api_key=asked.api_key,
        api_version=asked.api_version,
        correlation_id=correlation_id,
        client_id=asked.client_id,
    )
    return RequestContext(header=header, connection=context.connection)
