"""The producer state of one partition, for idempotent producers and open transactions.

Owns: the last five batches, the epoch, the sequence and the open transaction of every producer id
that wrote to the partition, and the rules of Kafka's ``ProducerStateManager`` and
``ProducerAppendInfo`` for the next batch or marker.  Entries are immutable: ``prepare`` and
``prepare_end`` return a new entry, and ``apply`` and ``apply_end`` put it in place after the batch
is in the log.  Must not know files, clocks or sockets.

A producer without state may begin with any sequence, as in Kafka since KIP-360: its state may have
expired, and UNKNOWN_PRODUCER_ID, which Kafka answered before, is never answered.  The exceptions
that Kafka makes for the first batch of a transaction (KIP-890) belong to the verification of its
partition (``replica_manager/transaction_verifications.py``).  Deleting records, by retention or
DeleteRecords, leaves the state as it is.

One deliberate difference: an idle producer expires by the broker's clock, counted from the moment
its last batch was appended or replayed.  Kafka counts from the batch's own timestamp, so a producer
of old events loses its state, and with it the protection, at the next sweep.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log import AbortedTxn, decode_snapshot, encode_snapshot
from sparklog.executors.partition.open_transactions import OpenTransactions
from sparklog.executors.partition.producer_entry import (
    BATCHES_RETAINED,
    ProducerEntry,
    from_snapshot_entries,
    to_snapshot_entries,
)
from sparklog.executors.partition.results import UnverifiedTransactionError
from sparklog.types import (
    COORDINATOR_PRODUCER_ID_BASE,
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    TopicPartition,
)
from sparklog.wire.records.batch import TRANSACTIONAL_BIT, BatchHeader, add_sequence
from sparklog.wire.records.control import ControlType, EndTxnMarker

#: From this transaction version on, every marker carries a bumped epoch (KIP-890).
_BUMPING_VERSION = 2


class AppendOrigin(Enum):
    """The sender of a batch, which decides the checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class Accepted(NamedTuple):
    """An accepted batch; ``apply`` it after the write.  ``entry`` is None without producer id."""

    entry: ProducerEntry | None = None


