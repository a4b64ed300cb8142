"""Reads of the segments of one partition in a bucket.

Owns: reads of batches, lookups by timestamp and the state for a follower, from the objects of one
segment at a time.  Must not know manifests, brokers, or whether a read reaches the bucket.

No object is trusted: a byte that has changed since the copy is an error, or does not matter.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from sparklog.errors import DecodeError
from sparklog.remote_log import names
from sparklog.remote_log.aborted_txns import RemoteAbortedTxn, decode_aborted, overlapping
from sparklog.remote_log.batch_walk import WINDOW_BYTES, BatchWalk
from sparklog.remote_log.chunk_cache import FilePiece
from sparklog.remote_log.damaged_indexes import DamagedIndexes
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.index_search import entries_around, times_around
from sparklog.remote_log.leader_epochs import decode_epochs, epochs_between
from sparklog.remote_log.parts import PartCache, ReadRange, part_error, read_part
from sparklog.remote_log.remote_segment import EpochStart, PartName, RemoteSegment
from sparklog.types import NO_OFFSET, OffsetTimestamp
from sparklog.wire.records.batch import BATCH_OVERHEAD, BatchHeader, Buffer
from sparklog.wire.records.record_search import SearchBudget, first_record
from sparklog.wire.records.stored_batches import epoch_of

#: Bytes that a decoded aborted transaction takes in memory, about.
_ABORTED_BYTES: Final = 200


#: Where (object path, offset, size) is in files of this host; nothing if it is not.
FindPieces = Callable[[str, int, int], Sequence[FilePiece]]


class RemoteRead(NamedTuple):
    """Whole batches with the offsets [``first_offset``, ``next_offset``).

    The first batch may begin below the fetch offset.  Without batches both offsets are the fetch
    offset.  ``aborted`` are the aborted transactions with data among the batches, if asked for, in
    the order of their markers.  Who takes files gets, in place of ``data``, the ``pieces`` of files
    that the batches are in, if they are in files.
    """

    data: Buffer
    first_offset: int
    next_offset: int
    aborted: tuple[RemoteAbortedTxn, ...] = ()
    pieces: tuple[FilePiece, ...] = ()


class RemoteReader:
    """The segments in ``folder``, the folder of a partition's segments.

    ``read`` reads (object path, offset, size): it is ``StorageBackend.read`` or a cache before it,
    in whose files ``find_pieces`` finds what was read.  ``read_again`` passes by that cache.
    Readers of many partitions may share ``cache``.  All methods block.  They raise StorageError,
    its subclass MissingPathError for a segment that was deleted, and DamagedObjectError.
    """

    def __init__(
        self,
        read: ReadRange,
        folder: str,
        cache: PartCache,
        find_pieces: FindPieces = lambda path, offset, size: (),
        read_again: ReadRange | None = None,
    ) -> None:
        self._read = read
        self._damaged = DamagedIndexes(read_again or read, cache)
        self._find_pieces = find_pieces
        self._folder = folder
        self._cache = cache

    def read_batches(
        self, segment: RemoteSegment, offset: int, max_bytes: int, **how: Any
    ) -> RemoteRead:
        """The first of ``reads``."""
        [found] = self.reads(segment, offset, max_bytes, 1, **how)
        return found

    def reads(
        self,
        segment: RemoteSegment,
        offset: int,
        max_bytes: int,
        count: int,
        *,
        end_offset: int,
        min_one: bool = True,
        with_aborted: bool = False,
        takes_files: bool = False,
    ) -> Iterator[RemoteRead]:
        """Up to ``count`` reads, at least one, each from the end of the one before it on.

        A read has whole batches from the batch that holds ``offset`` on, as one of ``Log.read``
        has.  ``offset`` is in the segment.  The batches end below ``end_offset`` and have at most
        ``max_bytes``, but with ``min_one`` at least one batch is read.  Batches before a damaged
        batch are returned; DamagedObjectError is raised when it is the first batch of a read.
        """
        assert segment.base_offset <= offset < segment.next_offset, (segment, offset)
        end = min(end_offset, segment.next_offset)
        walk = self._walk(segment, offset, max_bytes, WINDOW_BYTES if count == 1 else max_bytes)
        walk.skip_to(offset)
        for _ in range(count):
            position = walk.position
            walk.mark()
            first_offset, next_offset = _take_batches(walk, max_bytes, end_offset, min_one)
            self._note(segment, walk)
            if first_offset == NO_OFFSET:
                yield RemoteRead(b"", offset, offset)
                return
            aborted: tuple[RemoteAbortedTxn, ...] = ()
            if with_aborted:
                aborted = overlapping(self._aborted(segment), offset, next_offset)
            pieces = self._pieces(segment, position, walk.position) if takes_files else ()
            data = b"" if pieces else walk.taken()
            yield RemoteRead(data, first_offset, next_offset, aborted, pieces)
            if next_offset >= end:
                return
            offset = next_offset

    def _pieces(self, segment: RemoteSegment, start: int, stop: int) -> tuple[FilePiece, ...]:
        path = names.log_object(self._folder, segment.segment_id)
        return tuple(self._find_pieces(path, start, stop - start))

    def find_timestamp(
        self,
        segment: RemoteSegment,
        timestamp: int,
        *,
        start_offset: int = 0,
        budget: SearchBudget | None = None,
    ) -> OffsetTimestamp | None:
        """The first record from ``start_offset`` on with at least this timestamp (milliseconds).

        None if the segment has no such record.  Records that cannot be decoded are skipped.  The
        budget is that of one search over several segments; if the headers of batches are wrong, the
        result may be a lower bound (``record_search``).
        """
        if segment.max_timestamp < timestamp or segment.next_offset <= start_offset:
            return None
        budget = budget or SearchBudget()
        first = self._first_candidate(segment, timestamp, start_offset)
        walk = self._walk(segment, first, WINDOW_BYTES)
        walk.skip_to(first)
        self._note(segment, walk)
        while (header := walk.header()) is not None:
            batch = walk.take()
            if header.max_timestamp >= timestamp:
                found = _first_record(batch, header, timestamp, start_offset, budget)
                if found is not None:
                    epoch = epoch_of(segment.leader_epochs, found.offset)
                    return replace(found, leader_epoch=epoch)
        return None

    def beginning(self, segment: RemoteSegment, end_offset: int) -> RemoteSegment | None:
        """What is left of a segment when its records from ``end_offset`` on do not count any more.

        The state of the producers at its new end is not known.  None if no batch ends there.
        """
        if not segment.base_offset < end_offset < segment.next_offset:
            return None
        walk = self._walk(segment, end_offset - 1, 0)
        walk.skip_to(end_offset - 1)
        header = walk.header()
        if header is None or header.next_offset != end_offset:
            return None
        walk.take()
        parts = dict(segment.parts)
        parts.pop(PartName.PRODUCER_SNAPSHOT, None)
        return replace(
            segment,
            next_offset=end_offset,
            log_size=walk.position,
            leader_epochs=epochs_between(segment.leader_epochs, segment.base_offset, end_offset),
            parts=parts,
        )

    def leader_epochs(self, segment: RemoteSegment) -> tuple[EpochStart, ...]:
        """The leader epochs from the log start at the copy up to the end of the segment.

        The entries of the part that begin behind a segment that was shortened are left out.
        """
        name = PartName.LEADER_EPOCHS
        data = self.part(segment, name)
        path = self._indexes_path(segment)
        if data is None:
            raise part_error(path, segment, name, "the segment has no list of leader epochs")
        try:
            epochs = decode_epochs(data)
        except DecodeError as error:
            raise part_error(path, segment, name, str(error)) from error
        return tuple(each for each in epochs if each.start_offset < segment.next_offset)

    def producer_snapshot(self, segment: RemoteSegment) -> bytes | None:
        """The producer state at the end of the segment, as in its ``.snapshot`` file; None if the
        file did not exist, or if the segment was shortened."""
        return self.part(segment, PartName.PRODUCER_SNAPSHOT)

    def part(self, segment: RemoteSegment, name: PartName) -> bytes | None:
        """The bytes of a part; None if the segment has no such part (any more)."""
        if name not in segment.parts:
            return None
        path = self._indexes_path(segment)
        known: bytes | None = self._cache.get((path, name))
        if known is not None:
            return known
        data = read_part(self._read, path, segment, name)
        if data is not None:
            self._cache.put((path, name), data, len(data))
        return data

    def index(self, segment: RemoteSegment, name: PartName) -> bytes:
        """The offset index or the time index; empty if the segment has none, or a damaged one."""
        path = self._indexes_path(segment)
        if self._damaged.is_known(path, name):
            return b""
        try:
            return self.part(segment, name) or b""
        except DamagedObjectError as error:
            data = self._damaged.read_again(path, segment, name, error)
        if data is not None:
            self._cache.put((path, name), data, len(data))
        return data or b""

    def aborted_at(self, segment: RemoteSegment, offset: int) -> tuple[RemoteAbortedTxn, ...]:
        """The aborted transactions that are open behind the record before ``offset``, which lies in
        the segment: their markers lie at ``offset`` or above."""
        return tuple(
            each
            for each in self._aborted(segment)
            if each.first_offset < offset <= each.last_offset
        )

    def _aborted(self, segment: RemoteSegment) -> tuple[RemoteAbortedTxn, ...]:
        """All aborted transactions of the segment.  They are kept decoded."""
        name = PartName.ABORTED_TXNS
        path = self._indexes_path(segment)
        key = (path, "aborted transactions")
        known: tuple[RemoteAbortedTxn, ...] | None = self._cache.get(key)
        if known is not None:
            return known
        data = read_part(self._read, path, segment, name)
        if data is None:
            return ()
        try:
            entries = decode_aborted(data)
        except DecodeError as error:
            raise part_error(path, segment, name, str(error)) from error
        self._cache.put(key, entries, len(entries) * _ABORTED_BYTES)
        return entries

    def _walk(
        self,
        segment: RemoteSegment,
        offset: int,
        bytes_wanted: int,
        bytes_behind: int = WINDOW_BYTES,
    ) -> BatchWalk:
        path = names.log_object(self._folder, segment.segment_id)
        index = self.index(segment, PartName.OFFSET_INDEX)
        if not index and self._lacks_index(segment):
            index = self._damaged.begin(self._indexes_path(segment), segment, offset)
        return BatchWalk(self._read, path, segment, index, offset, bytes_wanted, bytes_behind)

    def _lacks_index(self, segment: RemoteSegment) -> bool:
        return self._damaged.is_known(self._indexes_path(segment), PartName.OFFSET_INDEX)

    def _note(self, segment: RemoteSegment, walk: BatchWalk) -> None:
        """Remember how far a walk without an offset index has come."""
        last = walk.taken_last
        if last is not None and self._lacks_index(segment):
            self._damaged.walked(self._indexes_path(segment), segment, last.offset, last.position)

    def _first_candidate(self, segment: RemoteSegment, timestamp: int, start_offset: int) -> int:
        """No record from ``start_offset`` on below this offset is at or above ``timestamp``."""
        base_offset = segment.base_offset
        times = self.index(segment, PartName.TIME_INDEX)
        before, after = times_around(times, base_offset, timestamp)
        first = max(before.offset, start_offset)
        if after is not None and before.timestamp < timestamp:
            # At each offset entry the time index was told what had been largest up to there.
            index = self.index(segment, PartName.OFFSET_INDEX)
            first = max(first, entries_around(index, base_offset, after.offset - 1)[0].offset)
        return first

    def _indexes_path(self, segment: RemoteSegment) -> str:
        return names.indexes_object(self._folder, segment.segment_id)


def _take_batches(
    walk: BatchWalk, max_bytes: int, end_offset: int, min_one: bool
) -> tuple[int, int]:
    """Take the batches of a read; their first and next offsets, NO_OFFSET without batches."""
    first_offset = next_offset = NO_OFFSET
    limit = walk.position + max_bytes
    try:
        while walk.position + BATCH_OVERHEAD <= limit or (min_one and first_offset == NO_OFFSET):
            header = walk.header()
            if header is None:
                break
            found = first_offset != NO_OFFSET
            if header.next_offset > end_offset:
                if not found:
                    walk.take()  # a damaged header must not look like the end of the reader's log
                break
            if walk.position + header.size > limit and (found or not min_one):
                break
            walk.take()
            first_offset = first_offset if found else header.base_offset
            next_offset = header.next_offset
    except DamagedObjectError:
        if first_offset == NO_OFFSET:
            raise
    return first_offset, next_offset


def _first_record(
    batch: Buffer, header: BatchHeader, timestamp: int, start_offset: int, budget: SearchBudget
) -> OffsetTimestamp | None:
    return first_record(lambda: batch, header, timestamp, start_offset, budget)
