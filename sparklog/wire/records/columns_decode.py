"""Record batches -> Arrow columns, without a per-record Python loop over fields.

Owns: the read half of ``columns``.  Must not know the origin of the bytes or the reader.

Batches are collected in groups of a few megabytes.  The record sections of a group are joined and
decoded in one pass: ``record_starts`` finds the records, then NumPy reads one field of all records
at a time.  A batch that decompresses to more than a group comes in slices, so memory is bounded by
the group and not by the size of a batch.  Every position from the bytes is compared with the end of
its record before anything is read there, and the sections are padded, so malformed bytes end in
DecodeError.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.errors import DecodeError
from sparklog.types import MAX_INT32, MAX_INT64
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import BATCH_OVERHEAD, Buffer, batch_size, read_header
from sparklog.wire.records.columns_headers import HEADERS_TYPE, read_headers
from sparklog.wire.records.compression import MAX_UNCOMPRESSED_BYTES
from sparklog.wire.records.readable_records import readable_records
from sparklog.wire.records.record_slices import RecordSlice, check_plausible_count
from sparklog.wire.records.record_starts import record_starts
from sparklog.wire.records.sections import OnFault, Section, wanted_sections
from sparklog.wire.records.spans import Span, gather, read_span
from sparklog.wire.records.varints import PADDING_BYTES, Ints, read_varints
from sparklog.wire.records.zigzag import MAX_VARLONG_BYTES

TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
#: Names and types as in Spark's Kafka source, in the order of the columns of Arrow batches.
COLUMN_TYPES: Final[dict[str, Any]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
#: Uncompressed bytes of records that are decoded in one pass, unless a single record has more.
GROUP_BYTES: Final = 4 * 1024 * 1024
#: Rows of one Arrow batch without columns (for counting rows).
COUNTED_ROWS_MAX: Final = 128 * 1024

_MAX_MILLISECONDS: Final = MAX_INT64 // 1000


class _Part(NamedTuple):
    """Some records of a batch, and the number of records before them in the batch."""

    section: Section
    slice: RecordSlice
    before: int


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of all records of a group, one entry per record; positions are in ``data``."""

    data: bytes
    offset: Ints
    timestamp: Ints
    append_time: npt.NDArray[np.bool_]
    key: Span
    value: Span
    header_count: Ints
    header_start: Ints
    end: Ints


def decode_columns(
    batches: Buffer,
    *,
    start_offset: int = 0,
    end_offset: int = MAX_INT64,
    columns: frozenset[str] | None = None,
    skip_control: bool = True,
    aborted: Sequence[AbortedTransaction] = (),
    min_timestamp: int | None = None,
    check_crc: bool = True,
    limit_bytes: int = MAX_UNCOMPRESSED_BYTES,
    group_bytes: int = GROUP_BYTES,
    on_fault: OnFault | None = None,
    believe_counts: bool = True,
) -> Iterator[pa.RecordBatch]:
    """The records with start_offset <= offset < end_offset, in a small number of Arrow batches.

    ``columns`` names the wanted columns of COLUMN_TYPES, None all.  ``aborted`` are the aborted
    transactions of the fetch response; their records are skipped.  Batches whose max timestamp is
    below ``min_timestamp`` (milliseconds) are skipped whole; single records are not filtered.  A
    partial batch at the end, as in fetch responses, is skipped.  ``limit_bytes`` bounds the
    decompressed size of one batch.

    Without any column, rows are only counted: the record count of a batch in the range is taken
    from its header, if it is plausible, and the batch is not decompressed.

    Raises DecodeError for malformed bytes, KafkaError for a wrong CRC or magic.  With ``on_fault``,
    unreadable records are reported to it and skipped: all records of a batch with a wrong CRC, else
    the records from the first undecodable record to the end of its batch.  Without
    ``believe_counts``, only decodable rows are counted.
    """
    wanted = frozenset(COLUMN_TYPES) if columns is None else columns
    unknown = wanted - COLUMN_TYPES.keys()
    if unknown:
        raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
    sections: Iterable[Section] = wanted_sections(
        memoryview(batches),
        start_offset,
        end_offset,
        skip_control=skip_control,
        aborted=aborted,
        min_timestamp=min_timestamp,
        check_crc=check_crc,
        on_fault=on_fault,
    )
    if not wanted and believe_counts:
        sections, counted = _count_whole(sections, start_offset, end_offset, on_fault)
        for first in range(0, counted, COUNTED_ROWS_MAX):
            yield _rows_only(min(counted - first, COUNTED_ROWS_MAX))
    #: Start positions of batches with undecodable records.
    given_up: set[int] = set()
    for group in _groups(sections, limit_bytes, group_bytes, on_fault):
        if given_up:
            group = [part for part in group if part.section.start not in given_up]
        try:
            decoded = [_decode_group(group, start_offset, end_offset, wanted)]
        except DecodeError:
            if on_fault is None:
                raise
            decode = partial(
                _decode_group, start_offset=start_offset, end_offset=end_offset, wanted=wanted
            )
            decoded = list(_decode_each(group, decode, on_fault, given_up))
        yield from (found for found in decoded if found.num_rows)


