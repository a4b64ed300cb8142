"""The follower's part of a replica: it copies the log of the leader.

Owns: the fetch position, the append of fetched batches, and the truncation of batches that the
leader does not have: by leader epochs (KIP-101 and KIP-279), as the fetch responses tell (KIP-595),
never by the high watermark.  Must not know how a fetch travels, clocks or threads.
"""

from collections.abc import Callable
from functools import partial

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import Steps, TieredStart
from sparklog.executors.partition.effects import (
    CompleteDelayedDeleteRecords,
    Effect,
    ResumeFetching,
)
from sparklog.executors.partition.replica import DISK_ERRORS, Replica
from sparklog.executors.partition.replicated_batches import (
    Replicated,
    read_replicated,
    split_writes,
)
from sparklog.executors.partition.results import (
    EpochEnd,
    FetchPosition,
    Truncated,
)
from sparklog.types import NO_NODE
from sparklog.wire.records.batch import Buffer


class FollowerRole:
    """The follower's part of one replica; idle while the replica leads or is offline."""

    __slots__ = ("_replica", "_truncate_log")

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: The truncation that has begun: from the time of day in ms, in a worker thread.
        self._truncate_log: Callable[[int], object]

    def make_follower(self) -> None:
        """Begin to follow another leader (``Partition.makeFollower``)."""
        log = self._replica.log
        # Drop a leader epoch that this replica began and wrote no record in.
        log.leader_epochs.truncate_from_end(log.log_end_offset)

    @property
    def position(self) -> FetchPosition | None:
        """See ``Partition.fetch_position``.

        A fetch tells the leader where this log ends, so it waits for a flush that was promised.
        """
        replica, log = self._replica, self._replica.log
        if not self._follows(replica.leader_epoch) or replica.flush_pending:
            return None
        return FetchPosition(
            offset=log.log_end_offset,
            last_fetched_epoch=log.leader_epochs.epoch_at(log.log_end_offset - 1),
            current_leader_epoch=replica.leader_epoch,
            log_start_offset=log.log_start_offset,
        )

    def append(
        self,
        records: Buffer,
        *,
        fetch_offset: int,
        leader_epoch: int,
        high_watermark: int,
        log_start_offset: int,
        now_ms: int,
    ) -> list[Effect]:
        """See ``Partition.append_as_follower``."""
        replica, log = self._replica, self._replica.log
        if not self._follows(leader_epoch) or fetch_offset != log.log_end_offset:
            return []
        effects: list[Effect] = []
        if len(records):
            last_epoch = log.leader_epochs.epoch_at(fetch_offset - 1)
            batches = read_replicated(records, last_epoch=last_epoch, leader_epoch=leader_epoch)
            try:
                effects += self._write(memoryview(records), batches, now_ms)
            except DISK_ERRORS as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        # Nothing is below the log start, which an empty log moves up to a far first batch.
        reached = max(min(high_watermark, log.log_end_offset), log.log_start_offset)
        effects += replica.move_high_watermark(reached)
        if log.advance_log_start(min(log_start_offset, replica.high_watermark)):
            effects.append(CompleteDelayedDeleteRecords(topic_partition=replica.topic_partition))
        return effects

    # truncating

    def begin_truncation(self, diverging: EpochEnd, *, leader_epoch: int) -> bool:
        """See ``Partition.begin_truncation``."""
        log = self._replica.log
        if not self._follows(leader_epoch):
            return False
        offset = self._common_end(diverging)
        if offset >= log.log_end_offset:
            return False
        # Only an unclean election makes the log start anew: what is cleaned or below the local log
        # start was committed.
        fully = offset < self._cleaned_end() or self._is_in_tier(offset)
        if fully:
            offset = log.log_start_offset
        truncate = log.truncate_fully_and_start_at if fully else log.truncate_to
        self._truncate_log = partial(truncate, offset)
        log.begin_truncation(offset, fully=fully)
        return True

    def _is_in_tier(self, offset: int) -> bool:
        """Whether the state at this offset is in the bucket only: leader epochs and producer state.

        From the log start on, the leader sends all records, or sends this replica to the bucket,
        which has both.  At the local log start this replica may have both, too.  It stays there
        then, because it may be in sync, and elected: its files can begin at the high watermark.
        """
        log = self._replica.log
        local_start = log.local_log_start_offset
        if log.log_start_offset == local_start or offset > local_start:
            return False
        return offset < local_start or not log.has_state(offset)

    def _cleaned_end(self) -> int:
        """Records may have been cleaned away because of later ones below this offset.

        Records below a divergence may be gone because of later ones that the truncation drops.
        The leader that this log was copied from may have been cleaned, and a cleaning of this log
        may have ended before its clean offset was written.  Only committed records are cleaned.
        """
        log = self._replica.log
        copied = self._replica.high_watermark if log.gaps.is_set else 0
        return max(log.clean_offset or 0, copied)

    def begin_full_truncation(self, offset: int, *, leader_epoch: int) -> bool:
        """See ``Partition.begin_full_truncation``."""
        if not self._follows(leader_epoch):
            return False
        log = self._replica.log
        self._truncate_log = partial(log.truncate_fully_and_start_at, offset)
        log.begin_truncation(offset, fully=True, log_starts_there=True)
        return True

    def begin_start_in_tier(self, start: TieredStart, *, leader_epoch: int) -> bool:
        """See ``Partition.begin_start_in_tier``."""
        if not self._follows(leader_epoch) or self._replica.config.leaves_remote_storage:
            return False
        log = self._replica.log
        self._truncate_log = partial(log.start_in_tier, start)
        log.begin_truncation(start.offset, fully=True)
        return True

    def begin_recovery(self, start: TieredStart) -> bool:
        """See ``Partition.begin_recovery``."""
        replica, log = self._replica, self._replica.log
        if replica.state is not None or log.offline is not None or log.truncating or log.size:
            return False
        self._truncate_log = partial(log.start_in_tier, start)
        log.begin_truncation(start.offset, fully=True)
        return True

    def begin_torn_write_truncation(self, leader_epoch: int) -> bool:
        """See ``Partition.begin_torn_write_truncation``."""
        log = self._replica.log
        offset = log.leader_epochs.start_after(leader_epoch)
        if log.offline is not None or offset is None or offset < log.recovered_from:
            return False
        self._truncate_log = partial(log.truncate_to, offset)
        log.begin_truncation(offset)
        return True

    def truncate(self, now_ms: int) -> Steps[Truncated]:
        """See ``Partition.truncate``."""
        replica, log = self._replica, self._replica.log
        end_before, committed = log.log_end_offset, replica.high_watermark
        log.detach()
        try:
            yield partial(self._truncate_log, now_ms)
        except DISK_ERRORS as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            log.end_truncation()
        replica.truncated()
        return Truncated(
            end_before=end_before,
            end_after=log.log_end_offset,
            committed=max(committed - log.log_end_offset, 0),
            effects=tuple(replica.plan_flush(now_ms)),
        )

    def resume(self) -> list[Effect]:
        """The effect for the next fetch, if there is a fetch position."""
        if self.position is None:
            return []
        return [ResumeFetching(topic_partition=self._replica.topic_partition)]

    def _follows(self, leader_epoch: int) -> bool:
        """Whether this replica follows in this leader epoch and may change its log."""
        replica, log = self._replica, self._replica.log
        return (
            replica.leader_epoch == leader_epoch
            and replica.leader not in (NO_NODE, replica.node_id)
            and log.offline is None
            and not log.truncating
        )

    def _common_end(self, diverging: EpochEnd) -> int:
        """The largest offset up to which both logs can be equal (``getOffsetTruncationState``).

        If this log does not know the leader's epoch, its records of older epochs may still diverge;
        the next fetch tells.
        """
        log = self._replica.log
        epoch, end = log.leader_epochs.end_offset_for(diverging.epoch, log.log_end_offset)
        if epoch == diverging.epoch or end < 0:
            end = diverging.end_offset if end < 0 else min(end, diverging.end_offset)
        return min(end, log.log_end_offset)

    def _write(self, records: memoryview, batches: Replicated, now_ms: int) -> list[Effect]:
        replica, log, producers = self._replica, self._replica.log, self._replica.producers
        headers, markers = batches.headers, batches.markers
        first = headers[0]
        if first.base_offset < log.log_end_offset:
            self._begin_inside(first.base_offset, first.last_offset, now_ms)
        effects: list[Effect] = []
        try:
            for write in split_writes(batches, log.config.segment_bytes):
                written, last = headers[write.first : write.end], write.end - 1
                aborted = None
                if batches.is_abort(last):
                    aborted = producers.aborted_by(headers[last], markers[last])
                log.append([records[write.data]], written, now_ms, aborted)
                for index, header in enumerate(written, write.first):
                    if header.producer_id >= 0:
                        producers.replay(header, now_ms, markers.get(index))
                replica.appended(write.data.stop - write.data.start)
        finally:
            # Also after a failed write: the next fetch starts behind what was written before.
            effects += replica.promise_flush(now_ms)
        return effects

    def _begin_inside(self, base_offset: int, last_offset: int, now_ms: int) -> None:
        """Start this empty log at the base offset of a batch that holds the leader's log start."""
        replica, log = self._replica, self._replica.log
        end = log.log_end_offset
        if log.size or last_offset < end:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"the leader sent a batch with base offset {base_offset} for {end}, where "
                f"{replica.topic_partition} ends",
            )
        log.begin_at(base_offset, now_ms)
        replica.truncated()