_WITHOUT_PRODUCER = Accepted()
_NONE_AHEAD: Mapping[int, ProducerEntry] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A batch that is in the log already; the response has these offsets."""

    base_offset: int
    last_offset: int
    timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnd:
    """The end of a producer's transaction, as a coordinator sends it with WriteTxnMarkers.

    ``transaction_version`` is the version of the producer's transaction (KIP-1228).
    """

    producer_id: int
    producer_epoch: int
    marker: EndTxnMarker
    transaction_version: int = 0


class Ended(NamedTuple):
    """An accepted marker at ``last_offset``; ``apply_end`` it after the write.

    ``first_offset`` is the start of the transaction, NO_OFFSET if none was open here.
    """

    entry: ProducerEntry
    first_offset: int
    last_offset: int
    aborted: AbortedTxn | None


class ProducerStateManager:
    """The producer entries of one partition."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self._topic_partition = topic_partition
        self._entries: dict[int, ProducerEntry] = {}
        self.transactions = OpenTransactions()

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
        verified: bool = False,
        ahead: Mapping[int, ProducerEntry] = _NONE_AHEAD,
    ) -> Accepted | Duplicate:
        """Check a data batch for an append at ``base_offset``, without a change.

        ``timestamp`` is the batch's largest timestamp as it will be stored.  ``ahead`` are entries
        of earlier accepted batches that are not applied yet.

        Raises UnverifiedTransactionError for the first batch of a client's transaction, unless it
        is ``verified``; INVALID_PRODUCER_EPOCH for a fenced producer, OUT_OF_ORDER_SEQUENCE_NUMBER
        for a gap or for a repeat that is older than the batches remembered, INVALID_TXN_STATE for a
        batch outside of the transaction that its producer has open.
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
            if entry.current_txn_first_offset != NO_OFFSET:
                self._check_in_transaction(entry, header, base_offset)
        if origin is AppendOrigin.CLIENT:
            if header.attributes & TRANSACTIONAL_BIT and not (
                verified or entry.is_in_transaction(header.producer_epoch)
            ):
                raise UnverifiedTransactionError(
                    producer_id, header.producer_epoch, header.base_sequence
                )
            self._check_sequence(entry, header, base_offset)
        return Accepted(entry=entry.with_batch(header, base_offset, timestamp, now_ms))

    def apply(self, accepted: Accepted) -> None:
        """Put a prepared entry in place, after its batch was written."""
        entry = accepted.entry
        if entry is not None:
            self._entries[entry.producer_id] = entry
            if entry.current_txn_first_offset != NO_OFFSET:
                self.transactions.begin(entry.current_txn_first_offset, entry.producer_id)

    def prepare_end(
        self, end: TransactionEnd, *, offset: int, timestamp: int, now_ms: int
    ) -> Ended:
        """Check a marker for an append at ``offset``, without a change.

        A marker for a producer without open transaction is valid: the coordinator repeats a request
        without response.  Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self._entry(end.producer_id)
        self._check_marker_epoch(entry, end, offset)
        if end.marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {end.marker.coordinator_epoch} of the marker for producer "
                f"{end.producer_id} at offset {offset} of {self._topic_partition} is older than "
                f"the last one seen, {entry.coordinator_epoch}",
            )
        return self._ended(entry, end.producer_epoch, end.marker, offset, timestamp, now_ms)

    def apply_end(self, ended: Ended) -> None:
        """Put a prepared end in place, after its marker was written."""
        self._entries[ended.entry.producer_id] = ended.entry
        if ended.first_offset != NO_OFFSET:
            self.transactions.end(ended.first_offset, ended.last_offset)

    def replay(
        self, header: BatchHeader, now_ms: int = 0, marker: EndTxnMarker | None = None
    ) -> AbortedTxn | None:
        """Apply a batch that is in the log already (recovery, replication), without checks.

        ``marker`` is the contents of a control batch.  Returns the transaction that it aborts.
        """
        if header.producer_id < 0 or (header.is_control and marker is None):
            return None
        if marker is None:
            entry, timestamp = self._entry(header.producer_id), header.max_timestamp
            self.apply(Accepted(entry.with_batch(header, header.base_offset, timestamp, now_ms)))
            return None
        ended = self._replayed_end(header, marker, now_ms)
        self.apply_end(ended)
        return ended.aborted

    def aborted_by(self, header: BatchHeader, marker: EndTxnMarker) -> AbortedTxn | None:
        """The transaction that a marker would abort as the next replayed batch; changes nothing."""
        return self._replayed_end(header, marker, now_ms=0).aborted

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were idle for ``expiration_ms``; return how many.

        A producer with an open transaction stays, and so does a coordinator, whose epoch fences its
        predecessors for good.
        """
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.current_txn_first_offset == NO_OFFSET
            and entry.producer_id < COORDINATOR_PRODUCER_ID_BASE
            and now_ms - entry.last_seen_ms >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def clear(self) -> None:
        """Forget everything, before a rebuild from a snapshot and later batches."""
        self._entries.clear()
        self.transactions.restart({})

    def to_snapshot(self) -> bytes:
        """All entries in Kafka's snapshot format, with every remembered batch."""
        return encode_snapshot(to_snapshot_entries(self._entries.values()))

    def load_snapshot(self, data: bytes, now_ms: int = 0) -> None:
        """Replace all entries by those of a snapshot.  Raises DecodeError when it is damaged.

        A snapshot has no ended transactions, so none of them waits for the high watermark.
        """
        entries = from_snapshot_entries(decode_snapshot(data), now_ms)
        self._entries = entries
        self.transactions.restart(_ongoing(entries))

    def check_invariants(self) -> None:
        for producer_id, entry in self._entries.items():
            assert producer_id == entry.producer_id
            assert len(entry.batches) <= BATCHES_RETAINED
            offsets = [b.last_offset for b in entry.batches]
            assert offsets == sorted(set(offsets)), (self._topic_partition, entry)
        assert self.transactions.ongoing == _ongoing(self._entries)
        self.transactions.check_invariants()

    def _entry(self, producer_id: int) -> ProducerEntry:
        return self._entries.get(producer_id) or ProducerEntry(producer_id=producer_id)

    def _replayed_end(self, header: BatchHeader, marker: EndTxnMarker, now_ms: int) -> Ended:
        entry, epoch = self._entry(header.producer_id), header.producer_epoch
        offset, timestamp = header.last_offset, header.max_timestamp
        return self._ended(entry, epoch, marker, offset, timestamp, now_ms)

    def _ended(
        self,
        entry: ProducerEntry,
        producer_epoch: int,
        marker: EndTxnMarker,
        offset: int,
        timestamp: int,
        now_ms: int,
    ) -> Ended:
        first_offset, aborted = entry.current_txn_first_offset, None
        if first_offset != NO_OFFSET and marker.control_type is ControlType.ABORT:
            aborted = AbortedTxn(
                producer_id=entry.producer_id,
                first_offset=first_offset,
                last_offset=offset,
                last_stable_offset=self.transactions.stable_offset_after(first_offset, offset),
            )
        after = entry.with_marker(producer_epoch, marker.coordinator_epoch, timestamp, now_ms)
        return Ended(after, first_offset, offset, aborted)

    def _check_epoch(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        if header.producer_epoch < entry.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {header.producer_epoch} of producer {header.producer_id} at offset "
                f"{offset} of {self._topic_partition} is older than the last one seen, "
                f"{entry.producer_epoch}",
            )

    def _check_in_transaction(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        if not header.attributes & TRANSACTIONAL_BIT:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the batch of producer {header.producer_id} at offset {offset} of "
                f"{self._topic_partition} is not transactional, and the producer has a transaction "
                f"open since offset {entry.current_txn_first_offset}",
            )

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader, offset: int) -> None:
        # Without state (first write, or state that expired) any first sequence is accepted.
        if entry.producer_epoch == NO_PRODUCER_EPOCH:
            return
        # NO_SEQUENCE is -1: an epoch with nothing but markers so far continues with 0.
        same_epoch = header.producer_epoch == entry.producer_epoch
        expected = add_sequence(entry.last_sequence, 1) if same_epoch else 0
        if header.base_sequence != expected:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Sequence {header.base_sequence} of producer {header.producer_id} (epoch "
                f"{header.producer_epoch}) at offset {offset} of {self._topic_partition}: "
                f"expected {expected} (epoch {entry.producer_epoch})",
            )

    def _check_marker_epoch(self, entry: ProducerEntry, end: TransactionEnd, offset: int) -> None:
        epoch, known = end.producer_epoch, entry.producer_epoch
        if end.transaction_version >= _BUMPING_VERSION:
            # The same epoch again is a repeat, unless a transaction of that epoch is open.
            repeated = epoch == known and entry.current_txn_first_offset == NO_OFFSET
            stale = epoch <= known and not repeated
        else:
            stale = epoch < known
        if stale:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch {epoch} of the marker for producer {end.producer_id} (transaction version "
                f"{end.transaction_version}) at offset {offset} of {self._topic_partition} is too "
                f"old, the last one seen is {known}",
            )


def _ongoing(entries: Mapping[int, ProducerEntry]) -> dict[int, int]:
    """The open transactions of the entries: first offset -> producer id."""
    return {
        entry.current_txn_first_offset: entry.producer_id
        for entry in entries.values()
        if entry.current_txn_first_offset != NO_OFFSET
    }
