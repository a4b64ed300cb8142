"""The reader of one fetch's partitions, at once or in slices.

Owns: the bytes that each partition may return, the content of the response for each partition, and
when the fetch has enough.  Must not know how a log is read, how a fetch waits, or how its response
is made.
"""

from dataclasses import replace
from typing import Any, Final

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.fetch_sessions import CachedPartition
from sparklog.executors.handlers.fetch_attempt import FetchAttempt
from sparklog.executors.handlers.fetch_context import FetchContext, ReadResult
from sparklog.executors.handlers.fetch_response import NO_RECORDS, aborted, failed
from sparklog.executors.replica_manager import LogReads, ReplicaManager
from sparklog.service.handler import RequestContext
from sparklog.slices import SLICE_UNITS, Slices
from sparklog.types import NO_NODE, Isolation, TopicPartition
from sparklog.wire.protocol.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    PartitionData,
    ReplicaState,
)

#: The first version that names topics by their ids (KIP-516).
FIRST_ID_VERSION: Final = 13
#: The first version in which consumers may read from followers (KIP-392).
_FIRST_FOLLOWER_VERSION: Final = 11
#: Units of reading one partition, beside its bytes.
_READ_UNITS: Final = 20
_BYTES_PER_UNIT_SHIFT: Final = 12


class FetchReader:
    """Reads the partitions of ``context``, once for each attempt to answer the fetch."""

    __slots__ = ("_by_id", "_bytes_max", "bytes_min", "context", "log_reads", "replica_manager")

    def __init__(
        self,
        replica_manager: ReplicaManager,
        asked: RequestContext,
        request: FetchRequest,
        replica: ReplicaState,
        context: FetchContext,
    ) -> None:
        committed = request.isolation_level == Isolation.READ_COMMITTED
        self.replica_manager = replica_manager
        self.context = context
        self.log_reads = LogReads(
            replica_manager,
            replica_id=replica.replica_id,
            replica_epoch=replica.replica_epoch,
            rack=request.rack_id,
            for_replica=asked.member,
            isolation=Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED,
            only_leader=asked.version < _FIRST_FOLLOWER_VERSION,
        )
        self._by_id = asked.version >= FIRST_ID_VERSION
        self._bytes_max = min(request.max_bytes, replica_manager.broker_config.fetch_max_bytes)
        #: The fetch waits for this many bytes, at most the bytes that a response can hold.
        self.bytes_min = min(request.min_bytes, self._bytes_max)

    def read(self) -> FetchAttempt:
        """Read every partition that may have news."""
        found = FetchAttempt()
        left = self._bytes_max
        for part in self.context.parts():
            result = self._read_partition(part, left, found)
            found.add(result)
            left = max(left - result.size, 0)
        return found

    def wait_ms(self, attempt: FetchAttempt, max_wait_ms: int) -> int:
        """How long the fetch may wait for more than this attempt has found.

        For records from the bucket it waits longer than the client asks for, as in Kafka.
        """
        if attempt.awaits_remote:
            return max(max_wait_ms, self.replica_manager.broker_config.remote_fetch_max_wait_ms)
        return max_wait_ms

    def is_enough(self, attempt: FetchAttempt) -> bool:
        return attempt.urgent or attempt.size >= self.bytes_min or not self.context.can_wait

    def read_in_slices(self) -> Slices[tuple[int, list[ReadResult], FetchAttempt]]:
        """``read`` in slices.

        Returns the session's id, the results that go into the response, and the whole attempt.
        """
        found = FetchAttempt()
        answered: list[ReadResult] = []
        left = self._bytes_max
        spent = 0
        replica_manager, context = self.replica_manager, self.context
        delayed_operations = replica_manager.delayed_operations
        growth = (
            delayed_operations.follower_growth
            if self.log_reads.by_follower
            else delayed_operations.consumer_growth
        )
        #: The growth of each partition when it was read.
        seen: list[int] = []
        growth.begin_read()
        try:
            session_id = yield from context.begin_slices(replica_manager.monotonic_ms())
            for part in context.parts():
                result = self._read_partition(part, left, found)
                found.add(result)
                seen.append(growth.of(result.topic_partition))
                if context.is_answered(result):
                    answered.append(result)
                left = max(left - result.size, 0)
                spent += _READ_UNITS + (result.size >> _BYTES_PER_UNIT_SHIFT)
                if spent >= SLICE_UNITS:
                    yield spent
                    spent = 0
            yield spent
            if found.size < self.bytes_min:
                found.missed = sum(
                    [
                        growth.of(result.topic_partition) - size
                        for result, size in zip(found.results, seen, strict=True)
                    ]
                )
                if context.has_new_due(found.results):
                    found.missed = max(found.missed, self.bytes_min)
        except GeneratorExit:  # the client is gone
            found.release()
            raise
        finally:
            growth.end_read()
        return session_id, answered, found

    def _read_partition(self, part: CachedPartition, left: int, found: FetchAttempt) -> ReadResult:
        topic = part.topic
        try:
            if self._by_id:
                topic = self.replica_manager.topic_name(part.topic_id)
            return self._read(topic, part, left, found)
        except KafkaError as error:
            number = part.wanted.partition
            if topic:
                self.replica_manager.report_error(TopicPartition(topic, number), error)
            return ReadResult(part, topic, self._refused(topic, number, error), urgent=True)

    def _read(
        self, topic: str, part: CachedPartition, left: int, found: FetchAttempt
    ) -> ReadResult:
        log_reads, wanted = self.log_reads, part.wanted
        partition, read, preferred = log_reads.read(
            topic,
            wanted.partition,
            wanted.fetch_offset,
            min(wanted.partition_max_bytes, left),
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            min_one=not found.size,
        )
        records: Any = NO_RECORDS if read.records is None else found.hold(read.records)
        if log_reads.by_follower and read.diverging is None:
            log_reads.update_follower_fetch_state(
                partition, wanted.fetch_offset, wanted.log_start_offset
            )
        data = PartitionData(
            partition_index=wanted.partition,
            # The follower's own fetch may have moved it, and a session tells each change once.
            high_watermark=partition.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted_transactions=aborted(read) if log_reads.isolation else None,
            preferred_read_replica=preferred,
            records=records,
        )
        if read.diverging is not None:
            epoch, end_offset = read.diverging
            data = replace(data, diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset))
        elsewhere = read.diverging is not None or preferred != NO_NODE
        return ReadResult(
            part,
            topic,
            data,
            read.size,
            drained=not elsewhere and not read.size and wanted.fetch_offset >= read.end_offset,
            urgent=elsewhere or (read.is_remote and read.size > 0),
            awaits_remote=read.is_remote and not read.size,
            lacks_high_watermark=log_reads.by_follower and part.lacks_high_watermark_of(data),
        )

    def _refused(self, topic: str, number: int, error: KafkaError) -> PartitionData:
        """The response to a read that failed.

        A follower that is out of range gets this log's start offset, because its log has to start
        there.
        """
        data = failed(number, error.code)
        if not self.log_reads.by_follower or error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            return data
        partition = self.replica_manager.find(topic, number)
        return replace(data, log_start_offset=partition.log.log_start_offset)
