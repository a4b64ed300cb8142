"""Batches of clients on their way into one partition, up to the one write that puts them there.

Owns: the judgement of several batches, each seeing those before it although none is written yet,
what they make together, and what comes of each.  Must not know roles, logs or what an
acknowledgement waits for.
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
    AckWait,
    Appended,
)
from sparklog.types import NO_TIMESTAMP, TimestampType
from sparklog.wire.records.batch import BatchHeader, Buffer

#: The header as it is to be written, or why nothing is.
Verdict: TypeAlias = BatchHeader | Duplicate | KafkaError


class AppendDraft:
    """What is to be appended at ``end_offset``, and the verdict on every batch that was taken."""

    __slots__ = (
        "_ahead",
        "_config",
        "_earliest",
        "_in_transaction",
        "_latest",
        "_leader_epoch",
        "_now_ms",
        "_producers",
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
        in_transaction: bool = False,
    ) -> None:
        """``in_transaction``: batches may be transactional; see ``Partition.append_as_leader``."""
        self._producers = producers
        self._config = config
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self._in_transaction = in_transaction
        #: Timestamps between these need no second look.
        self._earliest = now_ms - config.message_timestamp_before_max_ms
        self._latest = now_ms + config.message_timestamp_after_max_ms
        self._ahead: dict[int, ProducerEntry] = {}
        by_broker = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        #: Of every batch, or NO_TIMESTAMP when they keep their own.
        self.append_time = now_ms if by_broker else NO_TIMESTAMP
        self.end_offset = end_offset
        self.buffers: list[Buffer] = []
        self.headers: list[BatchHeader] = []
        self.accepted: list[Accepted] = []
        #: What the marker does that is all of this draft.
        self.ended: Ended | None = None
        self.size = 0
        #: acks, the end of the log that the verdict rests on, and the verdict.
        self.verdicts: list[tuple[int, int, Verdict]] = []

    @property
    def last(self) -> BatchHeader | None:
        """The last batch that is written."""
        return self.headers[-1] if self.headers else None

    @property
    def aborted(self) -> AbortedTxn | None:
        """What the marker aborts, if this is one."""
        return None if self.ended is None else self.ended.aborted

    def outcomes(
        self,
        wait_for: Callable[[int, int], AckWait | None],
        effects: tuple[Effect, ...],
        *,
        log_start_offset: int,
        flush_pending: bool,
    ) -> list[Appended | KafkaError]:
        """What becomes of every batch that was taken, now that the draft is written.

        ``wait_for`` is asked with acks and an end offset; ``effects`` go with the last batch.
        """
        last = self.last
        outcomes: list[Appended | KafkaError] = []
        for acks, end_offset, verdict in self.verdicts:
            wait = wait_for(acks, end_offset) if acks == ACKS_ALL or flush_pending else None
            if isinstance(verdict, KafkaError):
                outcomes.append(verdict if wait is None else Appended(refusal=verdict, wait=wait))
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
                    wait=wait,
                    effects=effects if verdict is last else (),
                )
            )
        return outcomes

    def has_room(self, size: int) -> bool:
        """Whether a batch of this size still goes into the same segment."""
        return not self.headers or self.size + size <= self._config.segment_bytes

    def refuse(self, refusal: KafkaError) -> None:
        """A batch that is not even looked at."""
        self.verdicts.append((ACKS_NONE, self.end_offset, refusal))

    def take(self, records: Buffer | None, acks: int) -> None:
        """Judge one more batch; stamp it when it is accepted."""
        try:
            header = read_client_batch(records, self._config, self._in_transaction)
            if not self._earliest <= header.base_timestamp <= header.max_timestamp <= self._latest:
                check_timestamps(header, self._config, self._now_ms)
        except KafkaError as refusal:
            self.refuse(refusal)
            return
        assert records is not None
        append_time, end_offset = self.append_time, self.end_offset
        try:
            judged = self._producers.prepare(
                header,
                base_offset=end_offset,
                timestamp=header.max_timestamp if append_time == NO_TIMESTAMP else append_time,
                origin=AppendOrigin.CLIENT,
                now_ms=self._now_ms,
                ahead=self._ahead,
            )
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
        """Make the marker that ends a transaction.  Raises KafkaError."""
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
