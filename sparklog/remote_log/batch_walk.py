"""A walk over the batches of a log object, from an entry of the offset index on.

Owns: which ranges are read, and the checks of each batch.  Must not know why batches are read.

The bytes of a batch are trusted when its CRC is right, its leader epoch is that of the segment, and
its base offset follows from the batch before it or from the index entry at which the walk began.
"""

from typing import Final

from crc32c import crc32c

from sparklog.remote_log.batch_rules import BatchRules
from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.index_search import entries_around, entry_behind
from sparklog.remote_log.parts import ReadRange
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.segment_files.index_entries import OffsetPosition
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    CRC_START,
    BatchHeader,
    Buffer,
    read_header,
)

#: Bytes of each read behind the first one by default, unless a batch is larger.
WINDOW_BYTES: Final = 256 * 1024

#: Entries are that far apart where batches are so large that each of them has an entry, probably.
LARGE_BYTES: Final = 64 * 1024

NO_POSITION: Final = -1


class BatchWalk:
    """The batches from the last index entry at or below ``offset`` on.

    ``header`` looks at the present batch, ``take`` returns it and moves on.  Both methods block,
    and raise StorageError and DamagedObjectError.  The bytes are views of what was read.
    """

    def __init__(
        self,
        read: ReadRange,
        path: str,
        segment: RemoteSegment,
        offset_index: bytes,
        offset: int,
        bytes_wanted: int,
        bytes_behind: int = WINDOW_BYTES,
    ) -> None:
        """``bytes_wanted`` from ``offset`` on are read at once, with the bytes before them; and of
        what follows, ``bytes_behind`` at once."""
        self._read = read
        self._path = path
        self._segment = segment
        self._offset_index = offset_index
        self._rules = BatchRules(
            end_offset=segment.next_offset,
            log_size=segment.log_size,
            leader_epochs=segment.leader_epochs,
            gaps=segment.gaps,
        )
        begin, self._behind = entries_around(offset_index, segment.base_offset, offset)
        #: The bytes between the two entries, as far as they are known.
        self._lead = self._behind.position - begin.position if self._behind else WINDOW_BYTES
        self._header: BatchHeader | None = None
        #: Last offset and position of the batch that was taken last, if any.
        self.taken_last: OffsetPosition | None = None
        self._window = memoryview(b"")
        #: The position of ``mark``, and what was taken behind it and is not in the window any more.
        self._marked = NO_POSITION
        self._left: list[memoryview] = []
        self._start_at(begin, begin.offset, self._lead + bytes_wanted)
        self._begin, self._bytes_wanted, self._bytes_behind = begin, bytes_wanted, bytes_behind

    def _start_at(self, entry: OffsetPosition, lowest_offset: int, window_bytes: int) -> None:
        #: The position of the present batch.
        self.position = self._window_start = entry.position
        #: The entry that names the present batch; None behind it, and at the segment's start.
        self._anchor: OffsetPosition | None = entry if entry.position else None
        #: The lowest offset that the present batch can have.
        self._next_offset = lowest_offset
        self._window_bytes = window_bytes
        self._window = self._window[:0]
        self._header = None

    def skip_to(self, offset: int) -> None:
        """Pass by the batches that end below ``offset``, the offset of the walk.

        A damaged batch among them does not matter if the next entry's batch holds ``offset``.
        """
        if self._begin.offset < offset and self._lead >= LARGE_BYTES and self._leap(offset):
            return
        try:
            while (header := self.header()) is not None and header.last_offset < offset:
                self.take()
        except DamagedObjectError as error:
            if offset < error.end_offset or not self._leap(offset):
                raise

    def _leap(self, offset: int) -> bool:
        """Go to the next entry, if its batch holds ``offset``; else back to where the walk began.

        Large batches have an entry each.
        """
        if self._behind is None:
            return False
        self._start_at(self._behind, offset, self._bytes_wanted)
        try:
            header = self.header()
        except DamagedObjectError:
            header = None
        if header is not None and header.base_offset <= offset:
            return True
        self._start_at(self._begin, self._begin.offset, self._lead + self._bytes_wanted)
        return False

    def header(self) -> BatchHeader | None:
        """The header of the present batch, checked but for the CRC; None behind the last batch."""
        if self._header is None and self.position < self._segment.log_size:
            header = read_header(self._bytes(BATCH_OVERHEAD))
            damage = self._damage(header)
            if damage is not None:
                raise self._error(damage)
            self._header = header
        return self._header

    def take(self) -> memoryview:
        """The bytes of the present batch, which are all checked.  There must be a batch."""
        header = self.header()
        assert header is not None, "the walk has ended"
        batch = self._bytes(header.size)
        if read_header(batch) != header:
            raise self._error("the header has changed between two reads")
        found = crc32c(batch[CRC_START:])
        if found != header.crc:
            raise self._error(f"CRC is {header.crc:#010x}, the bytes give {found:#010x}")
        self.taken_last = OffsetPosition(header.last_offset, self.position)
        self.position += header.size
        self._next_offset = header.next_offset
        self._header = self._anchor = None
        return batch

    def mark(self) -> None:
        """Keep what is taken from now on, for ``taken``."""
        self._marked = self.position
        self._left = []

    def taken(self) -> Buffer:
        """The bytes of all batches that were taken since ``mark``, which keeps them."""
        window = self._window_from(self._marked)
        return b"".join((*self._left, window)) if self._left else window

    def _window_from(self, position: int) -> memoryview:
        """What is in the window from ``position``, or from its start, to the present batch."""
        start = max(0, position - self._window_start)
        return self._window[start : self.position - self._window_start]

    def _damage(self, header: BatchHeader) -> str | None:
        anchor = self._anchor
        if anchor is None:
            return self._rules.damage(header, self.position, self._next_offset)
        if header.last_offset != anchor.offset:
            return f"the last offset is {header.last_offset} where the index has {anchor.offset}"
        return self._rules.damage(header, self.position, header.base_offset)

    def _bytes(self, size: int) -> memoryview:
        """The next ``size`` bytes, from the window or from a new one."""
        index = self.position - self._window_start
        if index + size > len(self._window):
            left = self._segment.log_size - self.position
            wanted = min(max(size, self._window_bytes), left)
            window = memoryview(self._read(self._path, self.position, wanted))
            if len(window) < size:
                end = self.position + len(window)
                raise self._error(f"the object ends at byte {end} of {self._segment.log_size}")
            if self._marked != NO_POSITION:
                self._left.append(self._window_from(self._marked))
            self._window, self._window_start, index = window, self.position, 0
            self._window_bytes = self._bytes_behind
        return self._window[index : index + size]

    def _error(self, reason: str) -> DamagedObjectError:
        """The error for the present batch.  Raises StorageError."""
        end_offset = self._end_of_damage()
        return DamagedObjectError(self._path, self.position, reason, self._next_offset, end_offset)

    def _end_of_damage(self) -> int:
        """The first offset of the batch of the next index entry, where batches are found again.

        An entry has the last offset of its batch only.  This last offset is the result if the
        header of that batch is damaged too.
        """
        segment = self._segment
        behind = entry_behind(self._offset_index, segment.base_offset, self.position)
        # The index may reach above a segment that was shortened.
        if behind is None or behind.offset >= segment.next_offset:
            return segment.next_offset
        data = self._read(self._path, behind.position, BATCH_OVERHEAD)
        if len(data) < BATCH_OVERHEAD:
            return behind.offset
        header = read_header(data)
        if header.last_offset != behind.offset or header.base_offset <= self._next_offset:
            return behind.offset
        damage = self._rules.damage(header, behind.position, header.base_offset)
        return header.base_offset if damage is None else behind.offset
