"""The ``clean-offset`` file: the offset below which a log has been compacted.

Owns: the file, and the guarantee that the offset is never above the log's end.  Must not know how a
log is compacted.

The file goes with the partition directory, so that it never describes another log of the same name.
A truncation that drops records below the offset lowers it, durably: the records that the log gets
afterwards are not compacted.  A truncation above the offset leaves it, because a later truncation
below it must drop the whole log.

Kafka keeps these offsets in ``cleaner-offset-checkpoint``, one file in each log directory.  A lost
file only lets the log be compacted again.
"""

import logging

from sparklog.executors.log.names import CLEAN_OFFSET
from sparklog.executors.log.offset_file import decode_offset, encode_offset
from sparklog.storage_backends.base import FileHalf

logger = logging.getLogger(__name__)


class CleanOffset:
    """The file of one log; ``offset`` is None for a log that was never compacted."""

    __slots__ = ("_half", "_path", "offset")

    def __init__(self, half: FileHalf, partition_dir: str) -> None:
        self._half = half
        self._path = f"{partition_dir}/{CLEAN_OFFSET}"
        self.offset: int | None = None

    def load(self, log_end_offset: int) -> None:
        """Read the file, and lower it to the log's end.  Raises StorageError."""
        data = self._half.read_if_there(self._path)
        if data is None:
            return
        self.offset = decode_offset(data)
        if self.offset is None:
            logger.warning("%s cannot be read: the log is compacted anew", self._path)
        self.lower(log_end_offset)

    def write(self, offset: int) -> None:
        """Replace the file, durably.  Blocks.  Raises StorageError."""
        self._half.put(self._path, encode_offset(offset))
        self.offset = offset

    def lower(self, offset: int) -> None:
        """Lower the offset to at most this one.  Blocks.  Raises StorageError."""
        if self.offset is not None and self.offset > offset:
            self.write(offset)
