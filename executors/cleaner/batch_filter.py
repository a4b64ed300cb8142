"""The decision about every batch and record of a cleaning.

Owns: the rules of Kafka's ``Cleaner.cleanInto`` and ``MemoryRecords.filterTo``: superseded records,
tombstones and markers with their delete horizon (KIP-534), aborted data, and the batches that stay
although they are empty.  Must not know files.

Two rules are stricter than Kafka's.  The last marker of a producer that has written nothing since
is kept whole: Kafka keeps the batch without the marker, which restores no producer epoch.  And the
first batch of each leader epoch stays, emptied if need be, so that a log whose epoch checkpoint is
lost still tells where each epoch begins.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sparklog.executors.cleaner.batch_reader import Batch
from sparklog.executors.cleaner.job import LastRecord
from sparklog.executors.cleaner.latest_offsets import LatestOffsets, Mask
from sparklog.executors.cleaner.records import (
    CHUNK_BYTES,
    RecordChunk,
    emptied,
    read_chunks,
    rebuild,
)
from sparklog.executors.cleaner.transactions import CleanedTransactions
from sparklog.executors.log import AbortedTxn
from sparklog.types import NO_LEADER_EPOCH, NO_OFFSET
from sparklog.wire.records.batch import BatchHeader, Buffer
from sparklog.wire.records.control import read_marker

#: The most decompressed bytes that are looked up together, unless a single batch has more.
_CHUNK_BYTES_MAX: Final = 16 << 20
#: Decompressed bytes after which a full map is noticed, unless a single batch has more.
_ADDED_BYTES: Final = 4 << 20


@dataclass(slots=True)
class FilterCounts:
    """Counts of records that were read and kept, and of changed batches."""

    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0
    #: Batches that were changed or dropped.
    changed: int = 0


class BatchFilter:
    """Filters the batches of one log, in order.

    Args:
        latest: the latest offsets of the slice that ends at ``end_offset``; records from there on
            are kept.
        now_ms: the time up to which delete horizons have passed.
        expires_below: tombstones and markers from this offset on stay in any case.
        delete_horizon_ms: for tombstones, and markers of empty transactions, without a horizon.
        producers: the last record of every active producer in the whole log.
    """

    def __init__(
        self,
        latest: LatestOffsets,
        transactions: CleanedTransactions,
        *,
        end_offset: int,
        now_ms: int,
        delete_horizon_ms: int,
        expires_below: int,
        producers: Mapping[int, LastRecord],
    ) -> None:
        self._latest = latest
        self._transactions = transactions
        self._end_offset = end_offset
        self._now_ms = now_ms
        self._delete_horizon_ms = delete_horizon_ms
        self._expires_below = expires_below
        self._producers = producers
        self.counts = FilterCounts()
        self._aborted: list[AbortedTxn] = []
        #: The leader epoch of the batches so far, and the base offsets that begin an epoch.
        self._leader_epoch = NO_LEADER_EPOCH
        self._epoch_starts: set[int] = set()

    def take_aborted(self) -> list[AbortedTxn]:
        """The aborted transactions whose markers were kept since the last call."""
        found, self._aborted = self._aborted, []
        return found

    def filter(self, batches: Sequence[Batch], last_end: int) -> Iterator[Buffer]:
        """The batches without the records that may go, in order.

        The batch that ends before the offset ``last_end`` stays in any case.  Raises DecodeError
        for records that cannot be read.
        """
        self._epoch_starts.clear()
        outcome: list[Buffer | None] = [None] * len(batches)
        to_read: list[int] = []
        for index, batch in enumerate(batches):
            header = batch.header
            self.counts.records_read += header.record_count
            if header.partition_leader_epoch > self._leader_epoch:
                self._leader_epoch = header.partition_leader_epoch
                self._epoch_starts.add(header.base_offset)
            if header.is_control:
                outcome[index] = self._filter_control(batch, last_end)
            elif self._transactions.is_aborted(header) or not header.record_count:
                outcome[index] = self._without_records(batch, last_end)
            elif header.base_offset >= self._end_offset:
                self.counts.records_kept += header.record_count
                outcome[index] = batch.data
            else:
                to_read.append(index)
        at = 0
        for chunk in read_chunks([batches[index] for index in to_read], self._chunk_bytes):
            for left in self._filter_chunk(chunk, last_end):
                outcome[to_read[at]] = left
                at += 1
        for batch, kept in zip(batches, outcome, strict=True):
            self.counts.changed += kept is not batch.data
            if kept is not None:
                yield kept

    @property
    def _chunk_bytes(self) -> int:
        # A look-up by key costs as much as the map is large, so it is worth many keys.
        return min(max(self._latest.key_bytes, CHUNK_BYTES), _CHUNK_BYTES_MAX)

    def _filter_chunk(self, chunk: RecordChunk, last_end: int) -> Iterator[Buffer | None]:
        headers = [batch.header for batch in chunk.batches]
        kept = self._kept(chunk, headers)
        tombstones = chunk.fields.value_length < 0
        counts = chunk.count_of_batches(kept)
        kept_tombstones = chunk.count_of_batches(kept & tombstones)
        for index, batch in enumerate(chunk.batches):
            header, count = batch.header, counts[index]
            self.counts.records_kept += count
            begins_horizon = kept_tombstones[index] > 0 and not header.has_delete_horizon
            if not count:
                yield self._without_records(batch, last_end)
            elif count == header.record_count and not begins_horizon:
                yield batch.data
            else:
                yield rebuild(
                    chunk, index, kept, self._delete_horizon_ms if begins_horizon else None
                )

    def _kept(self, chunk: RecordChunk, headers: Sequence[BatchHeader]) -> Mask:
        keyed = chunk.fields.key_length >= 0
        self.counts.keyless += len(keyed) - int(keyed.sum())
        inside = chunk.offsets >= self._latest.first_offset
        kept = keyed & inside
        kept[kept] = self._latest.hold(chunk.offsets[kept])
        below = keyed & ~inside
        if below.any():  # only these are looked up by their keys
            kept[below] = ~self._latest.supersede(chunk.keys(below))
        passed = [self._horizon_has_passed(header) for header in headers]
        if any(passed):
            kept &= (chunk.fields.value_length >= 0) | ~chunk.of_batches(passed, np.bool_)
        return kept

    def _filter_control(self, batch: Batch, last_end: int) -> Buffer | None:
        header = batch.header
        marker = read_marker(batch.data, 0, header)
        if marker is None and header.record_count:
            self.counts.records_kept += header.record_count
            return batch.data  # a control record of another kind
        useless, aborted = self._transactions.end(header, marker)
        if aborted is not None:
            self._aborted.append(aborted)
        if marker is None or (useless and self._may_go(header)):
            return self._without_records(batch, last_end)
        self.counts.records_kept += header.record_count
        if not useless or header.has_delete_horizon:
            return batch.data
        (chunk,) = read_chunks([batch])
        every = np.ones(header.record_count, np.bool_)
        return rebuild(chunk, 0, every, self._delete_horizon_ms)

    def _may_go(self, header: BatchHeader) -> bool:
        return self._horizon_has_passed(header) and not self._is_last_of_producer(header)

    def _horizon_has_passed(self, header: BatchHeader) -> bool:
        return (
            header.has_delete_horizon
            and header.base_timestamp <= self._now_ms
            and header.last_offset < self._expires_below
        )

    def _without_records(self, batch: Batch, last_end: int) -> Buffer | None:
        header = batch.header
        if (
            header.next_offset != last_end
            and header.base_offset not in self._epoch_starts
            and not self._is_last_of_producer(header)
        ):
            return None
        return emptied(header) if header.record_count else batch.data

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._producers.get(header.producer_id) if header.has_producer else None
        if last is None:
            return False
        if last.data_offset != NO_OFFSET:
            return not header.is_control and header.last_offset == last.data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def add_latest(
    latest: LatestOffsets, batches: Sequence[Batch], transactions: CleanedTransactions
) -> int | None:
    """Add the records of committed batches from the start of the slice on.

    Returns the end of the slice if the map is full; the batches behind it are not added.  Raises
    DecodeError.
    """
    wanted: list[Batch] = []
    for batch in batches:
        header = batch.header
        if header.is_control:
            transactions.end(header, read_marker(batch.data, 0, header))
        elif (
            not transactions.is_aborted(header)
            and header.record_count
            and header.last_offset >= latest.first_offset
        ):
            wanted.append(batch)
    for chunk in read_chunks(wanted, _ADDED_BYTES):
        rows = (chunk.fields.key_length >= 0) & (chunk.offsets >= latest.first_offset)
        latest.add(chunk.keys(rows), chunk.offsets[rows])
        if latest.is_full:
            return chunk.batches[-1].header.next_offset
    return None
