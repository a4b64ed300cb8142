"""The ``compacted`` file, which says that a log may have gaps between its batches.

Owns: the file, by which a start knows of the gaps whatever ``cleanup.policy`` says by then.  Must
not know where the gaps are.

In a log that was never compacted, a gap above the recovery point is damage.  So the file is
durable before the first gap: before a cleaned segment is swapped in, and before a follower appends
behind a gap of its leader.  A start writes it for a compacted topic whose log lacks it,
because Kafka may have written that log.  It stays as long as the partition directory.

A record is missing because of a later one, and a truncation that drops only the later one would
lose the key.  So the file also holds a *bound*: everything that is missing has a later record below
it.  For a cleaning of this log that is where its active segment begins.  A follower takes the
high watermark of the leader that it copies from, because only committed records are cleaned.  The
file holds the next multiple of ``STEP``, so that it is seldom written; only a truncation to less
than that drops more than it must.
"""

from collections.abc import Iterable
from typing import Final

from sparklog.errors import StorageError
from sparklog.executors.log.names import COMPACTED_MARKER
from sparklog.executors.log.offset_file import decode_offset, encode_offset
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import BatchHeader

#: Offsets.
STEP: Final = 1 << 16


class GapMarker:
    """The file of one log; ``is_set`` tells whether it is there.

    ``cleaned`` may run in another thread than all other calls.
    """

    __slots__ = ("_cleaned", "_copied", "_half", "_path", "_written", "is_set")

    def __init__(self, half: FileHalf, partition_dir: str) -> None:
        self._half = half
        self._path = f"{partition_dir}/{COMPACTED_MARKER}"
        self.is_set = False
        #: The bounds of gaps that were copied, and of those of this log's cleanings.
        self._copied = self._cleaned = 0
        #: The bound in the file; less than any while there is none.
        self._written = -1

    @property
    def bound(self) -> int:
        """Everything that is missing has a later record below this offset; 0 without gaps."""
        return max(self._copied, self._cleaned)

    def load(self) -> None:
        """Read the file, if it is there.  Blocks.  Raises StorageError."""
        data = self._half.read_if_there(self._path)
        if data is not None:
            self.is_set = True
            bound = decode_offset(data)
            if bound is not None:
                self._copied = self._written = bound

    def announce(self) -> None:
        """Write a file without a bound.  Blocks.  Raises StorageError."""
        self._half.put(self._path, b"")
        self.is_set = True

    def settle(self, log_end_offset: int) -> None:
        """Take the log's end for the bound if the file has none.  Blocks.  Raises StorageError."""
        if self.is_set and self._written < 0:
            self._copied = log_end_offset
            self._write()

    def cleaned(self, bound: int) -> None:
        """Before gaps come into this log because of records below ``bound``: make that durable.

        Blocks.  Raises StorageError.
        """
        self._cleaned = max(self._cleaned, bound)
        self._write()

    def copies(self, headers: Iterable[BatchHeader], log_end_offset: int, committed: int) -> None:
        """Before batches are appended at the log's end: make durable that there are gaps in or
        before them, if so.

        ``committed`` is the high watermark of the leader that they come from.  Blocks if there are
        gaps.  Raises StorageError.
        """
        has_gaps = False
        for header in headers:
            first, last = header.base_offset, header.last_offset
            has_gaps |= first != log_end_offset or header.record_count != last - first + 1
            log_end_offset = last + 1
        if has_gaps:
            self._copied = max(self._copied, committed, log_end_offset)
            self._write()

    def _write(self) -> None:
        """Write until the file holds what both threads want."""
        while self._written < (bound := self.bound) or not self.is_set:
            rounded = -(-bound // STEP) * STEP
            try:
                self._half.put(self._path, encode_offset(rounded))
            except StorageError:
                self._written = -1
                raise
            self._written, self.is_set = rounded, True
