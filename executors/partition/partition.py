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
from sparklog.executors.partition.append_draft import AppendDraft
from sparklog.executors.partition.follower_role import FollowerRole
from sparklog.executors.partition.isr import IsrState, LiveEpoch
from sparklog.executors.partition.outcomes import (
    ACKS_ALL,
    ACKS_NONE,
    AckWait,
    Appended,
    Effect,
    EpochEnd,
    FetchPosition,
    IsrProposal,
    ProposeIsr,
    SentBatch,
    Truncated,
    WakeDeleters,
    WakeFollowers,
    WakeWriters,
    WriteStatistics,
)
from sparklog.executors.partition.producer_state import ProducerStateManager, TransactionEnd
from sparklog.executors.partition.replica import DISK_ERRORS
from sparklog.executors.partition.replica_reads import ReadableReplica
from sparklog.metadata import PartitionImage
from sparklog.types import NO_BROKER_EPOCH, NO_OFFSET, TopicPartition
from sparklog.wire.records.batch import Buffer

#: Kafka's default of ``replica.lag.time.max.ms``.
_LAG_TIME_MAX_MS = 30_000


def _nobody_knows(broker_id: int) -> int:
    del broker_id
    return NO_BROKER_EPOCH


class Partition(ReadableReplica):
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
        self._insync = IsrState(node_id, lag_time_max_ms, live_epoch)
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
            return self._take_isr(state)
        self._insync.stop()
        if self.log.offline is None:
            if self.is_leader:
                self.epoch_start_offset = self.log.log_end_offset
                self.log.assign_leader_epoch(state.leader_epoch)
                self._insync.lead(state, self.config.min_insync_replicas, now_ms)
            else:
                self._follower.begin()
        effects = self._advance_high_watermark() if self.is_leader else []
        return [*effects, *self.wake_all(), *self._follower.resume()]

    def resign(self) -> list[Effect]:
        """Forget the role: nothing is served until the next ``take_role``."""
        self.state = self._next_role = None
        self._insync.stop()
        return self.wake_all()

    def configure(self, config: TopicConfig, now_ms: int) -> list[Effect]:
        """Settings changed while the partition is open."""
        self.config = config
        self.log.reconfigure(config)
        effects: list[Effect] = []
        if self.is_leader and self.state is not None:
            effects += self._take_isr(self.state)
        return [*effects, *self.plan_flush(now_ms)]

    def _take_isr(self, state: PartitionImage) -> list[Effect]:
        """The same leader in the same epoch, but the ISR or the number wanted may be another."""
        insync = self._insync
        if not self.is_leader:
            return []
        refused = insync.too_few
        insync.commit(state, self.config.min_insync_replicas)
        effects = self._advance_high_watermark()
        if insync.too_few and not refused:
            effects.append(WakeWriters(topic_partition=self.topic_partition))
        return effects

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
                if acks == ACKS_ALL and self._insync.too_few:
                    raise self._not_enough_replicas()
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
        if self._insync.too_few:
            raise self._not_enough_replicas()
        draft = self._draft(now_ms, in_transaction=True)
        draft.take_end(end)
        (outcome,) = self._write(draft, now_ms)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def is_settled(self, wait: AckWait) -> bool:
        """Whether what an answer waits for has come.  Raises KafkaError when it cannot come."""
        self.require_online()
        if self.leader_epoch != wait.leader_epoch or not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic_partition} moved before the append was safe",
            )
        if not wait.replicated:
            return self.log.recovery_point >= wait.end_offset
        if self.high_watermark < wait.end_offset and self._insync.too_few:
            # The high watermark stands still now; who asked must not take that for a slow broker.
            raise self._not_enough_replicas(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return self.high_watermark >= wait.end_offset

    def flushed(self, now_ms: int) -> list[Effect]:
        """A flush ended: the recovery point has moved, or the log has gone offline."""
        if self.log.offline is not None:
            return self.wake_all()
        if self.log.truncating:
            return []
        effects = self._advance_high_watermark() if self.is_leader else []
        woken = any(isinstance(effect, WakeWriters) for effect in effects)
        if not woken:
            effects.append(WakeWriters(topic_partition=self.topic_partition))
        if self.log.statistics.owed:
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
        if not self.is_leader:
            return []
        end = self.log.log_end_offset
        started = self._insync.record(
            replica_id,
            offset,
            log_start_offset,
            broker_epoch=broker_epoch,
            leader_end=end,
            now_ms=now_ms,
        )
        effects = self._advance_high_watermark()
        if started:
            effects.append(WakeDeleters(topic_partition=self.topic_partition))
        if self._insync.consider_joining(replica_id, self._joining_end, now_ms):
            effects.append(ProposeIsr(topic_partition=self.topic_partition))
        return effects

    def followers_with(self, offset: int) -> list[tuple[int, int]]:
        """In-sync followers that have ``offset``, or will have it next, and where each one ends."""
        isr = self.state.isr if self.state else ()
        return [
            (replica_id, follower.end_offset)
            for replica_id, follower in self._insync.followers.items()
            if replica_id in isr and follower.log_start_offset <= offset <= follower.end_offset
        ]

    def check_lag(self, now_ms: int) -> list[Effect]:
        """Who may have to leave the ISR, or may join it because its broker is alive again, and
        who is no longer waited for."""
        if not self.is_leader or self.log.offline is not None:
            return []
        end = self.log.log_end_offset
        proposes = self._insync.consider_all(end, self._joining_end, now_ms)
        # Who was about to join may have been waited for in vain; no fetch and no append tells it.
        effects = self._advance_high_watermark()
        if proposes:
            effects.append(ProposeIsr(topic_partition=self.topic_partition))
        return effects

    def isr_proposal(self) -> IsrProposal | None:
        """What to ask the controller for; the same again until it is answered or overtaken."""
        return self._insync.proposal

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
            self._insync.refused(proposal, error, now_ms)
        elif state is not None and self.state and set(self.state.isr) <= set(state.isr):
            effects += self.take_role(state, now_ms)
        if self.is_leader:
            effects += self._advance_high_watermark()
        return [*effects, *self.check_lag(now_ms)]

    # cleaning

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start of the replicas on brokers that live; -1 where one is not known.

        Raises NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR.
        """
        self.require_leader()
        assert self.state is not None
        others = (i for i in self.state.replicas if i != self.node_id and is_alive(i))
        return min([self.log.log_start_offset, *self._insync.starts(others)])

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
        self._insync.check_invariants()
        self.producers.check_invariants()

    @property
    def _joining_end(self) -> int:
        """What a follower must have to join: all that is committed, and the begin of this epoch."""
        return max(self.high_watermark, self.epoch_start_offset)

    def _not_enough_replicas(self, code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> KafkaError:
        return KafkaError(
            code,
            f"{self.topic_partition} has {self._insync.size} in-sync replicas, "
            f"min.insync.replicas asks for {self._insync.needed}",
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
            except DISK_ERRORS as error:
                failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                return [v if isinstance(v, KafkaError) else failure for _, _, v in draft.verdicts]
            for accepted in draft.accepted:
                self.producers.apply(accepted)
            if draft.ended is not None:
                self.producers.apply_end(draft.ended)
            self.appended(draft.size)
            effects = (*self.promise_flush(now_ms), *self._advance_high_watermark())
            if self._insync.has_followers:
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

    def _advance_high_watermark(self) -> list[Effect]:
        """The smallest log end of the ISR; stands still while the ISR is too small (KIP-966)."""
        insync = self._insync
        if insync.too_few or self.log.offline is not None:
            return []
        reached = self.own_end
        if insync.has_followers:
            reached = insync.bound(reached, self.log.log_end_offset)
        return self.move_high_watermark(reached)
