"""Producer state of one partition: what makes an idempotent producer's retries harmless.

Owns: the last five batches, the epoch and the sequence of every producer id that wrote to the
partition, and the rules of Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo`` for the next
batch.  Entries are immutable; ``prepare`` decides on a copy and ``apply`` puts the copy in place
once the batch is in the log.  Must not know files, clocks or sockets.

One deliberate difference: an idle producer expires by the broker's clock, counted from the moment
its last batch was appended or replayed.  Kafka counts from the batch's own timestamp, so a producer
of old events loses its state, and with it the protection, at the next sweep.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from sparklog.types import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TopicPartition,
)
from sparklog.wire.batch import BatchHeader, add_sequence

#: Batches remembered per producer; a client may have as many requests in flight (KIP-98, KIP-185).
BATCHES_RETAINED = 5


class AppendOrigin(Enum):
    """Who sent a batch; decides how much of it is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class BatchMetadata(NamedTuple):
    """A remembered batch; ``timestamp`` in milliseconds is what a duplicate is answered with."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return add_sequence(self.last_sequence, -self.offset_delta)

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """State of one producer id; ``batches`` oldest first, all of ``producer_epoch``.

    Entries and batches are tuples, because some are made for every batch that is appended.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[BatchMetadata, ...] = ()
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    current_txn_first_offset: int = NO_OFFSET
    last_seen_ms: int = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with exactly this epoch and sequence range."""
        if header.producer_epoch != self.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def with_batch(self, epoch: int, batch: BatchMetadata, now_ms: int) -> "ProducerEntry":
        """The entry after one more batch; a new epoch forgets the batches of the old one."""
        known = self.batches if epoch == self.producer_epoch else ()
        return ProducerEntry(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            batches=(*known[-BATCHES_RETAINED + 1 :], batch),
            last_timestamp=batch.timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=self.current_txn_first_offset,
            last_seen_ms=now_ms,
        )


class Accepted(NamedTuple):
    """The batch may be written; ``apply`` this once it is.  None: the batch has no producer id."""

    entry: ProducerEntry | None = None


_WITHOUT_PRODUCER = Accepted()
_NONE_AHEAD: Mapping[int, ProducerEntry] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch is in the log already: nothing to write, answer these offsets."""

    base_offset: int
    last_offset: int
    timestamp: int


