"""The objects of one segment as its reader sees them, read by URL.

Owns: which URL belongs to which object, and the bytes of the last read, with which the next read
begins.  Must not know what the bytes mean.

A read of batches begins with some bytes of the read before it, so these are kept.  A small indexes
object is read whole, because a reader needs several parts of it.
"""

from collections.abc import Callable
from typing import Final

from sparklog.remote_log import names
from sparklog.remote_log.read_memory import ReadMemory
from sparklog.remote_log.signed_segments import SignedSegment
from sparklog.wire.records.batch import Buffer

#: Indexes objects up to this size are read whole.
WHOLE_BYTES: Final = 1024 * 1024

#: Reads (URL, offset) into memory; see ``UrlRanges.read_into``.
ReadUrl = Callable[[str, int, memoryview], int]


class SignedObjects:
    """``read`` it as a ``ReadRange``.

    ``signed`` may be replaced by the same segment with other URLs.
    """

    def __init__(
        self, read_url: ReadUrl, folder: str, signed: SignedSegment, memory: ReadMemory
    ) -> None:
        self.signed = signed
        self._read_url = read_url
        self._log_path = names.log_object(folder, signed.segment.segment_id)
        self._memory = memory
        #: The bytes of the last read, and where they begin in their object.
        self._log = 0, memoryview(b"")
        self._indexes: bytes | None = None

    def read(self, path: str, offset: int, size: int) -> Buffer:
        """The bytes of an object of the segment.  Raises StorageError."""
        if path == self._log_path:
            return self._read_log(offset, size)
        segment = self.signed.segment
        total = segment.size - segment.log_size
        if total > WHOLE_BYTES:
            return self._read_indexes(offset, size)
        if self._indexes is None:
            self._indexes = self._read_indexes(0, total)
        return self._indexes[offset : offset + size]

    def _read_indexes(self, offset: int, size: int) -> bytes:
        memory = memoryview(bytearray(size))
        return bytes(memory[: self._read_url(self.signed.indexes_url, offset, memory)])

    def _read_log(self, offset: int, size: int) -> memoryview:
        start, data = self._log
        at = offset - start
        kept = data[at : at + size] if 0 <= at < len(data) else data[:0]
        if len(kept) == size:
            return kept
        whole = self._memory.room(size, kept)
        self._log = 0, memoryview(b"")  # in case of an error
        count = self._read_url(self.signed.log_url, offset + len(kept), whole[len(kept) :])
        self._log = offset, whole[: len(kept) + count]
        return self._log[1]
