"""The wanted batches of a fetch response, with their headers.

Owns: the CRC check, and skipping whole batches: outside of a range of offsets, control batches,
aborted batches and batches that are too old.  Must not know single records.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from sparklog.errors import DecodeError, KafkaError, SparklogError
from sparklog.types import Compression
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import (
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
from sparklog.wire.records.record_slices import RecordSlice, record_slices, whole_slice

#: Called for unreadable records: first offset, last offset, error.  It raises, or returns to skip
#: these records.
OnFault: TypeAlias = Callable[[int, int, SparklogError], None]


class Section(NamedTuple):
    """One batch, ``view[start:end]``, and the header fields about its records."""

    view: memoryview
    start: int
    end: int
    compression: Compression
    record_count: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    append_time: int | None

    def slices(
        self, limit_bytes: int, whole_bytes: int, on_fault: OnFault | None = None
    ) -> Iterable[RecordSlice]:
        """The records without the header, decompressed; see ``record_slices``.

        Raises DecodeError.  With ``on_fault``, undecodable records are skipped.
        """
        packed = self.view[self.start + BATCH_OVERHEAD : self.end]
        try:
            whole = whole_slice(
                self.compression,
                packed,
                self.record_count,
                limit_bytes=limit_bytes,
                whole_bytes=whole_bytes,
            )
        except DecodeError as error:
            if on_fault is None:
                raise
            on_fault(self.base_offset, self.last_offset, error)
            return ()
        if whole is not None:
            return (whole,)
        return self._several(packed, limit_bytes, whole_bytes, on_fault)

    def _several(
        self, packed: memoryview, limit_bytes: int, whole_bytes: int, on_fault: OnFault | None
    ) -> Iterator[RecordSlice]:
        # This imports NumPy, which only slices of large batches need.
        from sparklog.wire.records.record_starts import searched_records

        given = 0
        try:
            for part in record_slices(
                self.compression,
                packed,
                self.record_count,
                limit_bytes=limit_bytes,
                whole_bytes=whole_bytes,
                find_whole=searched_records,
            ):
                yield part
                given += part.count
        except DecodeError as error:
            if on_fault is None:
                raise
            on_fault(min(self.base_offset + given, self.last_offset), self.last_offset, error)


def wanted_sections(
    view: memoryview,
    start_offset: int,
    end_offset: int,
    *,
    skip_control: bool = True,
    aborted: Sequence[AbortedTransaction] = (),
    min_timestamp: int | None = None,
    check_crc: bool = True,
    on_fault: OnFault | None = None,
) -> Iterator[Section]:
    """The batches with records in [start_offset, end_offset); see ``decode_columns``.

    With ``on_fault``, batches with a wrong CRC are skipped whole.
    """
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
        # Checked before any use of the header: a damaged bit must not hide records.
        if check_crc and crc32c(view[start + CRC_START : position]) != crc:
            try:
                check_batch(view, start, read_header(view, start))
            except KafkaError as error:
                if on_fault is None:
                    raise
                on_fault(base_offset, base_offset + max(last_delta, 0), error)
                continue
        # Called for every transactional batch, wanted or not: it may be a marker.
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
        if code > Compression.ZSTD:
            unknown = DecodeError(f"batch at offset {base_offset} has unknown codec {code}")
            if on_fault is None:
                raise unknown
            on_fault(base_offset, base_offset + last_delta, unknown)
            continue
        if count == 0 and size == BATCH_OVERHEAD:
            continue
        yield Section(
            view,
            start,
            position,
            Compression(code),
            count,
            base_offset,
            base_offset + last_delta,
            base_timestamp,
            max_timestamp if attributes & TIMESTAMP_TYPE_BIT else None,
        )
