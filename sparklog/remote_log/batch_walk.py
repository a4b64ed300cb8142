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
from sparklog.wire.records.batch import BATCH_OVERHEAD, CRC_START, BatchHeader, read_header

#: Bytes of each read behind the first one, unless a batch is larger.
WINDOW_BYTES: Final = 256 * 1024


class BatchWalk:
    """The batches from the last index entry at or below ``offset`` on.

    ``header`` looks at the present batch, ``take`` returns it and moves on.  Both methods block,
    and raise StorageError and DamagedObjectError.
    """

    def __init__(
        self,
        read: ReadRange,
        path: str,
        segment: RemoteSegment,
        offset_index: bytes,
        offset: int,
        bytes_wanted: int,
    ) -> None:
        """``bytes_wanted`` from ``offset`` on are read at once, with the bytes before them."""
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
        begin, behind = entries_around(offset_index, segment.base_offset, offset)
        #: The position of the present batch.
        self.position = begin.position
        #: The entry that names the present batch; None behind it, and at the segment's start.
        self._anchor: OffsetPosition | None = begin if begin.position else None
        #: The lowest offset that the present batch can have.
        self._next_offset = begin.offset
        self._header: BatchHeader | None = None
        lead = behind.position - begin.position if behind else WINDOW_BYTES
        self._window_bytes = lead + bytes_wanted
        self._window = memoryview(b"")
        self._window_start = begin.position

    def skip_to(self, offset: int) -> None:
        """Pass by the batches that end below ``offset``."""
        while (header := self.header()) is not None and header.last_offset < offset:
            self.take()

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
        """The bytes of the present batch, which are all checked.  There must be a batch.

        They are gone with the next call.
        """
        header = self.header()
        assert header is not None, "the walk has ended"
        batch = self._bytes(header.size)
        if read_header(batch) != header:
            raise self._error("the header has changed between two reads")
        found = crc32c(batch[CRC_START:])
        if found != header.crc:
            raise self._error(f"CRC is {header.crc:#010x}, the bytes give {found:#010x}")
        self.position += header.size
        self._next_offset = header.next_offset
        self._header = self._anchor = None
        return batch

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
            self._window, self._window_start, index = window, self.position, 0
            self._window_bytes = WINDOW_BYTES
        return self._window[index : index + size]

    def _error(self, reason: str) -> DamagedObjectError:
        """The error for the present batch: batches are found again at the next index entry."""
        segment = self._segment
        behind = entry_behind(self._offset_index, segment.base_offset, self.position)
        end_offset = segment.next_offset
        if behind is not None:  # the index may reach above a segment that was shortened
            end_offset = min(end_offset, behind.offset)
        return DamagedObjectError(self._path, self.position, reason, self._next_offset, end_offset)
