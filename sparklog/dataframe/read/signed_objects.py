"""The objects of one segment as its reader sees them, read by URL.

Owns: which URL belongs to which object, and the bytes of the last read, with which the next read
begins.  Must not know what the bytes mean.

A read of batches begins with some bytes of the read before it, so these are kept.  A small indexes
object is read whole, because a reader needs several parts of it.
"""

from collections.abc import Callable
from typing import Final

from sparklog.remote_log import names
from sparklog.remote_log.signed_segments import SignedSegment

#: Indexes objects up to this size are read whole.
WHOLE_BYTES: Final = 1024 * 1024

#: Reads (URL, offset, size); see ``UrlRanges.read``.
ReadUrl = Callable[[str, int, int], bytes]


class SignedObjects:
    """``read`` it as a ``ReadRange``.  ``signed`` may be replaced by the same segment with other
    URLs."""

    def __init__(self, read_url: ReadUrl, folder: str, signed: SignedSegment) -> None:
        self.signed = signed
        self._read_url = read_url
        self._log_path = names.log_object(folder, signed.segment.segment_id)
        #: The bytes of the last read, and where they begin in their object.
        self._log: tuple[int, bytes] = (0, b"")
        self._indexes: bytes | None = None

    def read(self, path: str, offset: int, size: int) -> bytes:
        """The bytes of an object of the segment.  Raises StorageError."""
        if path == self._log_path:
            return self._read_log(offset, size)
        segment = self.signed.segment
        total = segment.size - segment.log_size
        if total > WHOLE_BYTES:
            return self._read_url(self.signed.indexes_url, offset, size)
        if self._indexes is None:
            self._indexes = self._read_url(self.signed.indexes_url, 0, total)
        return self._indexes[offset : offset + size]

    def _read_log(self, offset: int, size: int) -> bytes:
        start, data = self._log
        kept = data[offset - start :][:size] if start <= offset < start + len(data) else b""
        if len(kept) < size:
            at = offset + len(kept)
            kept += self._read_url(self.signed.log_url, at, size - len(kept))
            self._log = offset, kept
        return kept
