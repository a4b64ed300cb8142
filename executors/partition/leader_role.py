"""The leader's part of a replica: appends, acknowledgements, the ISR and the high watermark.

Owns: the order of an append, what a response waits for, what the fetches of followers say, and when
the high watermark advances.  Must not know requests, sockets, threads, clocks, or how the replica
becomes the leader.
"""

from collections.abc import Callable, Container, Iterator, Sequence

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.partition.append_draft import AppendDraft
from sparklog.executors.partition.effects import (
    CompleteDelayedDeleteRecords,
    CompleteDelayedFollowerFetches,
    CompleteDelayedProduces,
    Effect,
    SubmitAlterPartition,
)
from sparklog.executors.partition.isr import IsrState, JoiningLog
from sparklog.executors.partition.producer_state import TransactionEnd
from sparklog.executors.partition.replica import DISK_ERRORS, Replica
from sparklog.executors.partition.results import (
    ACKS_ALL,
    ACKS_NONE,
    Appended,
    IsrProposal,
    RequiredOffset,
    SentBatch,
)
from sparklog.metadata import PartitionImage
from sparklog.types import NO_OFFSET
from sparklog.wire.records.batch import Buffer
from sparklog.wire.records.control import ControlType, EndTxnMarker


class LeaderRole:
    """The leader's part of one replica; the ISR is empty while that replica does not lead."""

    __slots__ = ("_isr", "_markers_due", "_markers_end", "_replica")

    def __init__(self, replica: Replica, isr: IsrState) -> None:
        self._replica = replica
        self._isr = isr
        #: The end of the markers of hanging transactions, in this leader epoch.
        self._markers_end = NO_OFFSET
        #: Whether some of these markers were not written yet.
        self._markers_due = False

    # role

    def make_leader(self, state: PartitionImage, now_ms: int) -> None:
        """Begin a leader epoch at the end of the log (``Partition.makeLeader``)."""
        replica, log = self._replica, self._replica.log
        replica.epoch_start_offset = log.log_end_offset
        self._markers_end, self._markers_due = NO_OFFSET, False
        log.assign_leader_epoch(state.leader_epoch)
        self._isr.lead(state, replica.config.min_insync_replicas, now_ms)

    def stop(self) -> None:
        """End the leader epoch."""
        self._isr.stop()

    def commit_isr(self, state: PartitionImage) -> list[Effect]:
        """Take a new ISR, or a new ``min.insync.replicas``, in the same leader epoch."""
        replica, isr = self._replica, self._isr
        was_under_min_isr = isr.under_min_isr
        isr.commit(state, replica.config.min_insync_replicas)
        effects = self.advance_high_watermark()
        if isr.under_min_isr and not was_under_min_isr:
            effects.append(CompleteDelayedProduces(topic_partition=replica.topic_partition))
        return effects

    # append

    def append_all(
        self, sent: Sequence[SentBatch], *, now_ms: int, verified: bool
    ) -> list[Appended | KafkaError]:
        """See ``Partition.append_all_as_leader``."""
        try:
            self._replica.require_leader()
        except KafkaError as refusal:
            return [refusal] * len(sent)
        if self._markers_due:
            return [self._markers_missing()] * len(sent)
        outcomes: list[Appended | KafkaError] = []
        draft = self._draft(now_ms, verified)
        for records, acks in sent:
            if records is not None and not draft.has_room(len(records)):
                outcomes += self._write(draft, now_ms)
                draft = self._draft(now_ms, verified)
            if acks == ACKS_ALL and self._isr.under_min_isr:
                draft.refuse(self._not_enough_replicas())
            else:
                draft.take(records, acks)
        return outcomes + self._write(draft, now_ms)

    def append_as_coordinator(self, records: Buffer, *, now_ms: int) -> Appended:
        """See ``Partition.append_as_coordinator``."""
        draft = self._draft_for_coordinator(now_ms)
        draft.take_from_coordinator(records)
        return self._write_alone(draft, now_ms)

    def end_transaction(self, end: TransactionEnd, *, now_ms: int) -> Appended:
        """See ``Partition.end_transaction``."""
        draft = self._draft_for_coordinator(now_ms)
        draft.take_end(end)
        return self._write_alone(draft, now_ms)

    def end_hanging_transactions(
        self, aborted: Container[tuple[int, int]], *, now_ms: int
    ) -> Iterator[Appended]:
        """See ``Partition.end_hanging_transactions``."""
        replica = self._replica
        self._markers_due = True
        for first_offset, producer_id in replica.hanging_transactions.items():
            known = replica.producers.entries[producer_id]
            is_aborted = (producer_id, first_offset) in aborted
            end = TransactionEnd(
                producer_id=producer_id,
                producer_epoch=known.producer_epoch,
                marker=EndTxnMarker(
                    control_type=ControlType.ABORT if is_aborted else ControlType.COMMIT,
                    coordinator_epoch=max(known.coordinator_epoch, 0),
                ),
            )
            draft = self._draft(now_ms, verified=True)
            draft.take_end(end)
            appended = self._write_alone(draft, now_ms)
            self._markers_end = replica.log.log_end_offset
            yield appended
        self._markers_due = False

    def has_reached(self, required: RequiredOffset) -> bool:
        """See ``Partition.has_reached``."""
        replica = self._replica
        replica.require_online()
        if replica.leader_epoch != required.leader_epoch or not replica.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{replica.topic_partition} moved before the append was acknowledged",
            )
        if not required.committed:
            return replica.log.recovery_point >= required.offset
        if replica.high_watermark < required.offset and self._isr.under_min_isr:
            # The high watermark stands still now: the client must not take that for a slow broker.
            raise self._not_enough_replicas(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return replica.high_watermark >= required.offset

    # followers

    def update_follower_fetch_state(
        self,
        replica_id: int,
        offset: int,
        log_start_offset: int,
        *,
        broker_epoch: int,
        now_ms: int,
    ) -> list[Effect]:
        """See ``Partition.update_follower_fetch_state``."""
        replica, isr = self._replica, self._isr
        if not replica.is_leader:
            return []
        log_start_moved = isr.update_fetch_state(
            replica_id,
            offset,
            log_start_offset,
            broker_epoch=broker_epoch,
            leader_end=replica.log.log_end_offset,
            now_ms=now_ms,
        )
        effects = self.advance_high_watermark()
        if log_start_moved:
            effects.append(CompleteDelayedDeleteRecords(topic_partition=replica.topic_partition))
        if isr.maybe_expand_isr(replica_id, self._joining_log, now_ms):
            effects.append(SubmitAlterPartition(topic_partition=replica.topic_partition))
        return effects

    def followers_with(self, offset: int) -> list[tuple[int, int]]:
        """See ``Partition.followers_with``."""
        state = self._replica.state
        isr = state.isr if state else ()
        return [
            (replica_id, follower.log_end_offset)
            for replica_id, follower in self._isr.remote_replicas.items()
            if replica_id in isr and follower.log_start_offset <= offset <= follower.log_end_offset
        ]

    def maybe_shrink_or_expand_isr(self, now_ms: int) -> list[Effect]:
        """See ``Partition.maybe_shrink_or_expand_isr``."""
        replica = self._replica
        if not replica.is_leader or replica.log.offline is not None:
            return []
        end = replica.log.log_end_offset
        proposes = self._isr.maybe_shrink_or_expand_isr(end, self._joining_log, now_ms)
        # The high watermark may have waited for a follower that was about to join and has stopped
        # fetching; then no fetch and no append moves it.
        effects = self.advance_high_watermark()
        if proposes:
            effects.append(SubmitAlterPartition(topic_partition=replica.topic_partition))
        return effects

    @property
    def isr_proposal(self) -> IsrProposal | None:
        """See ``Partition.isr_proposal``."""
        return self._isr.proposal

    def isr_refused(self, proposal: IsrProposal, error: ErrorCode, now_ms: int) -> None:
        """Take an error of the controller as the answer to a proposal."""
        self._isr.refused(proposal, error, now_ms)

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """See ``Partition.low_watermark``."""
        replica = self._replica
        replica.require_leader()
        assert replica.state is not None
        others = (i for i in replica.state.replicas if i != replica.node_id and is_alive(i))
        return min([replica.log.log_start_offset, *self._isr.log_start_offsets(others)])

    # high watermark

    def advance_high_watermark(self) -> list[Effect]:
        """Advance to the smallest log end of the maximal ISR; not while under min ISR (KIP-966).

        Call this only while the replica leads.
        """
        replica, isr = self._replica, self._isr
        if isr.under_min_isr or replica.log.offline is not None:
            return []
        reached = replica.own_end
        if isr.has_remote_replicas:
            reached = isr.replicated_end(reached, replica.log.log_end_offset)
        return replica.move_high_watermark(reached)

    def check_invariants(self) -> None:
        self._isr.check_invariants()

    @property
    def _joining_log(self) -> JoiningLog:
        """What a follower must have to join the ISR, here with the markers that are appended at the
        start of this leader epoch."""
        replica = self._replica
        least_end = max(replica.high_watermark, replica.epoch_start_offset, self._markers_end)
        return JoiningLog(least_end, replica.log.log_start_offset)

    def _markers_missing(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self._replica.topic_partition} takes no records before the disk takes the markers "
            "of transactions that ended before its log was lost",
        )

    def _not_enough_replicas(self, code: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> KafkaError:
        return KafkaError(
            code,
            f"{self._replica.topic_partition} has {self._isr.size} in-sync replicas, "
            f"min.insync.replicas asks for {self._isr.effective_min_isr}",
        )

    def _draft(self, now_ms: int, verified: bool) -> AppendDraft:
        replica = self._replica
        return AppendDraft(
            replica.producers,
            replica.config,
            end_offset=replica.log.log_end_offset,
            leader_epoch=replica.leader_epoch,
            now_ms=now_ms,
            verified=verified,
        )

    def _draft_for_coordinator(self, now_ms: int) -> AppendDraft:
        """A draft for one batch with acks=all.  Raises KafkaError if none is taken now."""
        self._replica.require_leader()
        if self._isr.under_min_isr:
            raise self._not_enough_replicas()
        return self._draft(now_ms, verified=True)

    def _write_alone(self, draft: AppendDraft, now_ms: int) -> Appended:
        (outcome,) = self._write(draft, now_ms)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def _write(self, draft: AppendDraft, now_ms: int) -> list[Appended | KafkaError]:
        replica = self._replica
        effects: tuple[Effect, ...] = ()
        if draft.headers:
            try:
                replica.log.append(draft.buffers, draft.headers, now_ms, draft.aborted)
            except DISK_ERRORS as error:
                failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                return [v if isinstance(v, KafkaError) else failure for _, _, v in draft.verdicts]
            for accepted in draft.accepted:
                replica.producers.apply(accepted)
            if draft.ended is not None:
                replica.producers.apply_end(draft.ended)
            replica.appended(draft.size)
            effects = (*replica.promise_flush(now_ms), *self.advance_high_watermark())
            if self._isr.has_remote_replicas:
                followers = CompleteDelayedFollowerFetches(
                    topic_partition=replica.topic_partition, size=draft.size
                )
                effects = (*effects, followers)
        return draft.outcomes(
            self._required_offset,
            effects,
            log_start_offset=replica.log.log_start_offset,
            flush_pending=replica.flush_pending,
        )

    def _required_offset(self, acks: int, end_offset: int) -> RequiredOffset | None:
        if acks == ACKS_NONE:
            return None
        replica, committed = self._replica, acks == ACKS_ALL
        if not committed:
            end_offset = min(end_offset, replica.flush_promised)
        if end_offset <= (replica.high_watermark if committed else replica.log.recovery_point):
            return None
        return RequiredOffset(
            offset=end_offset, leader_epoch=replica.leader_epoch, committed=committed
        )
