"""The draft of one append: several batches of clients, validated before one write.

Owns: the validation of the batches, where each batch sees the earlier batches of the draft although
none is written yet, the contents of the write, and the outcome of each batch.  Must not know roles,
logs, or which offset a response waits for.
"""

from collections.abc import Callable
from typing import TypeAlias

from sparklog.config import TopicConfig
from sparklog.errors import KafkaError
from sparklog.executors.log import AbortedTxn
from sparklog.executors.partition.batch_validation import (
    check_timestamps,
    make_marker,
    read_client_batch,
    read_coordinator_batch,
    stamp_batch,
)
from sparklog.executors.partition.effects import (
    Effect,
)
from sparklog.executors.partition.producer_entry import ProducerEntry
from sparklog.executors.partition.producer_state import (
    Accepted,
    AppendOrigin,
    Duplicate,
    Ended,
    ProducerStateManager,
    TransactionEnd,
)
from sparklog.executors.partition.results import (
    ACKS_ALL,
    ACKS_NONE,
    Appended,
    RequiredOffset,
    UnverifiedTransactionError,
)
from sparklog.types import NO_TIMESTAMP, TimestampType
from sparklog.wire.records.batch import BatchHeader, Buffer

#: The stamped header of an accepted batch, or the reason why the batch is not written.
Verdict: TypeAlias = BatchHeader | Duplicate | KafkaError