def next_offset(batches: Buffer) -> int | None:
    """The offset after the last whole batch, also a skipped batch; None without any."""
    position = 0
    found: int | None = None
    while (size := batch_size(batches, position)) is not None and position + size <= len(batches):
        found = read_header(batches, position).next_offset
        position += size
    return found


def _count_whole(
    sections: Iterable[Section], start_offset: int, end_offset: int, on_fault: OnFault | None
) -> tuple[list[Section], int]:
    """The batches that lie partly in the range, and the number of records of the others."""
    partly: list[Section] = []
    counted = 0
    for section in sections:
        if section.base_offset < start_offset or section.last_offset >= end_offset:
            partly.append(section)
            continue
        try:
            counted += _believed_count(section)
        except DecodeError as error:
            if on_fault is None:
                raise
            on_fault(section.base_offset, section.last_offset, error)
    return partly, counted


def _believed_count(section: Section) -> int:
    """The record count of the header.  Raises DecodeError for an impossible count."""
    count, offsets = section.record_count, section.last_offset - section.base_offset + 1
    if not 0 <= count <= offsets:
        raise DecodeError(
            f"batch of offsets {section.base_offset} to {section.last_offset} says {count} records"
        )
    check_plausible_count(count, section.compression, section.end - section.start - BATCH_OVERHEAD)
    return count


def _rows_only(count: int) -> pa.RecordBatch:
    rows = pa.StructArray.from_buffers(pa.struct([]), count, [None])
    return pa.RecordBatch.from_struct_array(rows)


def _groups(
    sections: Iterable[Section], limit_bytes: int, group_bytes: int, on_fault: OnFault | None
) -> Iterator[list[_Part]]:
    """Sections with their decompressed bytes, in groups that are decoded together."""
    group: list[_Part] = []
    size = 0
    for section in sections:
        given = 0
        for part in section.slices(limit_bytes, group_bytes, on_fault):
            if group and size + len(part.data) > group_bytes:
                yield group
                group, size = [], 0
            group.append(_Part(section, part, given))
            size += len(part.data)
            given += part.count
    if group:
        yield group


def _decode_group(
    group: list[_Part], start_offset: int, end_offset: int, wanted: frozenset[str]
) -> pa.RecordBatch:
    data = b"".join((*[part.slice.data for part in group], bytes(PADDING_BYTES)))
    if len(data) > MAX_INT32:
        raise DecodeError(f"{len(data)} bytes of records are too many to decode at once")
    counts = np.array([part.slice.count for part in group], np.int64)
    sizes = np.array([len(part.slice.data) for part in group], np.int64)
    fields = _read_fields([part.section for part in group], data, counts, sizes)
    rows = _selected_rows(fields.offset, start_offset, end_offset)
    arrays = {name: _BUILDERS[name](fields, rows) for name in COLUMN_TYPES if name in wanted}
    if not arrays:
        return _rows_only(len(fields.offset) if rows is None else len(rows))
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def _decode_each(
    group: list[_Part],
    decode: Callable[[list[_Part]], pa.RecordBatch],
    on_fault: OnFault,
    given_up: set[int],
) -> Iterator[pa.RecordBatch]:
    """The parts of a group one by one, each up to the first undecodable record.

    The start of a batch with such a record is added to ``given_up``.
    """
    for part in group:
        section = part.section
        if section.start in given_up:
            continue
        try:
            yield decode([part])
        except DecodeError as error:
            given_up.add(section.start)
            readable = readable_records(part.slice)
            first = section.base_offset + part.before + readable.count
            on_fault(min(first, section.last_offset), section.last_offset, error)
            yield decode([part._replace(slice=readable)])


