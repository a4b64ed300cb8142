"""The state of one producer id in a partition.

Owns: the values, the changes of ``ProducerAppendInfo`` by epoch and sequence, and their form in a
snapshot.  Must not know the other producers of the partition.
"""

from collections.abc import Iterable
from typing import NamedTuple

from sparklog.executors.log import ProducerSnapshotEntry
from sparklog.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from sparklog.wire.records.batch import TRANSACTIONAL_BIT, BatchHeader, add_sequence

#: Batches remembered per producer; a client may have as many requests in flight (KIP-98, KIP-185).
BATCHES_RETAINED = 5


class BatchMetadata(NamedTuple):
    """A remembered batch; a duplicate is answered with its ``timestamp`` in milliseconds."""

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


#: In a snapshot: a producer of which only markers are known.
_NO_BATCH = BatchMetadata(
    last_sequence=NO_SEQUENCE, last_offset=NO_OFFSET, offset_delta=0, timestamp=NO_TIMESTAMP
)


class ProducerEntry(NamedTuple):
    """State of one producer id; ``batches`` oldest first, all of ``producer_epoch``.

    ``current_txn_first_offset`` is NO_OFFSET without an open transaction.  Entries and batches are
    tuples, because every appended batch makes new ones.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[BatchMetadata, ...] = ()
    last_timestamp: int = NO_TIMESTAMP
    coordinator_epoch: int = -1
    current_txn_first_offset: int = NO_OFFSET
    last_seen_ms: int = 0

    @property
    def last_offset(self) -> int:
        """The offset of the last known record; NO_OFFSET without one."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_in_transaction(self, producer_epoch: int) -> bool:
        """Whether a transaction of this epoch is open."""
        is_open = self.current_txn_first_offset != NO_OFFSET
        return is_open and self.producer_epoch == producer_epoch

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with exactly this epoch and sequence range."""
        if header.producer_epoch != self.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def with_batch(
        self, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int
    ) -> "ProducerEntry":
        """The entry after one more batch of data; a new epoch forgets the batches of the old one.

        The first transactional batch opens a transaction, which only a marker ends.  A batch that
        was emptied by compaction opens none: its transaction has ended, and its marker may be gone.
        """
        epoch = header.producer_epoch
        known = self.batches if epoch == self.producer_epoch else ()
        batch = BatchMetadata(
            last_sequence=header.last_sequence,
            last_offset=base_offset + header.last_offset_delta,
            offset_delta=header.last_offset_delta,
            timestamp=timestamp,
        )
        first_offset = self.current_txn_first_offset
        opens = header.attributes & TRANSACTIONAL_BIT and header.record_count
        if first_offset == NO_OFFSET and opens:
            first_offset = base_offset
        return ProducerEntry(
            producer_id=self.producer_id,
            producer_epoch=epoch,
            batches=(*known[-BATCHES_RETAINED + 1 :], batch),
            last_timestamp=timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_txn_first_offset=first_offset,
            last_seen_ms=now_ms,
        )

    def with_marker(
        self, producer_epoch: int, coordinator_epoch: int, timestamp: int, now_ms: int
    ) -> "ProducerEntry":
        """The entry after a marker: no transaction is open, sequences of a new epoch begin at 0."""
        return ProducerEntry(
            producer_id=self.producer_id,
            producer_epoch=producer_epoch,
            batches=self.batches if producer_epoch == self.producer_epoch else (),
            last_timestamp=timestamp,
            coordinator_epoch=coordinator_epoch,
            last_seen_ms=now_ms,
        )


def to_snapshot_entries(entries: Iterable[ProducerEntry]) -> list[ProducerSnapshotEntry]:
    """One row for each remembered batch, the newest last.

    Kafka writes the newest batch only, and of several rows of a producer it takes the last.
    """
    return [
        ProducerSnapshotEntry(
            producer_id=entry.producer_id,
            producer_epoch=entry.producer_epoch,
            last_sequence=batch.last_sequence,
            last_offset=batch.last_offset,
            offset_delta=batch.offset_delta,
            timestamp=entry.last_timestamp if batch is rows[-1] else batch.timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_first_offset=entry.current_txn_first_offset,
        )
        for entry in entries
        for rows in (entry.batches or (_NO_BATCH,),)
        for batch in rows
    ]


def from_snapshot_entries(
    rows: Iterable[ProducerSnapshotEntry], now_ms: int
) -> dict[int, ProducerEntry]:
    """The entries by producer id."""
    entries: dict[int, ProducerEntry] = {}
    for row in rows:
        known = entries.get(row.producer_id)
        is_next = known is not None and known.producer_epoch == row.producer_epoch
        batches = known.batches if known is not None and is_next else ()
        if row.last_offset != NO_OFFSET:
            batch = BatchMetadata(
                last_sequence=row.last_sequence,
                last_offset=row.last_offset,
                offset_delta=row.offset_delta,
                timestamp=row.timestamp,
            )
            batches = (*batches[-BATCHES_RETAINED + 1 :], batch)
        entries[row.producer_id] = ProducerEntry(
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            batches=batches,
            last_timestamp=row.timestamp,
            coordinator_epoch=row.coordinator_epoch,
            current_txn_first_offset=row.current_txn_first_offset,
            last_seen_ms=now_ms,
        )
    return entries
