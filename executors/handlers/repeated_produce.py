"""Produce requests that repeat earlier ones of their connection but for their batches.

Owns: what a connection is known to repeat (requests of one topic), and handling neighbours as one
run: nothing is decoded or looked up again, and each partition is written to once.  Must not know
how an append is judged or what an answer rests on.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from sparklog.errors import KafkaError
from sparklog.executors.handlers import produce_answer
from sparklog.executors.handlers.connection_owner import owner_of
from sparklog.executors.handlers.delayed_produce import DelayedRun
from sparklog.executors.partition import ACKS_ALL, Appended, Partition, SentBatch
from sparklog.executors.replica_manager import ReplicaManager
from sparklog.service.handler import AnswerWith, RequestContext
from sparklog.transport import Answer, Reply
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

#: Requests of one run, and the batches of all of them.
RUN_MAX = 256
RUN_BATCHES_MAX = 500
#: Kinds of requests that are remembered of one connection.
KINDS_MAX = 256
#: Kinds of all connections together at which each connection keeps only its last one.
ALL_KINDS_MAX = 20_000
#: Bytes in front of the batches of a request that is remembered; names and client ids are shorter.
BEFORE_BYTES_MAX = 1024

_STATE_KEY = "produce"


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """Requests that differ in correlation id and batches alone, and where these go."""

    shape: ProduceShape
    version: int
    request: ProduceRequest
    topic: str
    topic_id: UUID
    partitions: dict[int, Partition]

    def asked(self, indexes: Iterable[int]) -> ProduceRequest:
        """The request of this kind for these partitions, without their records."""
        (topic,) = self.request.topic_data
        parts = tuple([PartitionProduceData(index=index) for index in indexes])
        return replace(self.request, topic_data=(replace(topic, partition_data=parts),))


class _Total:
    """How many kinds all connections of a broker have."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class _Known:
    """The kinds of one connection, by what stands at the start of their frames."""

    __slots__ = ("_kinds", "_lengths", "_total")

    def __init__(self, total: _Total) -> None:
        self._total = total
        self._kinds: dict[bytes, _Kind] = {}
        #: Where the start may end; few, because a client's names differ little in length.
        self._lengths: list[int] = []

    def add(self, kind: _Kind) -> None:
        kinds_max = KINDS_MAX if self._total.count < ALL_KINDS_MAX else 1
        if len(self._kinds) >= kinds_max:
            self.clear()
        self._total.count += kind.shape.before not in self._kinds
        self._kinds[kind.shape.before] = kind
        if kind.shape.parts_at not in self._lengths:
            self._lengths.append(kind.shape.parts_at)

    def forget(self, kind: _Kind) -> None:
        if self._kinds.pop(kind.shape.before, None) is not None:
            self._total.count -= 1

    def clear(self) -> None:
        self._total.count -= len(self._kinds)
        self._kinds.clear()
        self._lengths.clear()

    def find(self, frame: memoryview) -> tuple[_Kind, int, list[SentPart]] | None:
        """Kind, correlation id and batches of a frame."""
        for length in self._lengths:
            kind = self._kinds.get(bytes(frame[BEFORE_AT:length]))
            if kind is not None:
                found = kind.shape.split(frame)
                return None if found is None else (kind, *found)
        return None


