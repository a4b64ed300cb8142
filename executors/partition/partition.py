"""One partition on this broker: the replica with its leader role and its follower role.

Owns: which role the replica has, and what follows from a new role, a flush and a truncation.  A
partition decides and returns effects; the shell carries out the effects and calls back with the
results.  Must not know sockets, threads, clocks or other partitions.

A delayed produce holds a ``RequiredOffset`` per batch: the shell asks ``has_reached`` again after
each ``CompleteDelayedProduces``.  ``Partition`` extends ``Replica``, so that the state of the
replica costs callers no second attribute; ``LeaderRole`` and ``FollowerRole`` are its parts.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import Log, Steps, TieredStart
from sparklog.executors.partition.effects import (
    CompleteDelayedProduces,
    Effect,
    WriteStatistics,
)
from sparklog.executors.partition.follower_role import FollowerRole
from sparklog.executors.partition.isr import IsrState, LiveEpoch
from sparklog.executors.partition.leader_role import LeaderRole
from sparklog.executors.partition.producer_state import ProducerStateManager, TransactionEnd
from sparklog.executors.partition.replica import DISK_ERRORS, Replica
from sparklog.executors.partition.results import (
    Appended,
    EpochEnd,
    FetchPosition,
    IsrProposal,
    RequiredOffset,
    SentBatch,
    Truncated,
)
from sparklog.metadata import PartitionImage
from sparklog.types import NO_BROKER_EPOCH, NO_OFFSET, TopicPartition
from sparklog.wire.records.batch import Buffer

#: Kafka's default of ``replica.lag.time.max.ms``.
_LAG_TIME_MAX_MS = 30_000


def _unknown_epoch(broker_id: int) -> int:
    del broker_id
    return NO_BROKER_EPOCH


class Partition(Replica):
    """One replica that leads or follows; see ``make_leader_or_follower``."""

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
        live_epoch: LiveEpoch = _unknown_epoch,
    ) -> None:
        """``live_epoch`` returns the epoch of a broker that is alive in the cluster image."""
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
        #: The role to take when the truncation has ended.
        self._next_role: tuple[PartitionImage, int] | None = None

    # role

    def make_leader_or_follower(self, state: PartitionImage, now_ms: int) -> list[Effect]:
        """Take the role, ISR and epochs of ``state`` (Kafka's ``makeLeader`` and ``makeFollower``).

        ``state`` comes from the cluster image or from an AlterPartition response; a state older
        than the current one changes nothing.  ``now_ms`` is the time of a monotonic clock, as in
        all calls about followers.
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
        self.log.tiered_end_offset = 0  # another leader may find that the bucket ends earlier
        if self.log.offline is None:
            if self.is_leader:
                self._leader.make_leader(state, now_ms)
            else:
                self._follower.make_follower()
        effects = self._leader.advance_high_watermark() if self.is_leader else []
        return [*effects, *self.complete_all_delayed(), *self._follower.resume()]

    def drop_role(self) -> list[Effect]:
        """Drop the role: the partition serves nothing until it gets another role."""
        self.state = self._next_role = None
        self.log.tiered_end_offset = 0
        self._leader.stop()
        return self.complete_all_delayed()

    def configure(self, config: TopicConfig, now_ms: int) -> list[Effect]:
        """Use the new topic settings from now on."""
        if self.config.remote_storage_enable and not config.remote_storage_enable:
            self.log.disable_remote()
        self.config = config
        self.log.reconfigure(config)
        effects: list[Effect] = []
        if self.is_leader and self.state is not None:
            effects += self._leader.commit_isr(self.state)
        return [*effects, *self.plan_flush(now_ms)]

    # append

    def append_as_leader(
        self, records: Buffer | None, *, acks: int, now_ms: int, verified: bool = False
    ) -> Appended:
        """Append one record batch of a client.

        Args:
            records: the batch.
            acks: 0, 1 or -1.
            now_ms: the wall clock.
            verified: the transaction coordinator has confirmed that this partition belongs to the
                producer's transaction (KIP-890).  Otherwise a transactional batch is refused with
                UnverifiedTransactionError, unless its transaction is open here.

        Raises KafkaError, and then nothing has changed.
        """
        (outcome,) = self.append_all_as_leader([(records, acks)], now_ms=now_ms, verified=verified)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def append_all_as_leader(
        self, sent: Sequence[SentBatch], *, now_ms: int, verified: bool = False
    ) -> list[Appended | KafkaError]:
        """Append batches of clients in their order, with one write per segment.

        Each batch gets the outcome it would get alone, except that a failed write fails all of
        them.  A KafkaError says that nothing has changed for that batch.  The outcome of the last
        written batch carries the effects.  ``verified``: see ``append_as_leader``.
        """
        return self._leader.append_all(sent, now_ms=now_ms, verified=verified)

    def append_as_coordinator(self, records: Buffer, *, now_ms: int) -> Appended:
        """Append a batch of a transaction that a coordinator of this broker has written.

        The batch has the producer id and epoch of the transaction and no sequence, so it is no
        repetition of another one.  The response waits as for acks=all; it may be a refusal, because
        of records that are not replicated yet.

        Raises KafkaError, and then nothing has changed: NOT_ENOUGH_REPLICAS,
        INVALID_PRODUCER_EPOCH, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR,
        NOT_LEADER_OR_FOLLOWER.
        """
        return self._leader.append_as_coordinator(records, now_ms=now_ms)

    def end_transaction(self, end: TransactionEnd, *, now_ms: int) -> Appended:
        """Append the marker of a transaction coordinator; the response waits as for acks=all.

        Raises KafkaError, and then nothing has changed: NOT_ENOUGH_REPLICAS,
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        return self._leader.end_transaction(end, now_ms=now_ms)

    def end_hanging_transactions(
        self, aborted: Container[tuple[int, int]], *, now_ms: int
    ) -> Iterator[Appended]:
        """Append the markers of ``hanging_transactions``, before clients append anything.

        A batch of the same producer would become a part of such a transaction.  So clients append
        nothing after an error, until another call has appended the rest.

        This needs no in-sync followers: the transactions ended long ago.  ``aborted`` are the
        producer id and the first offset of those that were aborted; the others were committed.
        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        return self._leader.end_hanging_transactions(aborted, now_ms=now_ms)

    def has_reached(self, required: RequiredOffset) -> bool:
        """Whether the offset is reached that a response waits for.

        Raises KafkaError when this leader will not reach it.
        """
        return self._leader.has_reached(required)

    def flushed(self, now_ms: int) -> list[Effect]:
        """A flush has ended: the recovery point has advanced, or the log has gone offline."""
        if self.log.offline is not None:
            return self.complete_all_delayed()
        if self.log.truncating:
            return []
        effects = self._leader.advance_high_watermark() if self.is_leader else []
        completes_produces = any(isinstance(effect, CompleteDelayedProduces) for effect in effects)
        if not completes_produces:
            effects.append(CompleteDelayedProduces(topic_partition=self.topic_partition))
        if self.log.statistics.pending:
            effects.append(WriteStatistics(topic_partition=self.topic_partition))
        if self.flush_promised != NO_OFFSET:
            effects += self._follower.resume()
        return [*effects, *self.plan_flush(now_ms)]

    # follow

    def fetch_position(self) -> FetchPosition | None:
        """The position to fetch from; None while this replica must not fetch: without a leader,
        during a truncation, offline, or before a promised flush.  ``ResumeFetching`` announces the
        next position."""
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
        """Take the leader's response to a fetch at ``fetch_offset``, with or without records.

        A response changes nothing after a newer role or a truncation.  Raises KafkaError:
        CORRUPT_MESSAGE and INVALID_RECORD for records that do not continue this log, and
        KAFKA_STORAGE_ERROR; then some of the batches may be in the log, so call ``plan_flush``.
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
        """Begin to truncate this log to where it diverges from the log of the leader.

        Returns False when there is nothing to truncate.  Otherwise write the broker's checkpoint,
        then run ``truncate`` or call ``abandon_truncation``.  Until then nothing writes to the log,
        and new roles wait.
        """
        return self._follower.begin_truncation(diverging, leader_epoch=leader_epoch)

    def begin_full_truncation(self, offset: int, *, leader_epoch: int) -> bool:
        """Begin to drop this whole log: the leader's log starts at ``offset``, above its end.

        See ``begin_truncation``.
        """
        return self._follower.begin_full_truncation(offset, leader_epoch=leader_epoch)

    def begin_start_in_tier(self, start: TieredStart, *, leader_epoch: int) -> bool:
        """Begin to drop this whole log: it starts anew, because the leader has the earlier records
        only in the bucket (KIP-405).

        See ``begin_truncation``.
        """
        return self._follower.begin_start_in_tier(start, leader_epoch=leader_epoch)

    def begin_recovery(self, start: TieredStart) -> bool:
        """Begin to start this empty log where the records in the bucket end, before a first role.

        Returns False if the log is not empty any more, or the replica has a role.  See
        ``begin_truncation``.
        """
        return self._follower.begin_recovery(start)

    def begin_torn_write_truncation(self, leader_epoch: int) -> bool:
        """Begin to drop batches whose leader epoch is above ``leader_epoch``, before a first role.

        No checksum covers the leader epoch of a batch, so a torn batch may have any epoch after
        recovery.  See ``begin_truncation``.
        """
        return self._follower.begin_torn_write_truncation(leader_epoch)

    def truncate(self, now_ms: int) -> Steps[Truncated]:
        """Truncate as begun, in steps; no flush may be running.  Raises KAFKA_STORAGE_ERROR."""
        try:
            truncated = yield from self._follower.truncate(now_ms)
        finally:
            role = self._end_truncation()
        return truncated._replace(effects=(*self.complete_all_delayed(), *truncated.effects, *role))

    def abandon_truncation(self, now_ms: int) -> list[Effect]:
        """Give the truncation up: its checkpoint failed.  Flushes are planned again."""
        self.log.end_truncation()
        return [*self._end_truncation(), *self.plan_flush(now_ms)]

    def _end_truncation(self) -> list[Effect]:
        role, self._next_role = self._next_role, None
        taken = [] if role is None else self.make_leader_or_follower(*role)
        return taken or self._follower.resume()

    # followers

    def update_follower_fetch_state(
        self,
        replica_id: int,
        offset: int,
        log_start_offset: int = NO_OFFSET,
        *,
        broker_epoch: int = NO_BROKER_EPOCH,
        now_ms: int = 0,
    ) -> list[Effect]:
        """Take from a follower's fetch where the follower's log ends and starts.

        Do not call this for a follower whose log diverges.  ``broker_epoch`` is the epoch of the
        process that fetches.
        """
        return self._leader.update_follower_fetch_state(
            replica_id, offset, log_start_offset, broker_epoch=broker_epoch, now_ms=now_ms
        )

    def followers_with(self, offset: int) -> list[tuple[int, int]]:
        """In-sync followers that have ``offset`` or fetch it next, with the ends of their logs."""
        return self._leader.followers_with(offset)

    def maybe_shrink_or_expand_isr(self, now_ms: int) -> list[Effect]:
        """Propose to shrink the ISR by lagging followers, and to expand it by caught-up followers.

        The high watermark no longer waits for followers that have stopped fetching.
        """
        return self._leader.maybe_shrink_or_expand_isr(now_ms)

    def isr_proposal(self) -> IsrProposal | None:
        """The pending proposal for the controller; the same until it is answered or outdated."""
        return self._leader.isr_proposal

    def isr_answered(
        self,
        proposal: IsrProposal,
        error: ErrorCode,
        state: PartitionImage | None,
        now_ms: int,
    ) -> list[Effect]:
        """Take the controller's answer: the new state of the partition, or an error.

        The image brings the same state, before or after the answer.  A smaller ISR is taken from
        the image alone: whether it may acknowledge depends on min.insync.replicas, and an earlier
        change of that setting may still be on its way here.
        """
        effects: list[Effect] = []
        if error is not ErrorCode.NONE:
            self._leader.isr_refused(proposal, error, now_ms)
        elif state is not None and self.state and set(self.state.isr) <= set(state.isr):
            effects += self.make_leader_or_follower(state, now_ms)
        if self.is_leader:
            effects += self._leader.advance_high_watermark()
        return [*effects, *self.maybe_shrink_or_expand_isr(now_ms)]

    # DeleteRecords

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """The smallest log start of the replicas on live brokers; -1 if a log start is unknown.

        Raises NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR.
        """
        return self._leader.low_watermark(is_alive)

    def deletion_target(self, offset: int) -> int:
        """The offset to delete up to; -1 asks for the high watermark.  Raises KafkaError."""
        self.require_leader()
        if not self.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic_partition} cannot be deleted, because its cleanup.policy "
                "is compact without delete; write records without values for their keys",
            )
        return self._checked_target(offset)

    def _checked_target(self, offset: int) -> int:
        target = self.high_watermark if offset == NO_OFFSET else offset
        if not 0 <= target <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records of {self.topic_partition} can be deleted up to offset "
                f"{self.high_watermark}, not {offset}",
            )
        return target

    def delete_records(self, target: int) -> list[Effect]:
        """Advance this replica's log start to ``target``, which the checkpoint already holds."""
        self.require_leader()
        self._checked_target(target)
        try:
            self.log.advance_log_start(target)
        except DISK_ERRORS as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return self.complete_all_delayed()

    def check_invariants(self) -> None:
        log = self.log
        assert log.log_start_offset <= self.last_stable_offset
        assert self.last_stable_offset <= self.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        self._leader.check_invariants()
        self.producers.check_invariants()
