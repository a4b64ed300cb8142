"""Plain record batches, filtered and uncompressed, for a reader that decodes records itself.

Owns: the choice of batches, and their division into pieces of whole batches.  Must not know single
records, or the reader.

The CRC of all batches was checked.  There are no control batches, aborted batches or compressed
batches: a compressed batch is replaced by an uncompressed batch, whose header has the old and wrong
CRC.  The records of a large batch come as several batches, which bounds the size of a piece.  The
reader skips records outside the range of offsets.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.errors import DecodeError
from sparklog.types import Compression
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    LOG_OVERHEAD,
    Buffer,
    read_header,
)
from sparklog.wire.records.compression import MAX_UNCOMPRESSED_BYTES
from sparklog.wire.records.record_slices import RecordSlice, check_count
from sparklog.wire.records.sections import OnFault, Section, wanted_sections

#: A piece ends with the batch that makes it this large.
PIECE_BYTES: Final = 256 * 1024
#: Batches up to this decompressed size are not cut: cutting costs more than decompressing.
WHOLE_BYTES: Final = 4 * 1024 * 1024

_LENGTH_AT: Final = 8
_ATTRIBUTES_AT: Final = 21
_RECORD_COUNT_AT: Final = 57
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of batches; piece i is ``data[edges[i]:edges[i + 1]]``, at least one batch."""

    data: Buffer
    edges: tuple[int, ...]


def plain_batches(
    batches: Buffer,
    *,
    start_offset: int,
    end_offset: int,
    aborted: Sequence[AbortedTransaction] = (),
    min_timestamp: int | None = None,
    check_crc: bool = True,
    limit_bytes: int = MAX_UNCOMPRESSED_BYTES,
    piece_bytes: int = PIECE_BYTES,
    on_fault: OnFault | None = None,
) -> Iterator[Pieces]:
    """The batches with records in [start_offset, end_offset), in order.

    Pieces share the memory of ``batches`` where nothing was compressed.  Arguments and errors are
    those of ``decode_columns``.
    """
    view = memoryview(batches)
    edges: list[int] = []
    unpacked: list[Buffer] = []
    size = 0
    for section in wanted_sections(
        view,
        start_offset,
        end_offset,
        aborted=aborted,
        min_timestamp=min_timestamp,
        check_crc=check_crc,
        on_fault=on_fault,
    ):
        compressed = section.compression is not Compression.NONE
        if edges and (compressed or edges[-1] != section.start):
            yield _shared(view, edges)
            edges = []
        if unpacked and not compressed:
            yield _joined(unpacked)
            unpacked, size = [], 0
        if compressed:
            for part in section.slices(limit_bytes, WHOLE_BYTES, on_fault):
                if size >= piece_bytes:
                    yield _joined(unpacked)
                    unpacked, size = [], 0
                unpacked += (_plain_header(section, part), part.data)
                size += BATCH_OVERHEAD + len(part.data)
        elif not _is_counted(section, limit_bytes, on_fault):
            continue
        elif len(edges) < 2 or edges[-1] - edges[-2] >= piece_bytes:
            edges = [*(edges or [section.start]), section.end]
        else:
            edges[-1] = section.end
    if edges:
        yield _shared(view, edges)
    if unpacked:
        yield _joined(unpacked)


def _shared(view: memoryview, edges: list[int]) -> Pieces:
    first = edges[0]
    return Pieces(view[first : edges[-1]], tuple(edge - first for edge in edges))


def _joined(parts: list[Buffer]) -> Pieces:
    data = b"".join(parts)
    return Pieces(data, (0, len(data)))


def _is_counted(section: Section, limit_bytes: int, on_fault: OnFault | None) -> bool:
    """Whether an uncompressed batch can hold as many records as its header says."""
    size = section.end - section.start - BATCH_OVERHEAD
    try:
        if size > limit_bytes:
            raise DecodeError(f"a batch holds more than {limit_bytes} bytes of records")
        check_count(section.record_count, size)
    except DecodeError as error:
        if on_fault is None:
            raise
        on_fault(section.base_offset, section.last_offset, error)
        return False
    return True


def _plain_header(section: Section, part: RecordSlice) -> bytes:
    """The header of an uncompressed batch of these records."""
    header = bytearray(section.view[section.start : section.start + BATCH_OVERHEAD])
    attributes = read_header(header).attributes & ~COMPRESSION_MASK
    _INT32.pack_into(header, _LENGTH_AT, BATCH_OVERHEAD - LOG_OVERHEAD + len(part.data))
    _INT16.pack_into(header, _ATTRIBUTES_AT, attributes)
    _INT32.pack_into(header, _RECORD_COUNT_AT, part.count)
    return bytes(header)
