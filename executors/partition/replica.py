"""One replica of one partition: the state that the leader role and the follower role share.

Owns: log, producer state, high watermark and current leader of the replica, its promised flushes,
the checks of a request's leader epoch, and reads.  Must not know how records come into the log.
"""

from collections.abc import Mapping
from itertools import takewhile
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from sparklog.executors.log import Log, LogRead, Steps
from sparklog.executors.partition.effects import (
    CompleteDelayedFetches,
    CompleteDelayedProduces,
    Effect,
    FlushLog,
    complete_all_delayed,
)
from sparklog.executors.partition.offset_lookup import (
    end_of_epoch,
    find_divergence,
    has_forgotten,
    look_up,
    read_error_code,
)
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.executors.partition.results import (
    EpochEnd,
    PartitionRead,
)
from sparklog.metadata import PartitionImage
from sparklog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    NO_OFFSET,
    Isolation,
    OffsetSpec,
    OffsetTimestamp,
    TopicPartition,
)

#: The errors of a log whose files, not the request, are at fault.
DISK_ERRORS = (StorageError, CorruptLogError)
#: Both stand for the log start, whether clients may read there or not.
_STARTS = (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL)
#: A read without batches.
_NOTHING = LogRead(region=None, size=0, first_offset=NO_OFFSET)