def _read_fields(group: list[Section], data: bytes, counts: Ints, sizes: Ints) -> _Fields:
    octets = np.frombuffer(data, np.uint8)
    ends, positions = record_starts(data, octets, counts, sizes)
    # The first byte is the unused attributes.
    timestamp_delta, positions = read_varints(octets, positions + 1, MAX_VARLONG_BYTES)
    offset_delta, positions = read_varints(octets, positions)
    key, positions = read_span(octets, positions, ends)
    value, positions = read_span(octets, positions, ends)
    header_count, positions = read_varints(octets, positions)
    room = ends - positions
    # A header has at least two bytes; a record without headers must end here.
    if len(ends) and bool(((header_count < 0) | (2 * header_count > room)).any()):
        raise DecodeError("a record says more headers than it has bytes for")
    if bool((room[header_count == 0] != 0).any()):
        raise DecodeError("bytes are left over in a record")
    base, append_time = _base_timestamps(group, counts)
    if append_time.any():
        timestamp_delta = np.where(append_time, 0, timestamp_delta)
    return _Fields(
        data=data,
        offset=np.repeat(np.array([s.base_offset for s in group], np.int64), counts) + offset_delta,
        timestamp=base + timestamp_delta,
        append_time=append_time,
        key=key,
        value=value,
        header_count=header_count,
        header_start=positions,
        end=ends,
    )


def _base_timestamps(group: list[Section], counts: Ints) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Per record: the base of its timestamp delta, and whether it is the append time."""
    base = [s.base_timestamp if s.append_time is None else s.append_time for s in group]
    appended = [s.append_time is not None for s in group]
    return (
        np.repeat(np.array(base, np.int64), counts),
        np.repeat(np.array(appended, np.bool_), counts),
    )


def _selected_rows(offset: Ints, start_offset: int, end_offset: int) -> Ints | None:
    """Rows inside the range of offsets; None for all."""
    inside = (offset >= start_offset) & (offset < end_offset)
    return None if inside.all() else np.flatnonzero(inside)


def _pick(values: Any, rows: Ints | None) -> Any:
    return values if rows is None else values[rows]


def _build_key(fields: _Fields, rows: Ints | None) -> Any:
    return gather(fields.data, fields.key.pick(rows), pa.binary())


def _build_value(fields: _Fields, rows: Ints | None) -> Any:
    return gather(fields.data, fields.value.pick(rows), pa.binary())


def _build_offset(fields: _Fields, rows: Ints | None) -> Any:
    return pa.array(_pick(fields.offset, rows))


def _build_timestamp(fields: _Fields, rows: Ints | None) -> Any:
    # Clients choose timestamps; a value beyond the range of microseconds is clamped to it.
    milliseconds = np.clip(_pick(fields.timestamp, rows), -_MAX_MILLISECONDS, _MAX_MILLISECONDS)
    return pa.array(milliseconds * 1000).view(TIMESTAMP_TYPE)


def _build_timestamp_type(fields: _Fields, rows: Ints | None) -> Any:
    return pa.array(_pick(fields.append_time, rows).astype(np.int32))


def _build_headers(fields: _Fields, rows: Ints | None) -> Any:
    return read_headers(
        fields.data,
        _pick(fields.header_count, rows),
        _pick(fields.header_start, rows),
        _pick(fields.end, rows),
    )


_BUILDERS: Final = {
    "key": _build_key,
    "value": _build_value,
    "offset": _build_offset,
    "timestamp": _build_timestamp,
    "timestampType": _build_timestamp_type,
    "headers": _build_headers,
}
