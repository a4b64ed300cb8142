"""One replica of one partition, as its readers see it.

Owns: up to where each reader may see, reading, and questions about offsets.  Must not know what a
replica does to its log.
"""

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import LogRead, Steps
from sparklog.executors.partition.offset_lookup import (
    end_of_epoch,
    find_divergence,
    has_forgotten,
    look_up,
    read_error_code,
)
from sparklog.executors.partition.outcomes import EpochEnd, PartitionRead
from sparklog.executors.partition.replica import DISK_ERRORS, Replica
from sparklog.types import NO_LEADER_EPOCH, NO_NODE, Isolation, OffsetSpec, OffsetTimestamp

#: Where the log starts, readable or not.
_STARTS = (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL)


class ReadableReplica(Replica):
    """Answers who reads."""

    @property
    def last_stable_offset(self) -> int:
        """Below it everything is replicated and every transaction decided."""
        return max(self.retention_end, self.log.log_start_offset)

    @property
    def retention_end(self) -> int:
        """Retention takes nothing from here on, not even of a transaction whose begin is hidden."""
        return self.producers.transactions.stable_offset(self.high_watermark)

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
        """Whole batches from ``offset`` on, up to what the reader may see.

        Replicas see everything, others what is below the high watermark or, to read committed data
        alone, below the last stable offset; a follower too answers them, unless ``only_leader``.
        With ``last_fetched_epoch``, of the record before ``offset``, nothing is read from a log
        that has another one there.  Raises KafkaError, among them OFFSET_OUT_OF_RANGE and
        KAFKA_STORAGE_ERROR.
        """
        self._require_reader(current_leader_epoch, replica_id, only_leader=only_leader)
        log = self.log
        end = log.log_end_offset if replica_id >= 0 else self.readable_end(isolation)
        found = LogRead(region=None, size=0, first_offset=offset)
        diverging: EpochEnd | None = None
        if last_fetched_epoch >= 0 and offset >= log.log_start_offset:
            diverging = find_divergence(log, self.leader_epoch, last_fetched_epoch, offset)
        if diverging is None:
            self._require_in_range(offset)
            if replica_id >= 0 and has_forgotten(log, last_fetched_epoch, offset):
                raise log.out_of_range(offset)
            if offset < end and (max_bytes > 0 or min_one):
                committed = isolation is Isolation.READ_COMMITTED
                found = self._read_log(offset, max_bytes, end, min_one, committed)
            if replica_id >= 0 <= last_fetched_epoch and found.first_offset < offset:
                # A log of whole batches that ends inside of this one has other ones before it.
                assert found.region is not None
                found.region.release()
                diverging = EpochEnd(last_fetched_epoch, found.first_offset)
                found = LogRead(region=None, size=0, first_offset=offset)
        return PartitionRead(
            records=found.region,
            size=found.size,
            high_watermark=self.high_watermark,
            last_stable_offset=self.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted=found.aborted,
            end_offset=end,
            diverging=diverging,
        )

    def find_offset(
        self, timestamp: int, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> Steps[OffsetTimestamp | None]:
        """ListOffsets for a client: a special timestamp (``OffsetSpec``) or milliseconds.

        None when no record that the client may read has such a timestamp.  Call ``require_leader``
        first, and again afterwards when parts of it ran elsewhere.
        """
        end = self.readable_end(isolation)
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

    def _require_in_range(self, offset: int) -> None:
        if not self.log.log_start_offset <= offset <= self.log.log_end_offset:
            raise self.log.out_of_range(offset)

    def _read_log(
        self, offset: int, max_bytes: int, end: int, min_one: bool, committed: bool
    ) -> LogRead:
        try:
            return self.log.read(
                offset, max_bytes, end_offset=end, min_one=min_one, with_aborted=committed
            )
        except DISK_ERRORS as error:
            raise KafkaError(read_error_code(self.log, error), str(error)) from error

    def _require_known_end(self) -> None:
        # KIP-207: until then "latest" could go back behind what the previous leader answered.
        if self.high_watermark < self.epoch_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark of {self.topic_partition} has not caught up with this epoch",
            )
