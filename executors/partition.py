"""One replica of one partition: its role, the order of an append, and what readers may see.

Owns: leader and partition epoch, ISR, high watermark, and the decision what an acknowledgement
waits for.  Decides and hands back effects; a shell carries them out and feeds results back.  Must
not know sockets, threads, clocks or other partitions.

A parked acknowledgement is an ``AckWait``: the shell asks ``is_settled`` again after a
``WakeWriters``.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from sparklog.executors.append_draft import AppendDraft
from sparklog.executors.followers import Followers
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import Steps
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.executors.offset_lookup import end_of_epoch, look_up
from sparklog.executors.partition_values import (
    ACKS_ALL,
    ACKS_NONE,
    AckWait,
    Appended,
    Effect,
    FlushLog,
    PartitionRead,
    SentBatch,
    WakeDeleters,
    WakeFollowers,
    WakeReaders,
    WakeWriters,
    WriteStatistics,
    wake_all,
)
from sparklog.executors.producer_state import ProducerStateManager, TransactionEnd
from sparklog.metadata import PartitionImage
from sparklog.storage_backends.base import Region
from sparklog.types import (
    NO_LEADER_EPOCH,
    NO_NODE,
    NO_OFFSET,
    Isolation,
    OffsetSpec,
    OffsetTimestamp,
    TopicPartition,
)
from sparklog.wire.batch import Buffer

#: What a log raises when its files, not the request, are at fault.
_DISK_ERRORS = (StorageError, CorruptLogError)
#: Where the log starts, readable or not.
_STARTS = (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL)


class Partition:
    """State of one replica; the log and the producer state are its own."""

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
        self.log = log
        self.producers = producers
        self.config = config
        self.state: PartitionImage | None = None
        self.high_watermark = log.log_start_offset
        self._node_id = node_id
        self._epoch_start_offset = NO_OFFSET
        self._followers = Followers()
        self._flush_promised = NO_OFFSET
        self._unread_bytes = 0
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
        return self.leader == self._node_id

    def take_role(self, state: PartitionImage) -> list[Effect]:
        """Follow the cluster image.  A state that is older than the one held changes nothing."""
        held = self.state
        if held is not None and state.partition_epoch < held.partition_epoch:
            return []
        self.state = state
        changed = held is None or (held.leader, held.leader_epoch) != (
            state.leader,
            state.leader_epoch,
        )
        if changed and self.is_leader and self.log.offline is None:
            self._epoch_start_offset = self.log.log_end_offset
            self._followers.clear()
            self.log.assign_leader_epoch(state.leader_epoch)
        effects = self._advance_high_watermark() if self.is_leader else []
        return [*effects, *self._wake_all()] if changed else effects

    def resign(self) -> list[Effect]:
        """Forget the role: nothing is served until the next ``take_role``."""
        self.state = None
        return self._wake_all()

    def configure(self, config: TopicConfig, now_ms: int) -> list[Effect]:
        """Settings changed while the partition is open."""
        self.config = config
        self.log.reconfigure(config)
        advanced = self._advance_high_watermark() if self.is_leader else []
        return [*advanced, *self._plan_flush(now_ms)]

    def require_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raises Kafka's code unless this replica leads, in the epoch that the caller knows."""
        self._require_online()
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
        if not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._node_id} does not lead {self.topic_partition}",
            )

    # append

    def append_as_leader(
        self, records: Buffer | None, *, acks: int, now_ms: int, in_transaction: bool = False
    ) -> Appended:
        """Append the batch of a client.

        Raises KafkaError; then nothing was changed.  ``acks``: 0, 1 or -1.  ``in_transaction``: the
        caller knows from the coordinator that this partition belongs to the producer's open
        transaction (KIP-890); a transactional batch is refused without it.
        """
        (outcome,) = self.append_all_as_leader(
            [(records, acks)], now_ms=now_ms, in_transaction=in_transaction
        )
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def append_all_as_leader(
        self, sent: Sequence[SentBatch], *, now_ms: int, in_transaction: bool = False
    ) -> list[Appended | KafkaError]:
        """Append the batches of clients in their order, with one write per segment.

        To each comes what would have come to it alone, but that a write that fails fails for all.
        A KafkaError says that nothing was changed for that batch.  Effects are among the outcomes.
        """
        try:
            self.require_leader()
        except KafkaError as refusal:
            return [refusal] * len(sent)
        outcomes: list[Appended | KafkaError] = []
        draft = self._draft(now_ms, in_transaction)
        for records, acks in sent:
            if records is not None and not draft.has_room(len(records)):
                outcomes += self._write(draft, now_ms)
                draft = self._draft(now_ms, in_transaction)
            try:
                if acks == ACKS_ALL:
                    self._require_insync_replicas()
            except KafkaError as refusal:
                draft.refuse(refusal)
            else:
                draft.take(records, acks)
        return outcomes + self._write(draft, now_ms)

    def end_transaction(self, end: TransactionEnd, *, now_ms: int) -> Appended:
        """Append the marker that a coordinator asks for; the answer waits as one to acks=all.

        Raises KafkaError, and nothing was changed: NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        self.require_leader()
        self._require_insync_replicas()
        draft = self._draft(now_ms, in_transaction=True)
        draft.take_end(end)
        (outcome,) = self._write(draft, now_ms)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def is_settled(self, wait: AckWait) -> bool:
        """Whether what an answer waits for has come.  Raises KafkaError when it cannot come."""
        self._require_online()
        if self.leader_epoch != wait.leader_epoch or not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} moved before the append was safe",
            )
        reached = self.high_watermark if wait.replicated else self.log.recovery_point
        return reached >= wait.end_offset

    # flush

    @property
    def flush_owed(self) -> bool:
        """Whether an acknowledgement was promised a flush that has not happened."""
        return self.log.recovery_point < self._flush_promised

    def opened(self, now_ms: int) -> list[Effect]:
        """The log was opened: what it holds is promised the flush that it may not have had.

        A crash can have come between write and flush; then the producer, which has no answer yet,
        asks again, and as a duplicate the batch would be acknowledged at once.
        """
        return self._promise_flush(now_ms)

    def flushed(self, now_ms: int) -> list[Effect]:
        """A flush ended: the recovery point has moved, or the log has gone offline."""
        if self.log.offline is not None:
            return self._wake_all()
        effects = self._advance_high_watermark() if self.is_leader else []
        woken = any(isinstance(effect, WakeWriters) for effect in effects)
        if not woken:
            effects.append(WakeWriters(topic_partition=self.topic_partition))
        if self.log.statistics.owed:
            effects.append(WriteStatistics(topic_partition=self.topic_partition))
        return [*effects, *self._plan_flush(now_ms)]

    # read

    @property
    def last_stable_offset(self) -> int:
        """Below it everything is replicated and every transaction decided."""
        return max(self.retention_end, self.log.log_start_offset)

    @property
    def retention_end(self) -> int:
        """Retention takes nothing from here on, not even of a transaction whose begin is hidden."""
        return self.producers.transactions.stable_offset(self.high_watermark)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        current_leader_epoch: int = NO_LEADER_EPOCH,
        replica_id: int = NO_NODE,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        min_one: bool = True,
    ) -> PartitionRead:
        """Whole batches from ``offset`` on, up to what the reader may see.

        Replicas see everything, others what is below the high watermark or, to read committed data
        alone, below the last stable offset.  Raises KafkaError, among them OFFSET_OUT_OF_RANGE and
        KAFKA_STORAGE_ERROR.
        """
        self.require_leader(current_leader_epoch)
        end = self.log.log_end_offset if replica_id >= 0 else self._readable_end(isolation)
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is outside "
                f"[{self.log.log_start_offset}, {self.log.log_end_offset}]",
            )
        committed = isolation is Isolation.READ_COMMITTED
        records: Region | None = None
        size = 0
        aborted: tuple[AbortedTxn, ...] = ()
        if offset < end and (max_bytes > 0 or min_one):
            try:
                found = self.log.read(
                    offset, max_bytes, end_offset=end, min_one=min_one, with_aborted=committed
                )
            except _DISK_ERRORS as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            records, size, aborted = found.region, found.size, found.aborted
        return PartitionRead(
            records=records,
            size=size,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=self.log.log_start_offset,
            aborted=aborted,
            end_offset=end,
        )

    def record_follower(
        self, replica_id: int, offset: int, log_start_offset: int = NO_OFFSET
    ) -> list[Effect]:
        """A follower's fetch says how far its log reaches, and where it starts."""
        started = self._followers.record(replica_id, offset, log_start_offset)
        effects = self._advance_high_watermark()
        return (
            [*effects, WakeDeleters(topic_partition=self.topic_partition)] if started else effects
        )

    def find_offset(
        self, timestamp: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Steps[OffsetTimestamp | None]:
        """ListOffsets for a client: a special timestamp (``OffsetSpec``) or milliseconds.

        None when no record that the client may read has such a timestamp.  Call ``require_leader``
        first, and again afterwards when parts of it ran elsewhere.
        """
        end = self._readable_end(isolation)
        if timestamp == OffsetSpec.LATEST:
            self._require_known_end()
            return OffsetTimestamp(offset=end, leader_epoch=self.leader_epoch)
        found = yield from look_up(self.log, timestamp)
        if timestamp in _STARTS:
            return found
        if found is not None and found.offset >= end:
            self._require_known_end()
            return None
        return found

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """OffsetForLeaderEpoch: the largest known epoch <= ``epoch`` and where it ends; -1 unknown.

        Call ``require_leader`` first.
        """
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    # cleaning

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start of the replicas on brokers that live; -1 where one is not known.

        Raises NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR.
        """
        self.require_leader()
        assert self.state is not None
        others = (i for i in self.state.replicas if i != self._node_id and is_alive(i))
        return min([self.log.log_start_offset, *self._followers.starts(others)])

    def deletion_target(self, offset: int) -> int:
        """Up to where a client may delete; -1 means the high watermark.  Raises KafkaError."""
        self.require_leader()
        target = self.high_watermark if offset == NO_OFFSET else offset
        if not 0 <= target <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records of {self.topic_partition} can be deleted up to offset "
                f"{self.high_watermark}, not {offset}",
            )
        return target

    def delete_records(self, target: int) -> list[Effect]:
        """Move this replica's log start, which is on the disk already."""
        self.deletion_target(target)
        try:
            self.log.advance_log_start(target)
        except _DISK_ERRORS as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self._wake_all()

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start_offset <= self.last_stable_offset
        assert self.last_stable_offset <= self.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        self.producers.check_invariants()

    def _require_online(self) -> None:
        if self.log.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.log.offline))

    def _require_insync_replicas(self) -> None:
        isr, needed = self._insync()
        if isr < needed:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {isr} in-sync replicas, min.insync.replicas asks for "
                f"{needed}",
            )

    def _insync(self) -> tuple[int, int]:
        """Size of the ISR, and how many it must be (never more than there are replicas)."""
        assert self.state is not None
        needed = min(self.config.min_insync_replicas, len(self.state.replicas))
        return len(self.state.isr), needed

    def _readable_end(self, isolation: Isolation) -> int:
        committed = isolation is Isolation.READ_COMMITTED
        return self.last_stable_offset if committed else self.high_watermark

    def _require_known_end(self) -> None:
        # KIP-207: until then "latest" could go back behind what the previous leader answered.
        if self.high_watermark < self._epoch_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark of {self.topic_partition} has not caught up with this epoch",
            )

    def _draft(self, now_ms: int, in_transaction: bool) -> AppendDraft:
        return AppendDraft(
            self.producers,
            self.config,
            end_offset=self.log.log_end_offset,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            in_transaction=in_transaction,
        )

    def _write(self, draft: AppendDraft, now_ms: int) -> list[Appended | KafkaError]:
        effects: tuple[Effect, ...] = ()
        if draft.headers:
            try:
                self.log.append(draft.buffers, draft.headers, now_ms, draft.aborted)
            except _DISK_ERRORS as error:
                failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                return [v if isinstance(v, KafkaError) else failure for _, _, v in draft.verdicts]
            for accepted in draft.accepted:
                self.producers.apply(accepted)
            if draft.ended is not None:
                self.producers.apply_end(draft.ended)
            self._unread_bytes += draft.size
            effects = (*self._promise_flush(now_ms), *self._advance_high_watermark())
            if self.state is not None and len(self.state.replicas) > 1:
                followers = WakeFollowers(topic_partition=self.topic_partition, size=draft.size)
                effects = (*effects, followers)
        return draft.outcomes(
            self._wait_for,
            effects,
            log_start_offset=self.log.log_start_offset,
            flush_owed=self.flush_owed,
        )

    def _wait_for(self, acks: int, end_offset: int) -> AckWait | None:
        if acks == ACKS_NONE:
            return None
        replicated = acks == ACKS_ALL
        if not replicated:
            end_offset = min(end_offset, self._flush_promised)
        if end_offset <= (self.high_watermark if replicated else self.log.recovery_point):
            return None
        return AckWait(end_offset=end_offset, leader_epoch=self.leader_epoch, replicated=replicated)

    def _promise_flush(self, now_ms: int) -> list[Effect]:
        log, config = self.log, self.config
        unflushed = log.log_end_offset - log.recovery_point
        if unflushed >= config.flush_messages or config.flush_ms == 0:
            self._flush_promised = log.log_end_offset
        return self._plan_flush(now_ms)

    def _plan_flush(self, now_ms: int) -> list[Effect]:
        if self.flush_owed or self.log.flush_due(now_ms):
            return [FlushLog(topic_partition=self.topic_partition, at_ms=now_ms)]
        deadline_ms = self.log.flush_deadline_ms
        if deadline_ms is None:
            return []
        return [FlushLog(topic_partition=self.topic_partition, at_ms=deadline_ms)]

    def _own_end(self) -> int:
        """How far this replica's log counts: a record that was promised a flush counts after it."""
        return self.log.recovery_point if self.flush_owed else self.log.log_end_offset

    def _advance_high_watermark(self) -> list[Effect]:
        """The smallest log end of the ISR; stands still while the ISR is too small (KIP-966)."""
        assert self.state is not None
        isr, needed = self._insync()
        if self.log.offline is not None or isr < needed:
            return []
        others = [i for i in self.state.isr if i != self._node_id]
        reached = min([self._own_end(), *self._followers.ends(others)])
        if reached <= self.high_watermark:
            return []
        self.high_watermark = reached
        size, self._unread_bytes = self._unread_bytes, 0
        transactions = self.producers.transactions
        if transactions.unreplicated and transactions.replicate(reached):
            # The whole transaction can be read now, not only what came since the last wake-up.
            size = 0
        return [
            WakeReaders(topic_partition=self.topic_partition, size=size),
            WakeWriters(topic_partition=self.topic_partition),
        ]

    def _wake_all(self) -> list[Effect]:
        return wake_all(self.topic_partition)
