"""Walks over the batches of a log file by their headers.

Owns: the steps from batch to batch with few, small reads, the refusal of impossible lengths, and
the reading of markers.  Must not know other records or checksums.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from sparklog.errors import CorruptLogError, DecodeError
from sparklog.storage_backends.base import FileHandle
from sparklog.wire.records.batch import BATCH_OVERHEAD, LOG_OVERHEAD, BatchHeader, read_header
from sparklog.wire.records.control import CONTROL_BYTES_MAX, EndTxnMarker, read_marker

#: Bytes of each read: many small batches, or the header of a large batch.  A smaller read is hardly
#: cheaper.
_WINDOW_BYTES: Final = 8192
_LENGTH: Final = struct.Struct(">8xi")
#: Base offset, last offset delta, max timestamp.
_PEEK: Final = struct.Struct(">q15xi8xq")


class BatchSpan(NamedTuple):
    """The position and size of a batch, its offsets and its largest timestamp."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int

    @property
    def end(self) -> int:
        return self.position + self.size


def iter_spans(handle: FileHandle, position: int, end: int) -> Iterator[BatchSpan]:
    """The batches in the bytes [position, end).  Raises CorruptLogError."""
    for at, size, window, index in _iter_heads(handle, position, end):
        base_offset, last_offset_delta, max_timestamp = _PEEK.unpack_from(window, index)
        if last_offset_delta < 0:
            raise CorruptLogError(handle.path, at, f"last offset delta {last_offset_delta}")
        yield BatchSpan(at, size, base_offset, base_offset + last_offset_delta, max_timestamp)


def iter_headers(handle: FileHandle, position: int, end: int) -> Iterator[tuple[BatchHeader, int]]:
    """Whole headers and positions of the batches in [position, end).  Raises CorruptLogError."""
    for at, _, window, index in _iter_heads(handle, position, end):
        yield read_header(window, index), at


def last_boundary(handle: FileHandle, position: int, end: int, limit: int) -> int:
    """The last batch boundary at or before ``limit``, of the batches in the bytes [position, end).

    Raises CorruptLogError.
    """
    if limit - position < BATCH_OVERHEAD:
        return position
    for at, size, _, _ in _iter_heads(handle, position, end):
        if at + size > limit:
            return at
    return end


def marker_at(handle: FileHandle, position: int, header: BatchHeader) -> EndTxnMarker | None:
    """The marker in a control batch; None without a marker.  Raises CorruptLogError."""
    if header.size > CONTROL_BYTES_MAX:
        raise CorruptLogError(handle.path, position, f"a control batch of {header.size} bytes")
    try:
        return read_marker(handle.read(position, header.size), 0, header)
    except DecodeError as error:
        raise CorruptLogError(handle.path, position, str(error)) from error


def _iter_heads(
    handle: FileHandle, position: int, end: int
) -> Iterator[tuple[int, int, bytes, int]]:
    """Position and size of each batch, and a window of the file with the header at an index."""
    window, start = b"", position
    while position < end:
        index = position - start
        if index + BATCH_OVERHEAD > len(window):
            window, start, index = handle.read(position, _WINDOW_BYTES), position, 0
            if len(window) < BATCH_OVERHEAD or position + BATCH_OVERHEAD > end:
                raise CorruptLogError(handle.path, position, "a batch header is cut off")
        (length,) = _LENGTH.unpack_from(window, index)
        size = length + LOG_OVERHEAD
        if size < BATCH_OVERHEAD or position + size > end:
            raise CorruptLogError(
                handle.path, position, f"batch length {length} with {end - position} bytes left"
            )
        yield position, size, window, index
        position += size
