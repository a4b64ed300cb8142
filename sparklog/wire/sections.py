"""Which batches of a fetch answer somebody wants, and what their headers say.

Owns: the CRC, and leaving out whole batches: those outside a range of offsets, control batches,
aborted ones and those that are too old.  Must not know single records.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.errors import DecodeError
from sparklog.types import Compression
from sparklog.wire.aborted import AbortedFilter
from sparklog.wire.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    batch_size,
    check_batch,
    read_header,
)
from sparklog.wire.compression import decompress
from sparklog.wire.messages.fetch import AbortedTransaction

#: Length, attributes, two deltas, key length, value length, header count: a byte each.
MIN_RECORD_BYTES: Final = 7


@dataclass(frozen=True, slots=True)
class Section:
    """One batch as it came, ``view[start:end]``, and what its header says about its records."""

    view: memoryview
    start: int
    end: int
    compression: Compression
    record_count: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    append_time: int | None

    def plain(self, limit_bytes: int) -> bytes | memoryview:
        """The records without the header, decompressed.

        Raises DecodeError for more than ``limit_bytes``, and for what cannot hold the records that
        the header says.
        """
        packed = self.view[self.start + BATCH_OVERHEAD : self.end]
        plain = decompress(self.compression, packed, limit_bytes)
        if not 0 <= self.record_count * MIN_RECORD_BYTES <= len(plain):
            raise DecodeError(
                f"batch at offset {self.base_offset} says {self.record_count} records "
                f"in {len(plain)} bytes"
            )
        return plain


def wanted_sections(
    view: memoryview,
    start_offset: int,
    end_offset: int,
    *,
    skip_control: bool = True,
    aborted: Sequence[AbortedTransaction] = (),
    min_timestamp: int | None = None,
    check_crc: bool = True,
) -> Iterator[Section]:
    """The batches with records in [start_offset, end_offset); see ``decode_columns``."""
    drops = AbortedFilter(aborted).drops if aborted else None
    position = 0
    while (size := batch_size(view, position)) is not None and position + size <= len(view):
        start, position = position, position + size
        (
            base_offset, _, _, _, crc, attributes, last_delta, base_timestamp, max_timestamp,
            _, _, _, count,
        ) = HEADER.unpack_from(view, start)  # fmt: skip
        if base_offset >= end_offset:
            continue
        # Before anything that the header says is believed: a damaged bit must not hide records.
        if check_crc and crc32c(view[start + CRC_START : position]) != crc:
            check_batch(view, start, read_header(view, start))
        # Shown every transactional batch, also those that nobody wants: a marker may be among them.
        if (
            drops is not None
            and attributes & TRANSACTIONAL_BIT
            and drops(view, start, read_header(view, start))
        ):
            continue
        if (
            base_offset + last_delta < start_offset
            or (attributes & CONTROL_BIT and skip_control)
            or (min_timestamp is not None and max_timestamp < min_timestamp)
        ):
            continue
        code = attributes & COMPRESSION_MASK
        if count == 0 and size == BATCH_OVERHEAD and code <= Compression.ZSTD:
            continue
        yield Section(
            view,
            start,
            position,
            Compression(code) if code <= Compression.ZSTD else read_header(view, start).compression,
            count,
            base_offset,
            base_offset + last_delta,
            base_timestamp,
            max_timestamp if attributes & TIMESTAMP_TYPE_BIT else None,
        )
