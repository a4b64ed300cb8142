"""One replica of one partition, as far as leading and following are alike.

Owns: log, producer state, high watermark and role of the replica, what of its log is promised a
flush, and who may ask it for anything.  Must not know how a leader or a follower comes by records.
"""

from uuid import UUID

from sparklog.config import TopicConfig
from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from sparklog.executors.log import Log
from sparklog.executors.partition.outcomes import (
    Effect,
    FlushLog,
    WakeReaders,
    WakeWriters,
    wake_all,
)
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.metadata import PartitionImage
from sparklog.types import NO_LEADER_EPOCH, NO_NODE, NO_OFFSET, TopicPartition

#: What a log raises when its files, not the request, are at fault.
DISK_ERRORS = (StorageError, CorruptLogError)


class Replica:
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
        self.node_id = node_id
        self.log = log
        self.producers = producers
        self.config = config
        self.state: PartitionImage | None = None
        self.high_watermark = log.log_start_offset
        #: Where the log ended when this replica began to lead.
        self.epoch_start_offset = NO_OFFSET
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
        return self.leader == self.node_id

    def require_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raises Kafka's code unless this replica leads, in the epoch that the caller knows."""
        self.require_role(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.node_id} does not lead {self.topic_partition}",
            )

    def require_role(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Raises Kafka's code unless this replica works, in the epoch that the caller knows."""
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
        """Everything below is committed; never goes back."""
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

    def appended(self, size: int) -> None:
        """So many bytes more wait for the high watermark."""
        self._unread_bytes += size

    def was_cut(self) -> None:
        """The log was truncated: what was known of its end is no longer true."""
        log = self.log
        self.high_watermark = max(
            min(self.high_watermark, log.log_end_offset), log.log_start_offset
        )
        self._flush_promised = min(self._flush_promised, log.log_end_offset)
        self._unread_bytes = 0
        self.producers.transactions.replicate(self.high_watermark)

    def wake_all(self) -> list[Effect]:
        return wake_all(self.topic_partition)

    # flush

    @property
    def flush_owed(self) -> bool:
        """Whether somebody was promised a flush that has not happened."""
        return self.log.recovery_point < self._flush_promised

    @property
    def flush_promised(self) -> int:
        """Up to where."""
        return self._flush_promised

    @property
    def own_end(self) -> int:
        """How far this replica's log counts: a record that was promised a flush counts after it."""
        return self.log.recovery_point if self.flush_owed else self.log.log_end_offset

    def opened(self, now_ms: int) -> list[Effect]:
        """The log was opened: what it holds is promised the flush that it may not have had.

        A crash can have come between write and flush; then the producer, which has no answer yet,
        asks again, and as a duplicate the batch would be acknowledged at once.
        """
        return self.promise_flush(now_ms)

    def promise_flush(self, now_ms: int, *, at_once: bool = False) -> list[Effect]:
        """After an append: by ``flush.messages`` and ``flush.ms``, or ``at_once``."""
        log, config = self.log, self.config
        unflushed = log.log_end_offset - log.recovery_point
        if unflushed >= config.flush_messages or config.flush_ms == 0 or at_once:
            self._flush_promised = log.log_end_offset
        return self.plan_flush(now_ms)

    def plan_flush(self, now_ms: int) -> list[Effect]:
        if self.flush_owed or self.log.flush_due(now_ms):
            return [FlushLog(topic_partition=self.topic_partition, at_ms=now_ms)]
        deadline_ms = self.log.flush_deadline_ms
        if deadline_ms is None:
            return []
        return [FlushLog(topic_partition=self.topic_partition, at_ms=deadline_ms)]
