"""The ``compacted`` file, which says that a log may have gaps between or inside its batches.

Owns: the empty file, by which a start knows of the gaps whatever ``cleanup.policy`` says by then.
Must not know where the gaps are, or why.

In a log that was never compacted, a gap above the recovery point is damage.  So the file is
durable before the first gap: before a cleaned segment is swapped in, and before a follower appends
behind a gap of its leader, or a batch that lacks records.  A start writes it for a compacted topic
whose log lacks it, because Kafka may have written that log.  It stays as long as the partition
directory.
"""

from collections.abc import Sequence

from sparklog.executors.log.names import COMPACTED_MARKER
from sparklog.storage_backends.base import FileHalf
from sparklog.wire.records.batch import BatchHeader


class GapMarker:
    """The file of one log; ``is_set`` tells whether it is there."""

    __slots__ = ("_half", "_path", "is_set")

    def __init__(self, half: FileHalf, partition_dir: str, *, is_set: bool) -> None:
        self._half = half
        self._path = f"{partition_dir}/{COMPACTED_MARKER}"
        self.is_set = is_set

    def set(self) -> None:
        """Write the file, durably, unless it is there.  Blocks.  Raises StorageError.

        Two threads may call this at the same time.
        """
        if not self.is_set:
            self._half.put(self._path, b"")
            self.is_set = True

    def set_before(self, headers: Sequence[BatchHeader], log_end_offset: int) -> None:
        """Call ``set`` if there is a gap before, or in, one of the batches to append."""
        if self.is_set:
            return
        for header in headers:
            first, end = header.base_offset, header.next_offset
            if first != log_end_offset or header.record_count != end - first:
                self.set()
                return
            log_end_offset = end