class AppendDraft:
    """The batches to append from ``end_offset`` on, and the verdict on every batch."""

    __slots__ = (
        "_ahead",
        "_config",
        "_earliest",
        "_latest",
        "_leader_epoch",
        "_now_ms",
        "_producers",
        "_verified",
        "accepted",
        "append_time",
        "buffers",
        "end_offset",
        "ended",
        "headers",
        "size",
        "verdicts",
    )

    def __init__(
        self,
        producers: ProducerStateManager,
        config: TopicConfig,
        *,
        end_offset: int,
        leader_epoch: int,
        now_ms: int,
        verified: bool = False,
    ) -> None:
        """``verified``: see ``Partition.append_as_leader``."""
        self._producers = producers
        self._config = config
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self._verified = verified
        #: A timestamp between these bounds is valid without a further check.
        self._earliest = now_ms - config.message_timestamp_before_max_ms
        self._latest = now_ms + config.message_timestamp_after_max_ms
        self._ahead: dict[int, ProducerEntry] = {}
        by_broker = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        #: The LogAppendTime of all batches in ms; NO_TIMESTAMP with CreateTime.
        self.append_time = now_ms if by_broker else NO_TIMESTAMP
        self.end_offset = end_offset
        self.buffers: list[Buffer] = []
        self.headers: list[BatchHeader] = []
        self.accepted: list[Accepted] = []
        #: The end of a transaction, if this draft is its marker.
        self.ended: Ended | None = None
        self.size = 0
        #: Of each batch: acks, the log end that the verdict depends on, and the verdict.
        self.verdicts: list[tuple[int, int, Verdict]] = []

    @property
    def last(self) -> BatchHeader | None:
        """The last batch to write."""
        return self.headers[-1] if self.headers else None

    @property
    def aborted(self) -> AbortedTxn | None:
        """The transaction that this draft's marker aborts, if any."""
        return None if self.ended is None else self.ended.aborted

    def outcomes(
        self,
        required_for: Callable[[int, int], RequiredOffset | None],
        effects: tuple[Effect, ...],
        *,
        log_start_offset: int,
        flush_pending: bool,
    ) -> list[Appended | KafkaError]:
        """The outcomes of all batches, after the draft was written.

        ``required_for`` returns the required offset for acks and an end offset.  The last written
        batch gets ``effects``.
        """
        last = self.last
        outcomes: list[Appended | KafkaError] = []
        for acks, end_offset, verdict in self.verdicts:
            required = required_for(acks, end_offset) if acks == ACKS_ALL or flush_pending else None
            if isinstance(verdict, KafkaError):
                outcomes.append(
                    verdict
                    if required is None
                    else Appended(refusal=verdict, required_offset=required)
                )
                continue
            if isinstance(verdict, BatchHeader):
                size, append_time = verdict.size, self.append_time
            else:
                by_broker = self.append_time != NO_TIMESTAMP
                size, append_time = 0, verdict.timestamp if by_broker else NO_TIMESTAMP
            outcomes.append(
                Appended(
                    base_offset=verdict.base_offset,
                    last_offset=verdict.last_offset,
                    log_append_time=append_time,
                    log_start_offset=log_start_offset,
                    size=size,
                    required_offset=required,
                    effects=effects if verdict is last else (),
                )
            )
        return outcomes

    def has_room(self, size: int) -> bool:
        """Whether a batch of ``size`` bytes still fits into the same segment."""
        return not self.headers or self.size + size <= self._config.segment_bytes

    def refuse(self, refusal: KafkaError) -> None:
        """Add a batch that is refused without validation."""
        self.verdicts.append((ACKS_NONE, self.end_offset, refusal))

    def take(self, records: Buffer | None, acks: int) -> None:
        """Validate one more batch, and stamp it if it is accepted."""
        try:
            header = read_client_batch(records, self._config)
            if not self._earliest <= header.base_timestamp <= header.max_timestamp <= self._latest:
                check_timestamps(header, self._config, self._now_ms)
        except KafkaError as refusal:
            self.refuse(refusal)
            return
        assert records is not None
        self._judge(records, header, acks, AppendOrigin.CLIENT)

    def take_from_coordinator(self, records: Buffer) -> None:
        """Validate and stamp a batch that a coordinator of this broker has written itself."""
        try:
            header = read_coordinator_batch(records, self._config)
        except KafkaError as refusal:
            self.refuse(refusal)
            return
        self._judge(records, header, ACKS_ALL, AppendOrigin.COORDINATOR)

    def _judge(self, records: Buffer, header: BatchHeader, acks: int, origin: AppendOrigin) -> None:
        append_time, end_offset = self.append_time, self.end_offset
        try:
            judged = self._producers.prepare(
                header,
                base_offset=end_offset,
                timestamp=header.max_timestamp if append_time == NO_TIMESTAMP else append_time,
                origin=origin,
                now_ms=self._now_ms,
                verified=self._verified,
                ahead=self._ahead,
            )
        except UnverifiedTransactionError as refusal:
            self.refuse(
                refusal
            )  # at once: the batch is no refusal until the coordinator has spoken
            return
        except KafkaError as refusal:
            self.verdicts.append((acks, end_offset, refusal))
            return
        if isinstance(judged, Duplicate):
            self.verdicts.append((acks, judged.last_offset + 1, judged))
            return
        buffers, stamped = stamp_batch(records, header, end_offset, self._leader_epoch, append_time)
        self.buffers += buffers
        self.headers.append(stamped)
        self.size += len(records)
        self.end_offset = stamped.next_offset
        if judged.entry is not None:
            self.accepted.append(judged)
            self._ahead[header.producer_id] = judged.entry
        self.verdicts.append((acks, self.end_offset, stamped))

    def take_end(self, end: TransactionEnd) -> None:
        """Add the marker that ends a transaction.  Raises KafkaError."""
        assert not self.verdicts, "a marker is appended alone"
        self.ended = self._producers.prepare_end(
            end, offset=self.end_offset, timestamp=self._now_ms, now_ms=self._now_ms
        )
        data, header = make_marker(
            end, self._config, self.end_offset, self._leader_epoch, self._now_ms
        )
        self.buffers.append(data)
        self.headers.append(header)
        self.size = len(data)
        self.end_offset = header.next_offset
        self.verdicts.append((ACKS_ALL, self.end_offset, header))
