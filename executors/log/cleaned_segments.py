"""The values that the cleaner hands to the log: cleaned and replaced segments.

Owns: the names and the description of cleaned files.  Must not know how segments are cleaned, nor
how the log swaps them in.

The cleaner leaves the files of a cleaned segment in the partition's directory, durably, before it
hands over the value: ``<base offset>.log.cleaned``, ``.index.cleaned``, ``.timeindex.cleaned``, and
``.txnindex.cleaned`` if the segment has aborted transactions.  The formats are the same as for a
sealed segment.  A ``.cleaned`` file that no value names is a leftover, which may be removed
at any time.
"""

from dataclasses import dataclass
from typing import Final

from sparklog.executors.log.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from sparklog.types import NO_TIMESTAMP

#: Follows the ordinary suffix in the names of a cleaned segment's files (``LogFileUtils``).
CLEANED_SUFFIX: Final = ".cleaned"
#: The files of a cleaned segment, without CLEANED_SUFFIX.
CLEANED_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """A segment whose batches were filtered; sizes in bytes, timestamps in milliseconds.

    Its first batch may begin above ``base_offset``, and there are gaps between its batches, but its
    last batch ends at ``next_offset`` - 1, where the last batch of the replaced segments ends.  The
    largest timestamp is that of a batch; ``largest_offset`` is the last offset of the first batch
    that has it.  Without a timestamp they are -1 and the base offset.
    """

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int = NO_TIMESTAMP
    largest_offset: int
    #: Entries of the offset index, of the time index and of the transaction index.
    offset_entries: int = 0
    time_entries: int = 0
    aborted_entries: int = 0

    def path(self, partition_dir: str, suffix: str) -> str:
        """The path of a cleaned file; ``suffix`` is one of CLEANED_SUFFIXES."""
        return f"{partition_dir}/{file_name(self.base_offset, suffix)}{CLEANED_SUFFIX}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """A cleaned segment and the segments that it replaces.

    ``replaced`` are the base offsets of adjacent sealed segments, ascending.  The first is the base
    offset of the cleaned segment.
    """

    segment: CleanedSegment
    replaced: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.replaced, "a group replaces at least one segment"
        assert self.replaced[0] == self.segment.base_offset, self
        assert list(self.replaced) == sorted(set(self.replaced)), self