class RepeatedProduce:
    """The ``Repeats`` of Produce."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager
        self._total = _Total()

    def learn(self, context: RequestContext, frame: memoryview, request: ProduceRequest) -> None:
        """Several topics, no answer or a refusal: such requests go their own way."""
        version = context.version
        # Older ones need a look at the compression of each batch.
        if version < ZSTD_FROM or request.acks not in (1, ACKS_ALL):
            return
        if request.transactional_id is not None or len(request.topic_data) != 1:
            return
        (topic,) = request.topic_data
        if len(topic.partition_data) > PARTITIONS_MAX:
            return
        try:
            by_id = version >= TOPIC_IDS_FROM
            name = self._replica_manager.topic_name(topic.topic_id) if by_id else topic.name
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
        known: _Known | None = context.connection.state.get(_STATE_KEY)
        if known is None:
            known = context.connection.state[_STATE_KEY] = _Known(self._total)
            context.connection.call_on_close(known.clear)
        asked = produce_answer.without_few_records(request)
        known.add(_Kind(shape, version, asked, name, topic_id, found))

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
        run = _Run(self._replica_manager, context, known)
        if not run.add(frame):
            return None
        for _ in range(min(len(frames), RUN_MAX - 1)):
            if not run.add(frames[0]):
                break
            frames.popleft()
        return run.append(answer)


@dataclass(slots=True)
class _Share:
    """What of a run goes to one partition, and what came of it, batch by batch.

    ``members`` says whose each batch is: where in the run its request stands.
    """

    partition: Partition
    index: int
    batches: list[SentBatch] = field(default_factory=list)
    members: list[int] = field(default_factory=list)


class _Several:
    """The batches of one request for more than one, in its order, and what came of each."""

    __slots__ = ("_results", "shares")

    def __init__(self, shares: Sequence[_Share]) -> None:
        self.shares = shares
        self._results: dict[int, deque[Appended | KafkaError]] = {}

    def settle(self, share: _Share, result: Appended | KafkaError) -> None:
        """The next batch of that share."""
        self._results.setdefault(share.index, deque()).append(result)

    def take_results(self) -> list[Appended | KafkaError]:
        """Of all of them."""
        return [self._results[share.index].popleft() for share in self.shares]


class _Run:
    """Requests of one connection that arrived together, in order."""

    def __init__(
        self, replica_manager: ReplicaManager, context: RequestContext, known: _Known
    ) -> None:
        self._replica_manager = replica_manager
        self._context = context
        self._known = known
        #: Kind, correlation id, and its batches when there are more than one.
        self._members: list[tuple[_Kind, int, _Several | None]] = []
        self._batches = 0
        self._shares: dict[Partition, _Share] = {}
        #: Of each kind and partition, what waits to be safe.
        self._delayed: dict[tuple[_Kind, Partition], DelayedRun] = {}

    def add(self, frame: memoryview) -> bool:
        """Take a request in if its kind is known."""
        found = self._known.find(frame)
        if found is None:
            return False
        kind, correlation_id, parts = found
        if kind.version != self._context.version:  # that of all answers of a run
            return False
        if self._members and self._batches + len(parts) > RUN_BATCHES_MAX:
            return False
        self._batches += len(parts)
        acks = kind.request.acks
        if len(parts) == 1:  # what most clients send, without a loop
            ((index, records),) = parts
            partition = kind.partitions.get(index)
            share = None if partition is None else self._shares.get(partition)
            share = share or self._share(kind, index)
            if share is None:
                return False
            share.batches.append((records, acks))
            share.members.append(len(self._members))
            self._members.append((kind, correlation_id, None))
            return True
        if len({index for index, _ in parts}) < len(parts):
            return False  # a partition that is named twice is refused
        shares = []
        for index, _ in parts:
            share = self._share(kind, index)
            if share is None:
                return False
            shares.append(share)
        for share, part in zip(shares, parts, strict=True):
            share.batches.append((part[1], acks))
            share.members.append(len(self._members))
        self._members.append((kind, correlation_id, _Several(shares)))
        return True

    def _share(self, kind: _Kind, index: int) -> "_Share | None":
        """Of a partition of the kind's topic."""
        partition = kind.partitions.get(index)
        if partition is None:
            partition = self._replica_manager.get(TopicPartition(kind.topic, index))
            if partition is None:
                return None
            kind.partitions[index] = partition
        share = self._shares.get(partition)
        if share is None:
            here = self._replica_manager.get(partition.topic_partition)
            if here is not partition or partition.topic_id != kind.topic_id:
                self._known.forget(kind)  # closed meanwhile, or another topic of that name
                return None
            if self._replica_manager.validations.wants(partition):
                self._known.forget(kind)
                return None
            share = self._shares[partition] = _Share(partition, index)
        return share

    def append(self, answer: AnswerWith) -> list[Answer]:
        """Write every partition's share; the answers in the order of the requests."""
        answers: list[Answer] = [None] * len(self._members)
        now_ms = self._replica_manager.now_ms()
        for partition, share in self._shares.items():
            if not share.batches:  # of a request that is none of this run, after all
                continue
            results = self._replica_manager.append_records(partition, share.batches, now_ms=now_ms)
            for member, result in zip(share.members, results, strict=True):
                kind, correlation_id, several = self._members[member]
                if several is not None:
                    several.settle(share, result)
                elif isinstance(result, Appended) and result.size and result.refusal is None:
                    answers[member] = self._taken(kind, correlation_id, share, result, answer)
                else:
                    answers[member] = self._judged(
                        kind, correlation_id, (share,), (result,), answer
                    )
        for member, (kind, correlation_id, several) in enumerate(self._members):
            if several is not None:
                answers[member] = self._answer(kind, correlation_id, several, answer)
        for (kind, _), delayed in self._delayed.items():
            owner = owner_of(self._replica_manager, self._context.connection)
            delayed.park(kind.request.timeout_ms, owner)
        return answers

    def _taken(
        self, kind: _Kind, correlation_id: int, share: _Share, result: Appended, answer: AnswerWith
    ) -> Answer:
        """The answer to a request whose only batch was written, now or once it is safe."""
        given = kind.shape.answer_one(
            correlation_id, share.index, 0, result.base_offset, result.log_append_time,
            result.log_start_offset,
        )  # fmt: skip
        if result.wait is None:
            return (given,)
        delayed = self._delayed_of(kind, share.partition, answer)
        return delayed.add(result.wait, correlation_id, given)

    def _answer(
        self, kind: _Kind, correlation_id: int, several: _Several, answer: AnswerWith
    ) -> Answer:
        """The answer to a request of more batches than one."""
        results = several.take_results()
        taken: list[TakenPart] = [
            (share.index, 0, result.base_offset, result.log_append_time, result.log_start_offset)
            for share, result in zip(several.shares, results, strict=True)
            if isinstance(result, Appended) and result.size
            and result.refusal is None and result.wait is None
        ]  # fmt: skip
        if len(taken) == len(results):
            return (kind.shape.answer(correlation_id, taken),)
        return self._judged(kind, correlation_id, several.shares, results, answer)

    def _delayed_of(self, kind: _Kind, partition: Partition, answer: AnswerWith) -> DelayedRun:
        delayed = self._delayed.get((kind, partition))
        if delayed is None:
            tp = partition.topic_partition
            # Not by a method: a run holds what was received.
            asked = kind.asked([tp.partition])
            refuse = partial(_refuse, self._replica_manager, self._context, tp, asked, answer)
            delayed = self._delayed[kind, partition] = DelayedRun(self._replica_manager, tp, refuse)
        return delayed

    def _judged(
        self,
        kind: _Kind,
        correlation_id: int,
        shares: Sequence[_Share],
        results: Sequence[Appended | KafkaError],
        answer: AnswerWith,
    ) -> Answer:
        """The answer to a request whose batches were not all simply taken."""
        replica_manager = self._replica_manager
        outcomes = [
            produce_answer.outcome_of(replica_manager, share.partition, result)
            for share, result in zip(shares, results, strict=True)
        ]
        context = _context_of(self._context, correlation_id)
        request = kind.asked([outcome.topic_partition.partition for outcome in outcomes])
        handled = produce_answer.answer(replica_manager, context, request, [outcomes])
        return answer(context.header, request, handled)


def _refuse(
    replica_manager: ReplicaManager,
    context: RequestContext,
    tp: TopicPartition,
    request: ProduceRequest,
    answer: AnswerWith,
    correlation_id: int,
    error: KafkaError,
) -> Reply:
    """The answer to a batch that was written and did not become safe."""
    outcome = produce_answer.not_safe(replica_manager, tp, error)
    context = _context_of(context, correlation_id)
    handled = produce_answer.answer(replica_manager, context, request, [[outcome]])
    reply = answer(context.header, request, handled)
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
