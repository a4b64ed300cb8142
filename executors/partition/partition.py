"""One replica of one partition: its role, the order of an append, and what readers may see.

Owns: what follows from a role, an append, a fetch and a flush, and the decision what an
acknowledgement waits for.  Decides and hands back effects; a shell carries them out and feeds
results back.  Must not know sockets, threads, clocks or other partitions.

A parked acknowledgement is an ``AckWait``: the shell asks ``is_settled`` again after a
``WakeWriters``.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import Log, Steps
from sparklog.executors.partition.effects import (
    Effect,
    WakeWriters,
    WriteStatistics,
)
from sparklog.executors.partition.follower_role import FollowerRole
from sparklog.executors.partition.isr import IsrState, LiveEpoch
from sparklog.executors.partition.leader_role import LeaderRole
from sparklog.executors.partition.producer_state import ProducerStateManager, TransactionEnd
from sparklog.executors.partition.replica import DISK_ERRORS, Replica
from sparklog.executors.partition.results import (
    AckWait,
    Appended,
    EpochEnd,
    FetchPosition,
    IsrProposal,
    SentBatch,
    Truncated,
)
from sparklog.metadata import PartitionImage
from sparklog.types import NO_BROKER_EPOCH, NO_OFFSET, TopicPartition
from sparklog.wire.records.batch import Buffer

#: Kafka's default of ``replica.lag.time.max.ms``.
_LAG_TIME_MAX_MS = 30_000


def _nobody_knows(broker_id: int) -> int:
    del broker_id
    return NO_BROKER_EPOCH


class Partition(Replica):
    """One replica, leading or following as ``take_role`` says."""

    def __init__(
        self,
        *,
        topic_partition: TopicPartition,
        topic_id: UUID,
        node_id: int,
        log: Log,
        producers: ProducerStateManager,
        config: TopicConfig,
        lag_time_max_ms: int = _LAG_TIME_MAX_MS,
        live_epoch: LiveEpoch = _nobody_knows,
    ) -> None:
        """``live_epoch``: of the brokers that the cluster image has as alive."""
        super().__init__(
            topic_partition=topic_partition,
            topic_id=topic_id,
            node_id=node_id,
            log=log,
            producers=producers,
            config=config,
        )
        self._leader = LeaderRole(self, IsrState(node_id, lag_time_max_ms, live_epoch))
        self._follower = FollowerRole(self)
        #: A role that came while the log was being truncated.
        self._next_role: tuple[PartitionImage, int] | None = None

    # role

    def take_role(self, state: PartitionImage, now_ms: int) -> list[Effect]:
        """Follow the cluster image, or the controller's answer about the ISR.

        A state that is older than the one held changes nothing.  ``now_ms``, here and where it is
        about followers, is of a clock that does not jump.
        """
        if self.log.truncating:
            waiting = self._next_role
            if waiting is None or state.partition_epoch >= waiting[0].partition_epoch:
                self._next_role = state, now_ms
            return []
        held = self.state
        if held is not None and state.partition_epoch < held.partition_epoch:
            return []
        self.state = state
        changed = held is None or (held.leader, held.leader_epoch) != (
            state.leader,
            state.leader_epoch,
        )
        if not changed:
            return self._leader.commit_isr(state) if self.is_leader else []
        self._leader.stop()
        if self.log.offline is None:
            if self.is_leader:
                self._leader.begin(state, now_ms)
            else:
                self._follower.begin()
        effects = self._leader.advance_high_watermark() if self.is_leader else []
        return [*effects, *self.wake_all(), *self._follower.resume()]

    def resign(self) -> list[Effect]:
        """Forget the role: nothing is served until the next ``take_role``."""
        self.state = self._next_role = None
        self._leader.stop()
        return self.wake_all()

    def configure(self, config: TopicConfig, now_ms: int) -> list[Effect]:
        """Settings changed while the partition is open."""
        self.config = config
        self.log.reconfigure(config)
        effects: list[Effect] = []
        if self.is_leader and self.state is not None:
            effects += self._leader.commit_isr(self.state)
        return [*effects, *self.plan_flush(now_ms)]

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
        return self._leader.append_all(sent, now_ms=now_ms, in_transaction=in_transaction)

    def end_transaction(self, end: TransactionEnd, *, now_ms: int) -> Appended:
        """Append the marker that a coordinator asks for; the answer waits as one to acks=all.

        Raises KafkaError, and nothing was changed: NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        return self._leader.end_transaction(end, now_ms=now_ms)

    def is_settled(self, wait: AckWait) -> bool:
        """Whether what an answer waits for has come.  Raises KafkaError when it cannot come."""
        return self._leader.is_settled(wait)

    def flushed(self, now_ms: int) -> list[Effect]:
        """A flush ended: the recovery point has moved, or the log has gone offline."""
        if self.log.offline is not None:
            return self.wake_all()
        if self.log.truncating:
            return []
        effects = self._leader.advance_high_watermark() if self.is_leader else []
        woken = any(isinstance(effect, WakeWriters) for effect in effects)
        if not woken:
            effects.append(WakeWriters(topic_partition=self.topic_partition))
        if self.log.statistics.pending:
            effects.append(WriteStatistics(topic_partition=self.topic_partition))
        if self.flush_promised != NO_OFFSET:
            effects += self._follower.resume()
        return [*effects, *self.plan_flush(now_ms)]

    # follow

    def fetch_position(self) -> FetchPosition | None:
        """From where this follower fetches; None while it must not: no leader, being truncated,
        offline, or waiting for a flush.  ``ResumeFetching`` tells when there is one again."""
        return self._follower.position

    def append_as_follower(
        self,
        records: Buffer,
        *,
        fetch_offset: int,
        leader_epoch: int,
        high_watermark: int,
        log_start_offset: int,
        now_ms: int,
    ) -> list[Effect]:
        """Take over the leader's answer to a fetch at ``fetch_offset``, with records or without.

        What was overtaken by another role or a truncation changes nothing.  Raises KafkaError:
        CORRUPT_MESSAGE and INVALID_RECORD for what is not the continuation of this log, and
        KAFKA_STORAGE_ERROR, after which some of the batches may be in the log; then ``plan_flush``.
        """
        return self._follower.append(
            records,
            fetch_offset=fetch_offset,
            leader_epoch=leader_epoch,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        )

    def begin_truncation(self, diverging: EpochEnd, *, leader_epoch: int) -> bool:
        """The leader of that epoch says where this log leaves its own: cut it there.

        False: there is nothing to cut.  Else the broker's checkpoint is written, then ``truncate``
        run or ``abandon_truncation`` called.  Until then the log stands still and roles wait.
        """
        return self._follower.begin_truncation(diverging, leader_epoch=leader_epoch)

    def begin_start_over(self, offset: int, *, leader_epoch: int) -> bool:
        """The leader of that epoch starts at ``offset``, and this log is elsewhere: drop it all.

        See ``begin_truncation``.
        """
        return self._follower.begin_start_over(offset, leader_epoch=leader_epoch)

    def begin_repair(self, leader_epoch: int) -> bool:
        """Before a role is taken: what recovery left is of a later epoch than there ever was.

        No checksum covers a batch's epoch, so a torn one may have any.  See ``begin_truncation``.
        """
        return self._follower.begin_repair(leader_epoch)

    def truncate(self, now_ms: int) -> Steps[Truncated]:
        """Do what was begun, as steps; no flush may be under way.  Raises KAFKA_STORAGE_ERROR."""
        try:
            truncated = yield from self._follower.truncate(now_ms)
        finally:
            role = self._end_truncation()
        return truncated._replace(effects=(*self.wake_all(), *truncated.effects, *role))

    def abandon_truncation(self, now_ms: int) -> list[Effect]:
        """It could not even be written down; flushes that were planned are planned again."""
        self.log.end_truncation()
        return [*self._end_truncation(), *self.plan_flush(now_ms)]

    def _end_truncation(self) -> list[Effect]:
        role, self._next_role = self._next_role, None
        taken = [] if role is None else self.take_role(*role)
        return taken or self._follower.resume()

    # followers, as the leader sees them

    def record_follower(
        self,
        replica_id: int,
        offset: int,
        log_start_offset: int = NO_OFFSET,
        *,
        broker_epoch: int = NO_BROKER_EPOCH,
        now_ms: int = 0,
    ) -> list[Effect]:
        """A follower's fetch says how far its log reaches, and where it starts.

        Not to be told of one whose log diverges.  ``broker_epoch``: of the process that fetches.
        """
        return self._leader.record_follower(
            replica_id, offset, log_start_offset, broker_epoch=broker_epoch, now_ms=now_ms
        )

    def followers_with(self, offset: int) -> list[tuple[int, int]]:
        """In-sync followers that have ``offset``, or will have it next, and where each one ends."""
        return self._leader.followers_with(offset)

    def check_lag(self, now_ms: int) -> list[Effect]:
        """Who may have to leave the ISR, or may join it because its broker is alive again, and
        who is no longer waited for."""
        return self._leader.check_lag(now_ms)

    def isr_proposal(self) -> IsrProposal | None:
        """What to ask the controller for; the same again until it is answered or overtaken."""
        return self._leader.isr_proposal

    def isr_answered(
        self,
        proposal: IsrProposal,
        error: ErrorCode,
        state: PartitionImage | None,
        now_ms: int,
    ) -> list[Effect]:
        """The controller has answered: with the partition as it is now, or with an error.

        The image may have told before, or will tell.  A smaller ISR is taken from the image alone:
        whether it may acknowledge depends on min.insync.replicas, and a change of that which the
        controller has decided before may be on its way here still.
        """
        effects: list[Effect] = []
        if error is not ErrorCode.NONE:
            self._leader.isr_refused(proposal, error, now_ms)
        elif state is not None and self.state and set(self.state.isr) <= set(state.isr):
            effects += self.take_role(state, now_ms)
        if self.is_leader:
            effects += self._leader.advance_high_watermark()
        return [*effects, *self.check_lag(now_ms)]

    # cleaning

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start of the replicas on brokers that live; -1 where one is not known.

        Raises NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR.
        """
        return self._leader.low_watermark(is_alive)

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
        except DISK_ERRORS as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self.wake_all()

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start_offset <= self.last_stable_offset
        assert self.last_stable_offset <= self.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        self._leader.check_invariants()
        self.producers.check_invariants()
