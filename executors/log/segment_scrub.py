"""The check of a sealed segment for damage.

Owns: the check of every batch, in steps, and where the sound part continues after damage.  Must not
know the other segments, or why and how often a segment is checked.

The segment's offset index tells where the sound part continues, because an entry names the last
offset of its batch; otherwise the end of the segment tells.  From there the range is made
smaller: a batch inside it counts as sound only if a chain of sound batches leads from it to that
place.  Records that happen to hold batches are not taken for batches of the log.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.errors import StorageError
from sparklog.executors.log.checkpoint import EpochEntry
from sparklog.executors.log.damaged_ranges import DamagedRange
from sparklog.executors.log.offset_index import unpack_offset_index
from sparklog.executors.log.scan import ScanWindow
from sparklog.executors.log.segment_stats import SegmentFiles
from sparklog.segment_files.index_entries import OffsetPosition
from sparklog.wire.records.batch import BATCH_OVERHEAD, MAGIC_V2, BatchHeader, read_header
from sparklog.wire.records.stored_batches import epoch_damage, placement_damage

#: One step ends after this many bytes or this many batches, whichever comes first.
STEP_BYTES: Final = 1 << 20
STEP_BATCHES: Final = 1000
#: A check near an offset goes so much further than the index entry behind it.
NEAR_BYTES: Final = 1 << 20
#: Index entries before an offset that are tried as a start, before the start of the segment is.
_ENTRIES_TRIED: Final = 8
#: Bytes, at most, that are searched one by one to make a damaged range smaller.
_SEARCH_BYTES: Final = 4 << 20
_MAGIC_AT: Final = 16


@dataclass(frozen=True, slots=True)
class _Place:
    """The position and offset of a sound batch, or of the end of the segment."""

    position: int
    offset: int


class SegmentScrub:
    """A check of the bytes [``position``, ``end``): call ``check_more`` until it returns 0.

    ``check_more`` blocks, uses nothing but files, and may run in any thread.  ``found`` are the
    damaged ranges so far, in the order of the file.
    """

    def __init__(
        self,
        files: SegmentFiles,
        *,
        epochs: Sequence[EpochEntry],
        end_offset: int,
        around: int | None = None,
    ) -> None:
        """``end_offset`` is the end of the segment.  With ``around`` only the batches near that
        offset are checked."""
        self.found: list[DamagedRange] = []
        self._taken = 0
        #: The positions where the check began and where it is.
        self.began = 0
        self.position, self.next_offset = 0, files.base_offset
        self._files = files
        self._epochs = epochs
        self._end_offset = end_offset
        self._end = files.log_size
        self._around = around

    def check_more(self) -> int:
        """Check some more batches; return their bytes, 0 at the end.  Raises StorageError."""
        handle = self._files.half.open(self._files.log_path)
        try:
            window = ScanWindow(handle)
            if window.size < self._files.log_size:
                raise StorageError(
                    f"{handle.path} has {window.size} bytes where {self._files.log_size} were "
                    "written; something else cut it: look at the disk"
                )
            window.size = self._files.log_size
            if self._around is not None:
                self._begin_near(window, self._around)
                self._around = None
            return self._check(window)
        finally:
            handle.close()

    def take_new(self) -> list[DamagedRange]:
        """The damaged ranges that were found since the last call."""
        taken, self._taken = self._taken, len(self.found)
        return self.found[taken:]

    def _begin_near(self, window: ScanWindow, offset: int) -> None:
        """Limit the check to the batches near ``offset``."""
        entries = self._index_entries()
        below = bisect_left(entries, offset, key=lambda entry: entry.offset)
        if below < len(entries):
            self._end = min(entries[below].position + NEAR_BYTES, self._files.log_size)
        for entry in reversed(entries[max(0, below - _ENTRIES_TRIED) : below]):
            header, damage = self._read_batch(window, entry.position, self._files.base_offset)
            if header is not None and damage is None and header.last_offset == entry.offset:
                self.began = self.position = entry.position
                self.next_offset = header.base_offset
                return

    def _check(self, window: ScanWindow) -> int:
        began, batches = self.position, 0
        while (
            self.position < self._end
            and self.position - began < STEP_BYTES
            and batches < STEP_BATCHES
        ):
            batches += 1
            header, damage = self._read_batch(window, self.position, self.next_offset)
            if damage is not None or header is None:
                self._note(self._range_at(window, damage or "a batch header is cut off"))
                continue
            of_epoch = epoch_damage(header, self._epochs)
            if of_epoch is not None:
                self._note(_epoch_range(header, self.position, of_epoch))
                continue
            self.position += header.size
            self.next_offset = header.next_offset
        return self.position - began

    def _note(self, damaged: DamagedRange) -> None:
        self.found.append(damaged)
        self.position, self.next_offset = damaged.end, damaged.end_offset

    def _read_batch(
        self, window: ScanWindow, position: int, next_offset: int
    ) -> tuple[BatchHeader | None, str | None]:
        """The batch at a position, and its damage apart from its leader epoch."""
        header = window.header(position)
        if header is None:
            return None, f"a batch header is cut off after {window.size - position} bytes"
        damage = placement_damage(
            header, window.size - position, next_offset=next_offset, end_offset=self._end_offset
        )
        if damage is None:
            damage = window.checksum_damage(header, position)
        if damage is None and header.base_offset > next_offset:
            damage = self._gap_damage(window, position, header, next_offset)
        return header, damage

    def _gap_damage(
        self, window: ScanWindow, position: int, header: BatchHeader, next_offset: int
    ) -> str | None:
        """A gap in front of a batch is compaction's, if what follows the batch fits it."""
        following = window.header(position + header.size)
        limit = self._end_offset if following is None else following.base_offset
        if header.next_offset <= limit:
            return None
        return f"base offset is {header.base_offset} where {next_offset} must follow"

    # after damage

    def _range_at(self, window: ScanWindow, reason: str) -> DamagedRange:
        position, next_offset = self.position, self.next_offset
        place = self._sound_from(window, position, next_offset)
        return DamagedRange(
            position=position,
            end=place.position,
            first_offset=next_offset,
            end_offset=place.offset,
            reason=reason,
        )

    def _sound_from(self, window: ScanWindow, position: int, next_offset: int) -> _Place:
        """The first place behind damage at ``position`` from where the log is sound again."""
        anchor = self._anchor_after(window, position, next_offset)
        header = window.header(position)
        if header is not None and BATCH_OVERHEAD <= header.size <= anchor.position - position:
            place = self._leads_to(window, position + header.size, next_offset, anchor)
            if place is not None:
                return place
        size = min(anchor.position - position, _SEARCH_BYTES)
        data = window.read(position, size)
        at = data.find(MAGIC_V2, 1 + _MAGIC_AT)
        while at >= 0:
            start = at - _MAGIC_AT
            if start + BATCH_OVERHEAD > len(data):
                break
            header = read_header(data, start)
            if next_offset < header.base_offset < anchor.offset:
                place = self._leads_to(window, position + start, next_offset, anchor)
                if place is not None:
                    return place
            at = data.find(MAGIC_V2, at + 1)
        return anchor

    def _leads_to(
        self, window: ScanWindow, position: int, next_offset: int, anchor: _Place
    ) -> _Place | None:
        """The place at ``position``, if sound batches without gaps lead from it to ``anchor``."""
        if position == anchor.position:
            return anchor
        first: _Place | None = None
        while position < anchor.position:
            header, damage = self._read_batch(window, position, next_offset)
            if header is None or damage is not None:
                return None
            if first is None:
                if header.base_offset <= next_offset:
                    return None  # a damaged range held at least one offset
                first = _Place(position, header.base_offset)
            elif header.base_offset != next_offset:
                return None
            position += header.size
            next_offset = header.next_offset
        return first if (position, next_offset) == (anchor.position, anchor.offset) else None

    def _anchor_after(self, window: ScanWindow, position: int, next_offset: int) -> _Place:
        """The next batch that an index entry leads to, or the end of the segment."""
        for entry in self._index_entries():
            if entry.position <= position:
                continue
            place = self._place_of(window, entry, next_offset)
            if place is not None:
                return place
        return _Place(self._files.log_size, self._end_offset)

    def _place_of(
        self, window: ScanWindow, entry: OffsetPosition, next_offset: int
    ) -> _Place | None:
        if entry.position >= self._files.log_size or entry.offset <= next_offset:
            return None
        header, damage = self._read_batch(window, entry.position, next_offset)
        if header is None or damage is not None or header.last_offset != entry.offset:
            return None
        if header.base_offset <= next_offset:
            return None
        return _Place(entry.position, header.base_offset)

    def _index_entries(self) -> list[OffsetPosition]:
        data = self._files.read(self._files.index_path)
        return [] if data is None else unpack_offset_index(data, self._files.base_offset)


def _epoch_range(header: BatchHeader, position: int, reason: str) -> DamagedRange:
    return DamagedRange(
        position=position,
        end=position + header.size,
        first_offset=header.base_offset,
        end_offset=header.next_offset,
        reason=reason,
        readable=True,
    )