class Replica:
    """One replica; nothing else uses its log and its producer state."""

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID,
        node_id: int,
        log: Log,
        producers: ProducerStateManager,
        config: TopicConfig,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self.producers = producers
        self.config = config
        self.state: PartitionImage | None = None
        self.high_watermark = log.local_log_start_offset
        #: The log end offset when this replica became the leader.
        self.epoch_start_offset = NO_OFFSET
        self._flush_promised = NO_OFFSET
        self._unread_bytes = 0
        #: The log end when the producer state was restored.  A snapshot has no ended transactions.
        self._restored_end = log.log_end_offset
        producers.transactions.replicate(self.high_watermark)

    # role

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch if self.state else NO_LEADER_EPOCH

    @property
    def leader(self) -> int:
        return self.state.leader if self.state else NO_NODE

    @property
    def is_leader(self) -> bool:
        return self.leader == self.node_id

    def require_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise Kafka's error unless this replica leads in the caller's leader epoch."""
        self.require_role(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.node_id} does not lead {self.topic_partition}",
            )

    def require_role(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raise Kafka's error unless this replica is online and in the caller's leader epoch."""
        self.require_online()
        if current_leader_epoch >= 0 and self.state is not None:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self.topic_partition} is at leader epoch {self.leader_epoch}, "
                    f"not {current_leader_epoch}",
                )
            if current_leader_epoch > self.leader_epoch:
                raise KafkaError(
                    ErrorCode.UNKNOWN_LEADER_EPOCH,
                    f"{self.topic_partition} is at leader epoch {self.leader_epoch} here, "
                    f"{current_leader_epoch} has not arrived yet",
                )

    def require_online(self) -> None:
        if self.log.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.log.offline))

    # high watermark

    def move_high_watermark(self, reached: int) -> list[Effect]:
        """Advance the high watermark to ``reached``; a smaller offset changes nothing."""
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        size, self._unread_bytes = self._unread_bytes, 0
        transactions = self.producers.transactions
        if transactions.unreplicated and transactions.replicate(reached):
            # The whole transaction is readable now, not only bytes above the old high watermark.
            size = 0
        return [
            CompleteDelayedFetches(topic_partition=self.topic_partition, size=size),
            CompleteDelayedProduces(topic_partition=self.topic_partition),
        ]

    def appended(self, size: int) -> None:
        """Count ``size`` more bytes above the high watermark."""
        self._unread_bytes += size

    def truncated(self) -> None:
        """Lower all offsets that lie above the new end of a truncated log."""
        log = self.log
        self.high_watermark = max(
            min(self.high_watermark, log.log_end_offset), log.local_log_start_offset
        )
        self._flush_promised = min(self._flush_promised, log.log_end_offset)
        self._unread_bytes = 0
        self._restored_end = log.log_end_offset
        self.producers.transactions.replicate(self.high_watermark)

    def complete_all_delayed(self) -> list[Effect]:
        return complete_all_delayed(self.topic_partition)

    # read

    @property
    def last_stable_offset(self) -> int:
        """The offset below which everything is replicated and every transaction has ended."""
        return max(self.unclamped_last_stable_offset, self.log.log_start_offset)

    @property
    def unclamped_last_stable_offset(self) -> int:
        """The last stable offset before it is raised to the log start offset.

        It lies below the log start if an open transaction began there.  Retention deletes only
        segments below this offset, so it deletes nothing of an open transaction.
        """
        return self.producers.transactions.stable_offset(self.high_watermark)

    @property
    def durable_stable_offset(self) -> int:
        """The offset below which records and ends of transactions are replicated and flushed."""
        recovery_point = self.log.recovery_point
        if recovery_point < self._restored_end:
            return 0  # markers below the end of the restored state may not be flushed
        return self.producers.transactions.durable_stable_offset(
            self.high_watermark, recovery_point
        )

    @property
    def hanging_transactions(self) -> Mapping[int, int]:
        """Transactions whose markers no replica has any more: producer ids by first offset.

        Such a transaction is open and began below the local log start, where a part of the log is
        in the bucket only.  The bucket takes records of ended transactions alone, so it has ended;
        but its marker was behind what the bucket has, and the log has begun there anew.  If the log
        has been deleted up to the local log start, a transaction without later records counts, too:
        whether it has ended makes no difference, because none of its records is left.
        """
        log, producers = self.log, self.producers
        start = log.local_log_start_offset
        is_tiered = log.log_start_offset < start
        ongoing = takewhile(lambda each: each[0] < start, producers.transactions.ongoing.items())
        return {
            first_offset: producer_id
            for first_offset, producer_id in ongoing
            if is_tiered or producers.entries[producer_id].last_offset < start
        }

    def readable_end(self, isolation: Isolation) -> int:
        committed = isolation is Isolation.READ_COMMITTED
        return self.last_stable_offset if committed else self.high_watermark

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        last_fetched_epoch: int = NO_LEADER_EPOCH,
        replica_id: int = NO_NODE,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        min_one: bool = True,
        only_leader: bool = True,
    ) -> PartitionRead:
        """Read whole batches from ``offset`` on.

        Replicas read up to the log end, clients up to the high watermark, and clients with
        read_committed up to the last stable offset.

        Args:
            offset: the fetch offset.
            max_bytes: the limit of the records.
            current_leader_epoch: the reader's leader epoch; -1 skips the check.
            last_fetched_epoch: the leader epoch of the reader's record before ``offset``.  If this
                log has another epoch there, nothing is read and ``diverging`` says where.
            replica_id: the broker of a follower that reads; -1 for a client.
            isolation: of a client.
            min_one: read one batch even if it is larger than ``max_bytes``.
            only_leader: refuse clients while this replica follows.

        Raises KafkaError, among others OFFSET_OUT_OF_RANGE and KAFKA_STORAGE_ERROR, and for
        followers OFFSET_MOVED_TO_TIERED_STORAGE below the local log start.
        """
        self._require_reader(current_leader_epoch, replica_id, only_leader=only_leader)
        log = self.log
        start, log_end = log.log_start_offset, log.log_end_offset
        by_follower = replica_id >= 0
        end = log_end if by_follower else self.readable_end(isolation)
        found = _NOTHING
        diverging: EpochEnd | None = None
        if last_fetched_epoch >= 0 and offset >= start:
            diverging = find_divergence(log, self.leader_epoch, last_fetched_epoch, offset)
        if diverging is None:
            if not log.local_log_start_offset <= offset <= log_end:
                if not start <= offset < log.local_log_start_offset:
                    raise log.out_of_range(offset)
                if by_follower:
                    raise log.moved_to_tiered_storage(offset)
                return self._remote_read(end, wanted=offset < end and (max_bytes > 0 or min_one))
            if by_follower and has_forgotten(log, last_fetched_epoch, offset):
                raise log.out_of_range(offset)
            if offset < end and (max_bytes > 0 or min_one):
                committed = isolation is Isolation.READ_COMMITTED
                found = self._read_log(offset, max_bytes, end, min_one, committed, not by_follower)
                if by_follower and last_fetched_epoch >= 0 and found.first_offset < offset:
                    # The reader's log ends inside this batch, so it has other batches before its
                    # end.
                    assert found.region is not None
                    found.region.release()
                    diverging = EpochEnd(last_fetched_epoch, found.first_offset)
                    found = _NOTHING
        return PartitionRead(
            records=found.region,
            size=found.size,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=start,
            aborted=found.aborted,
            end_offset=end,
            diverging=diverging,
        )

    def _remote_read(self, end_offset: int, *, wanted: bool) -> PartitionRead:
        return PartitionRead(
            records=None,
            size=0,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log.log_start_offset,
            end_offset=end_offset,
            is_remote=wanted,
        )

    def find_offset(
        self, timestamp: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Steps[OffsetTimestamp | None]:
        """Answer a client's ListOffsets; ``timestamp`` is an ``OffsetSpec`` or milliseconds.

        None when no readable record has such a timestamp.  Call ``require_leader`` first, and again
        afterwards if some of the steps ran in another thread.
        """
        if timestamp == OffsetSpec.LATEST:
            self._require_known_end()
            end = self.readable_end(isolation)
            return OffsetTimestamp(offset=end, leader_epoch=self.leader_epoch)
        found = yield from look_up(self.log, timestamp)
        return found if timestamp in _STARTS else self.readable(found, isolation)

    def readable(
        self, found: OffsetTimestamp | None, isolation: Isolation
    ) -> OffsetTimestamp | None:
        """What a search has found, or None where the client may not read yet.

        The end is the one of now: during the search a new leader may have found out what its
        predecessor had let clients read.
        """
        if found is not None and found.offset >= self.readable_end(isolation):
            self._require_known_end()
            return None
        return found

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest known epoch <= ``epoch`` and where it ends; -1 unknown.

        Call ``require_leader`` first.
        """
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    # flush

    @property
    def flush_pending(self) -> bool:
        """Whether a promised flush has not happened yet."""
        return self.log.recovery_point < self._flush_promised

    @property
    def flush_promised(self) -> int:
        """The offset up to which a flush is promised."""
        return self._flush_promised

    @property
    def own_end(self) -> int:
        """The log end of this replica for the high watermark.

        Records with a promised flush count only after the flush.
        """
        return self.log.recovery_point if self.flush_pending else self.log.log_end_offset

    def opened(self, now_ms: int) -> list[Effect]:
        """Promise a flush of everything in a log that was just opened.

        A crash may have come between a write and its flush.  Then the producer has no response and
        sends the batch again, and the duplicate would be acknowledged at once without a flush.
        """
        return self.promise_flush(now_ms)

    def promise_flush(self, now_ms: int) -> list[Effect]:
        """Promise a flush after an append, by ``flush.messages`` or ``flush.ms``."""
        log, config = self.log, self.config
        unflushed = log.log_end_offset - log.recovery_point
        if unflushed >= config.flush_messages or config.flush_ms == 0:
            self._flush_promised = log.log_end_offset
        return self.plan_flush(now_ms)

    def plan_flush(self, now_ms: int) -> list[Effect]:
        if self.log.replacing:
            return []  # planned again when the segments are replaced
        if self.flush_pending or self.log.flush_due(now_ms):
            return [FlushLog(topic_partition=self.topic_partition, at_ms=now_ms)]
        deadline_ms = self.log.flush_deadline_ms
        if deadline_ms is None:
            return []
        return [FlushLog(topic_partition=self.topic_partition, at_ms=deadline_ms)]

    def _require_reader(
        self, current_leader_epoch: int, replica_id: int, *, only_leader: bool
    ) -> None:
        if only_leader or replica_id >= 0:
            self.require_leader(current_leader_epoch)
        else:
            self.require_role(current_leader_epoch)
            if self.state is None or self.log.truncating:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"broker {self.node_id} does not serve {self.topic_partition} now",
                )

    def _read_log(
        self,
        offset: int,
        max_bytes: int,
        end: int,
        min_one: bool,
        committed: bool,
        is_client: bool,
    ) -> LogRead:
        try:
            return self.log.read(
                offset,
                max_bytes,
                end_offset=end,
                min_one=min_one,
                with_aborted=committed,
                # librdkafka takes answers without a record for too small and reports an error in
                # the end (MSG_SIZE_TOO_LARGE); a follower copies every batch.
                skip_emptied=is_client,
            )
        except DISK_ERRORS as error:
            raise KafkaError(read_error_code(self.log, error), str(error)) from error

    def _require_known_end(self) -> None:
        # KIP-207: until then "latest" could be below what the previous leader answered.
        if self.high_watermark < self.epoch_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark of {self.topic_partition} has not caught up with this epoch",
            )
