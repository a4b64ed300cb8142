"""Damaged ranges of a segment's log file, and walks over its batches that step around them.

Owns: the value that describes a damaged range, and how a walk treats it.  Must not know how damage
is found or repaired.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparklog.errors import DamagedRangeError
from sparklog.executors.log.spans import BatchSpan, iter_headers, iter_spans
from sparklog.storage_backends.base import FileHandle
from sparklog.types import NO_TIMESTAMP
from sparklog.wire.records.batch import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedRange:
    """The bytes [``position``, ``end``) of a log file that held the offsets [``first_offset``,
    ``end_offset``).

    The batch before it ends at ``position``, and a sound batch, or the end of the segment, is at
    ``end``.  ``readable``: the records are sound, and only the leader epoch in a batch header,
    which no checksum covers, is wrong.
    """

    position: int
    end: int
    first_offset: int
    end_offset: int
    reason: str
    readable: bool = False

    @property
    def size(self) -> int:
        return self.end - self.position

    def overlaps(self, other: "DamagedRange") -> bool:
        return self.position < other.end and other.position < self.end

    def covers(self, other: "DamagedRange") -> bool:
        """Whether a walk that steps around this range steps around the other range too."""
        inside = self.position <= other.position and other.end <= self.end
        return inside and (other.readable or not self.readable)

    def joined(self, other: "DamagedRange") -> "DamagedRange":
        """One range for two overlapping ranges."""
        return DamagedRange(
            position=min(self.position, other.position),
            end=max(self.end, other.end),
            first_offset=min(self.first_offset, other.first_offset),
            end_offset=max(self.end_offset, other.end_offset),
            reason=self.reason,
            readable=self.readable and other.readable,
        )

    def as_span(self) -> BatchSpan:
        """The range as one batch that has no timestamp."""
        last_offset = self.end_offset - 1
        return BatchSpan(self.position, self.size, self.first_offset, last_offset, NO_TIMESTAMP)

    def error(self, path: str) -> DamagedRangeError:
        """The error of a read of these offsets."""
        return DamagedRangeError(
            path, self.position, self.reason, self.first_offset, self.end_offset
        )


#: The damaged ranges of one segment, in the order of the file, without overlaps.
DamagedRanges = Sequence[DamagedRange]


def walk_spans(
    handle: FileHandle, position: int, end: int, damaged: DamagedRanges
) -> Iterator[BatchSpan]:
    """The batches in [position, end), a damaged range as if it were one batch.

    A position inside a damaged range counts as the start of that range.  Raises CorruptLogError.
    """
    for damaged_range in unreadable(damaged):
        if damaged_range.end <= position or damaged_range.position >= end:
            continue
        if damaged_range.position > position:
            yield from iter_spans(handle, position, damaged_range.position)
        yield damaged_range.as_span()
        position = damaged_range.end
    yield from iter_spans(handle, position, end)


def walk_sound_spans(
    handle: FileHandle, position: int, end: int, damaged: DamagedRanges
) -> Iterator[BatchSpan]:
    """The batches in [position, end).  Raises DamagedRangeError where the walk meets damage."""
    for span in walk_spans(handle, position, end, damaged):
        for damaged_range in unreadable(damaged) if damaged else ():
            if damaged_range.position == span.position:
                raise damaged_range.error(handle.path)
        yield span


def walk_headers(
    handle: FileHandle, position: int, end: int, damaged: DamagedRanges
) -> Iterator[tuple[BatchHeader, int]]:
    """Headers and positions of the batches in [position, end) that are outside damaged ranges."""
    for damaged_range in unreadable(damaged):
        if damaged_range.end <= position or damaged_range.position >= end:
            continue
        if damaged_range.position > position:
            yield from iter_headers(handle, position, damaged_range.position)
        position = damaged_range.end
    yield from iter_headers(handle, position, end)


def sound_end(path: str, position: int, end: int, damaged: DamagedRanges) -> int:
    """The position up to which the bytes from ``position`` to ``end`` may be served.

    Raises DamagedRangeError when a damaged range begins at ``position``.
    """
    for damaged_range in unreadable(damaged):
        if damaged_range.position <= position < damaged_range.end:
            raise damaged_range.error(path)
        if position < damaged_range.position < end:
            return damaged_range.position
    return end


def is_damaged(position: int, damaged: DamagedRanges) -> bool:
    """Whether a byte of the log file lies in a damaged range."""
    return any(
        damaged_range.position <= position < damaged_range.end
        for damaged_range in unreadable(damaged)
    )


def unreadable(damaged: DamagedRanges) -> Iterator[DamagedRange]:
    """The ranges that a walk must step around."""
    return (damaged_range for damaged_range in damaged if not damaged_range.readable)
