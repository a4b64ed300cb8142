"""Record headers <-> Arrow lists of (key, value).

Owns: the headers column in both directions.  Must not know the other fields of a record.

In a record: a varint count, then for each header its key (varint length, UTF-8) and its value
(varint length or -1, bytes).
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import DecodeError
from sparklog.wire.records.spans import Span, binary_from, gather, interleave, read_span
from sparklog.wire.records.varints import Bytes, Ints, RowWriter, varint_widths
from sparklog.wire.records.zigzag import decode_varint

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

#: Fewer rows than this are read faster row by row than by column.
_FEW_ROWS: Final = 24


class _Headers:
    """Spans of all headers while they are being read, in the order of rows and headers."""

    def __init__(self, count: int) -> None:
        self.key = Span(*_span_arrays(count))
        self.value = Span(*_span_arrays(count))


def _span_arrays(count: int) -> tuple[Ints, Ints, Any]:
    return np.empty(count, np.int64), np.empty(count, np.int64), np.zeros(count, np.bool_)


def read_headers(data: bytes, counts: Ints, starts: Ints, ends: Ints) -> Any:
    """The headers of records with ``counts`` headers in [start, end); null for a count of 0.

    ``data`` continues for PADDING_BYTES after the last end, and the caller has checked that counts
    fit between start and end.  Raises DecodeError.
    """
    first_slots = np.cumsum(counts) - counts
    found = _Headers(int(counts.sum()))
    rows = np.flatnonzero(counts > 0)
    if not len(rows):
        return pa.nulls(len(counts), HEADERS_TYPE)
    octets = np.frombuffer(data, np.uint8)
    slots, positions, left = first_slots[rows], starts[rows], counts[rows]
    limits = ends[rows]
    while len(slots) >= _FEW_ROWS:
        positions = _read_one_of_each(octets, found, slots, positions, limits)
        left = left - 1
        if bool((positions != limits)[left == 0].any()):
            raise DecodeError("bytes are left over after the headers of a record")
        more = left > 0
        slots, positions, left, limits = slots[more] + 1, positions[more], left[more], limits[more]
    for slot, position, count, limit in zip(
        slots.tolist(), positions.tolist(), left.tolist(), limits.tolist(), strict=True
    ):
        _read_row(data, found, slot, position, count, limit)
    return _build(data, counts, found)


def _read_one_of_each(
    octets: Bytes, found: _Headers, slots: Ints, positions: Ints, limits: Ints
) -> Ints:
    """Read the next header of every row into its slot.  Returns: the positions behind."""
    for target in (found.key, found.value):
        span, positions = read_span(octets, positions, limits)
        target.start[slots] = span.start
        target.end[slots] = span.end
        target.null[slots] = span.null
    return positions


def _read_row(
    data: bytes, found: _Headers, slot: int, position: int, count: int, limit: int
) -> None:
    """Read the remaining headers of one row."""
    for index in range(slot, slot + count):
        for target in (found.key, found.value):
            length, start = decode_varint(data, position)
            position = start + max(length, 0)
            if length < -1 or position > limit:
                raise DecodeError("a header is longer than its record")
            target.start[index], target.end[index] = start, position
            target.null[index] = length < 0
    if position != limit:
        raise DecodeError("bytes are left over after the headers of a record")


def _build(data: bytes, counts: Ints, found: _Headers) -> Any:
    if found.key.null.any():
        raise DecodeError("a header key is null")
    keys = gather(data, found.key, pa.string())
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DecodeError("a header key is not UTF-8") from error
    values = gather(data, found.value, pa.binary())
    items = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS_TYPE.value_type))
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets), items, type=HEADERS_TYPE, mask=pa.array(counts == 0)
    )


def write_headers(column: Any) -> Any:
    """The last field of every record, count and headers, as a binary array; None: no headers.

    ``column`` is a list array of (key, value) structs; a null list has no headers.  Raises
    ValueError for a null header or header key, as Kafka has neither.
    """
    lists = column.cast(HEADERS_TYPE)
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    if not counts.any():
        return None
    items = lists.flatten()
    keys, values = items.field("key").cast(pa.binary()), items.field("value")
    if items.null_count or keys.null_count:
        raise ValueError("a record header and its key may not be null")
    body, edges = interleave([_lengths(keys), keys, _lengths(values), values])
    ends = np.concatenate(([0], np.cumsum(counts)))
    per_row = binary_from(body, edges[ends].astype(np.int32))
    count_rows = RowWriter(len(counts))
    count_rows.put_varints(counts)
    whole, row_edges = interleave([binary_from(*count_rows.finish()), per_row])
    return binary_from(whole, row_edges.astype(np.int32))


def _lengths(column: Any) -> Any:
    """The length prefix of every row, -1 for null."""
    rows = RowWriter(len(column))
    rows.put_varints(byte_lengths(column))
    return binary_from(*rows.finish())


def byte_lengths(column: Any) -> Ints:
    """Bytes of every row of a binary or string column, -1 for null."""
    lengths = pc.binary_length(column)
    if column.null_count:
        lengths = pc.fill_null(lengths, -1)
    found: Ints = lengths.to_numpy().astype(np.int64)
    return found


def sized(lengths: Ints) -> Ints:
    """Size of fields of these lengths (-1 for null) with their length prefix."""
    return varint_widths(lengths) + np.maximum(lengths, 0)