class ProducerStateManager:
    """The producer entries of one partition."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self._entries: dict[int, ProducerEntry] = {}

    @property
    def entries(self) -> Mapping[int, ProducerEntry]:
        return self._entries

    def prepare(
        self,
        header: BatchHeader,
        *,
        base_offset: int,
        timestamp: int,
        origin: AppendOrigin,
        now_ms: int,
        ahead: Mapping[int, ProducerEntry] = _NONE_AHEAD,
    ) -> Accepted | Duplicate:
        """Judge a batch that would be appended at ``base_offset``; changes nothing.

        ``timestamp`` is the batch's largest timestamp as it will be stored.  ``ahead`` are entries
        of batches that were accepted before this one and are not applied yet.  Raises
        INVALID_PRODUCER_EPOCH for a fenced producer and OUT_OF_ORDER_SEQUENCE_NUMBER for a gap or
        for a repeat that is older than the batches remembered.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return _WITHOUT_PRODUCER
        entry = (
            ahead.get(producer_id)
            or self._entries.get(producer_id)
            or ProducerEntry(producer_id=producer_id)
        )
        if origin is AppendOrigin.CLIENT:
            known = entry.find_duplicate(header)
            if known is not None:
                return Duplicate(
                    base_offset=known.base_offset,
                    last_offset=known.last_offset,
                    timestamp=known.timestamp,
                )
        if origin is not AppendOrigin.REPLICATION:
            self._check_epoch(entry, header, base_offset)
        if origin is AppendOrigin.CLIENT:
            self._check_sequence(entry, header, base_offset)
        return Accepted(entry=_extended(entry, header, base_offset, timestamp, now_ms))

    def apply(self, accepted: Accepted) -> None:
        """Put a prepared entry in place, after its batch was written."""
        if accepted.entry is not None:
            self._entries[accepted.entry.producer_id] = accepted.entry

    def replay(self, header: BatchHeader, now_ms: int = 0) -> None:
        """Take over a batch that is in the log already (recovery, replication); never refuses."""
        if header.producer_id < 0 or header.is_control:
            return
        entry = self._entries.get(header.producer_id) or ProducerEntry(
            producer_id=header.producer_id
        )
        self._entries[header.producer_id] = _extended(
            entry, header, header.base_offset, header.max_timestamp, now_ms
        )

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were idle for ``expiration_ms``; how many there were."""
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.current_txn_first_offset == NO_OFFSET
            and now_ms - entry.last_seen_ms >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def clear(self) -> None:
        """Forget everything, before a rebuild from a snapshot and the batches behind it."""
        self._entries.clear()

    def to_snapshot(self) -> bytes:
        """All entries in Kafka's snapshot format, which keeps one batch per producer."""
        return encode_snapshot(_snapshot_entries(self._entries.values()))

    def load_snapshot(self, data: bytes, now_ms: int = 0) -> None:
        """Replace all entries by those of a snapshot.  Raises DecodeError when it is damaged."""
        entries = {e.producer_id: _from_snapshot(e, now_ms) for e in decode_snapshot(data)}
        self._entries = entries

    def check_invariants(self) -> None:
        for producer_id, entry in self._entries.items():
            assert producer_id == entry.producer_id
            assert len(entry.batches) <= BATCHES_RETAINED
            offsets = [b.last_offset for b in entry.batches]
            assert offsets == sorted(set(offsets)), (self._topic_partition, entry)

    def _check_epoch(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        if header.producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {header.producer_epoch} of producer {header.producer_id} at offset "
                f"{offset} of {self._topic_partition} is older than the last one seen, "
                f"{entry.producer_epoch}",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        # Without state (first write, or state that expired) any first sequence is accepted.
        if entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
        # NO_SEQUENCE is -1: an epoch that so far wrote nothing but markers goes on with 0.
        same_epoch = header.producer_epoch == entry.producer_epoch
        expected = add_sequence(entry.last_sequence, 1) if same_epoch else 0
        if header.base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Sequence {header.base_sequence} of producer {header.producer_id} (epoch "
                f"{header.producer_epoch}) at offset {offset} of {self._topic_partition}: "
                f"expected {expected} (epoch {entry.producer_epoch})",
            )


def _extended(
    entry: ProducerEntry, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int
) -> ProducerEntry:
    batch = BatchMetadata(
        last_sequence=header.last_sequence,
        last_offset=base_offset + header.last_offset_delta,
        offset_delta=header.last_offset_delta,
        timestamp=timestamp,
    )
    return entry.with_batch(header.producer_epoch, batch, now_ms)


def _snapshot_entries(entries: Iterable[ProducerEntry]) -> list[ProducerSnapshotEntry]:
    return [
        ProducerSnapshotEntry(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=entry.last_sequence,
            last_offset=entry.batches[-1].last_offset if entry.batches else NO_OFFSET,
            offset_delta=entry.batches[-1].offset_delta if entry.batches else 0,
            timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_first_offset=entry.current_txn_first_offset,
        )
        for entry in entries
    ]


def _from_snapshot(entry: ProducerSnapshotEntry, now_ms: int) -> ProducerEntry:
    batch = BatchMetadata(
        last_sequence=entry.last_sequence,
        last_offset=entry.last_offset,
        offset_delta=entry.offset_delta,
        timestamp=entry.timestamp,
    )
    return ProducerEntry(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        batches=(batch,) if entry.last_offset != NO_OFFSET else (),
        last_timestamp=entry.timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_first_offset=entry.current_txn_first_offset,
        last_seen_ms=now_ms,
    )
