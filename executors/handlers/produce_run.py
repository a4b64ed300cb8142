"""Pipelined Produce requests of one connection, handled as one run.

Owns: which requests make a run (each has one batch, and they repeat a few shapes), and doing their
work together: what they share is decoded and looked up once, and each partition is written to once.
Must not know how an append is judged or what an answer rests on.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from sparklog.errors import DecodeError, KafkaError
from sparklog.executors.handlers import produce_answer
from sparklog.executors.partition import Partition
from sparklog.executors.partition_values import ACKS_ALL, Appended, SentBatch
from sparklog.executors.partitions import PartitionTable
from sparklog.service.handler import AnswerWith, RequestContext, RunHandler
from sparklog.transport import Answer
from sparklog.types import TopicPartition
from sparklog.wire.codec import RequestHeader, decode_request_header
from sparklog.wire.messages.produce import ProduceRequest
from sparklog.wire.produce import decode_produce_request
from sparklog.wire.produce_shape import ProduceShape

#: Requests of one run, and shapes among them.
RUN_MAX = 256
SHAPES_MAX = 16

#: Older ones need a look at the compression of each batch.
_FIRST_VERSION = 7
_FIRST_ID_VERSION = 13


@dataclass(frozen=True, slots=True)
class _Kind:
    """Requests that differ in correlation id and records alone, and where they go."""

    shape: ProduceShape
    request: ProduceRequest
    partition: Partition


@dataclass(slots=True)
class _Share:
    """What of a run goes to one partition; ``members`` says where in the run each batch stands."""

    batches: list[SentBatch] = field(default_factory=list)
    members: list[int] = field(default_factory=list)


def handler(table: PartitionTable) -> RunHandler:
    return partial(_handle, table)


def _handle(
    table: PartitionTable,
    context: RequestContext,
    request: ProduceRequest,
    frame: memoryview,
    frames: deque[memoryview],
    answer: AnswerWith,
) -> Sequence[Answer] | None:
    first = _kind_of(table, context.version, frame, request)
    if first is None:
        return None
    run = _Run(table, context, first)
    run.add(first, frame)
    while frames and run.add_next(frames[0]):
        frames.popleft()
    return run.append(answer)


def _kind_of(
    table: PartitionTable, version: int, frame: memoryview, request: ProduceRequest
) -> _Kind | None:
    """None for a request that goes its own way: several batches, no answer, or a refusal."""
    if version < _FIRST_VERSION or request.acks not in (1, ACKS_ALL):
        return None
    shape = ProduceShape.of(version, frame, request)
    if shape is None or request.transactional_id is not None:
        return None
    (topic,) = request.topic_data
    (part,) = topic.partition_data
    try:
        by_id = version >= _FIRST_ID_VERSION
        name = table.topic_name(topic.topic_id) if by_id else topic.name
        partition = table.find(name, part.index)
    except KafkaError:
        return None
    return _Kind(shape, produce_answer.without_records(request), partition)


class _Run:
    """Requests that were taken off the connection, in order."""

    def __init__(self, table: PartitionTable, context: RequestContext, first: _Kind) -> None:
        self._table = table
        self._context = context
        self._kinds = [first]
        self._members: list[tuple[_Kind, int]] = []
        self._shares: dict[Partition, _Share] = {}

    def add(self, kind: _Kind, frame: memoryview) -> bool:
        """Take a request in if it is of this kind."""
        found = kind.shape.match(frame)
        if found is None:
            return False
        correlation_id, records = found
        share = self._shares.get(kind.partition)
        if share is None:
            share = self._shares[kind.partition] = _Share()
        share.batches.append((records, kind.request.acks))
        share.members.append(len(self._members))
        self._members.append((kind, correlation_id))
        return True

    def add_next(self, frame: memoryview) -> bool:
        """Take in a request of a kind that is known or becomes known; False ends the run."""
        if len(self._members) >= RUN_MAX:
            return False
        for kind in self._kinds:
            if self.add(kind, frame):
                return True
        if len(self._kinds) >= SHAPES_MAX:
            return False
        new = self._decode(frame)
        if new is None:
            return False
        self._kinds.append(new)
        return self.add(new, frame)

    def append(self, answer: AnswerWith) -> list[Answer]:
        """Write every partition's share; the answers in the order of the requests."""
        answers: list[Answer] = [None] * len(self._members)
        now_ms = self._table.now_ms()
        for partition, share in self._shares.items():
            results = partition.append_all_as_leader(share.batches, now_ms=now_ms)
            self._count(partition.topic_partition, results)
            for index, result in zip(share.members, results, strict=True):
                kind, correlation_id = self._members[index]
                if isinstance(result, Appended):
                    if result.effects:
                        self._table.carry_out(result.effects)
                    if result.size and result.wait is None:
                        taken = kind.shape.answer(
                            correlation_id,
                            result.base_offset,
                            result.log_append_time,
                            result.log_start_offset,
                        )
                        answers[index] = (taken,)
                        continue
                answers[index] = self._answer(kind, correlation_id, result, answer)
        return answers

    def _decode(self, frame: memoryview) -> _Kind | None:
        """What cannot be decoded is refused when its own turn comes."""
        version = self._context.version
        try:
            header, offset = decode_request_header(frame)
            if (header.api_key, header.api_version) != (ProduceRequest.API_KEY, version):
                return None
            request = decode_produce_request(version, frame[offset:])
        except DecodeError:
            return None
        return _kind_of(self._table, version, frame, request)

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
        asked = self._context.header
        header = RequestHeader(
            api_key=asked.api_key,
            api_version=asked.api_version,
            correlation_id=correlation_id,
            client_id=asked.client_id,
        )
        context = RequestContext(header=header, connection=self._context.connection)
        handled = produce_answer.answer(table, context, kind.request, [[outcome]])
        return answer(header, kind.request, handled)
