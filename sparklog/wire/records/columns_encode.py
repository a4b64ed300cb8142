"""Arrow columns -> record batches, without a per-record Python loop over fields.

Owns: the write half of ``columns``: the division into batches, and the bytes of their records.
Must not know topics, partitions or connections.

The fixed fields of all records are written column by column into one run of rows.  The run is then
interleaved with keys and values; the bytes between two rows are the record section of a batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.types import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Compression,
)
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    Buffer,
    add_sequence,
    pack_attributes,
    pack_batch,
    pack_header,
)
from sparklog.wire.records.columns_headers import byte_lengths, sized, write_headers
from sparklog.wire.records.compression import compress
from sparklog.wire.records.spans import binary_from, interleave
from sparklog.wire.records.varints import Ints, RowWriter, varint_widths
from sparklog.wire.records.zigzag import varint_width

#: Target size of a batch before compression, header included.
TARGET_BATCH_BYTES: Final = 512 * 1024
#: Bytes of records that are encoded in one pass, unless a single batch has more.
GROUP_BYTES: Final = 4 * 1024 * 1024

_NULL_LENGTH: Final = 1  # -1, zigzag
_UNITS_PER_MS: Final = {"us": 1_000, "ns": 1_000_000}
_PLAIN_KINDS: Final = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
)
_CASTABLE_KINDS: Final = (
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
    pa.types.is_string_view,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBatch:
    """A batch ready to be produced; timestamps in milliseconds."""

    data: bytes
    record_count: int
    max_timestamp: int
    base_sequence: int = NO_SEQUENCE
    #: The records of a batch whose records are not copied; ``data`` is only the header then.
    rest: Buffer = b""

    @property
    def size(self) -> int:
        """Size in bytes, header included."""
        return len(self.data) + len(self.rest)

    @property
    def parts(self) -> tuple[Buffer, ...]:
        """The bytes of the batch as consecutive buffers."""
        return (self.data, self.rest) if len(self.rest) else (self.data,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Some rows of the input; each column is one binary array (None: all null, or no headers)."""

    key: Any
    value: Any
    tail: Any
    key_length: Ints
    value_length: Ints
    #: Bytes of key and value, their lengths included.
    body_size: Ints
    timestamp: Ints


def encode_columns(
    key: Any,
    value: Any,
    timestamp: Any = None,
    headers: Any = None,
    *,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    target_batch_bytes: int = TARGET_BATCH_BYTES,
    default_timestamp: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> list[EncodedBatch]:
    """Batches of at most ``target_batch_bytes`` before compression, or of one larger record.

    Arrays or chunked arrays of one length, all nullable: ``key`` (None: no keys) and ``value``
    binary or string, ``timestamp`` a timestamp of any unit or int64 milliseconds (None and nulls:
    ``default_timestamp``), ``headers`` list<struct<key, value>>.  The sequence numbers of a batch
    continue those of the batch before it.  Raises ValueError for columns that no record can hold.
    """
    count = len(value)
    if any(column is not None and len(column) != count for column in (key, timestamp, headers)):
        raise ValueError("key, value, timestamp and headers differ in length")
    if not count:
        return []
    key, value = _plain(key, "key"), _plain(value, "value")
    key_length, value_length = _lengths(key, count), _lengths(value, count)
    rows = _Rows(
        key=key,
        value=value,
        tail=None if headers is None else write_headers(_one_array(headers)),
        key_length=key_length,
        value_length=value_length,
        body_size=sized(value_length) + (1 if key is None else sized(key_length)),
        timestamp=_milliseconds(timestamp, count, default_timestamp),
    )
    attributes = pack_attributes(compression, transactional=transactional)
    found: list[EncodedBatch] = []
    sequence = base_sequence
    for edges, group in _groups(rows, target_batch_bytes - BATCH_OVERHEAD):
        for section, start, end in _sections(group, edges):
            found.append(
                EncodedBatch(
                    data=pack_batch(
                        compress(compression, section, compression_level)
                        if compression
                        else section,
                        attributes=attributes,
                        record_count=end - start,
                        last_offset_delta=end - start - 1,
                        base_timestamp=int(group.timestamp[start]),
                        max_timestamp=int(group.timestamp[start:end].max()),
                        producer_id=producer_id,
                        producer_epoch=producer_epoch,
                        base_sequence=sequence,
                    ),
                    record_count=end - start,
                    max_timestamp=int(group.timestamp[start:end].max()),
                    base_sequence=sequence,
                )
            )
            if sequence != NO_SEQUENCE:
                sequence = add_sequence(sequence, end - start)
    return found


def encode_section(
    section: Buffer,
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> EncodedBatch:
    """A batch of encoded records, whose offset deltas start at 0."""
    rest = compress(compression, section) if compression else section
    header = pack_header(
        rest,
        attributes=pack_attributes(compression),
        record_count=record_count,
        last_offset_delta=record_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return EncodedBatch(
        data=header,
        record_count=record_count,
        max_timestamp=max_timestamp,
        base_sequence=base_sequence,
        rest=rest,
    )


def _groups(rows: _Rows, target_bytes: int) -> Iterator[tuple[Ints, _Rows]]:
    """Groups of rows that are encoded in one pass, and the edges of batches in each group."""
    ends = np.cumsum(_largest_sizes(rows))
    edges = _batch_edges(ends, max(target_bytes, 1))
    first = 0
    while first < len(edges) - 1:
        done = int(ends[edges[first] - 1]) if first else 0
        sizes = ends[edges[first + 1 :] - 1] - done
        last = first + max(1, int(np.searchsorted(sizes, GROUP_BYTES, "right")))
        start, end = int(edges[first]), int(edges[last])
        yield edges[first : last + 1] - start, _slice(rows, start, end)
        first = last


def _largest_sizes(rows: _Rows) -> Ints:
    """The largest size of each record, in any batch."""
    spread = int(rows.timestamp.max()) - int(rows.timestamp.min())
    deltas = varint_width(spread) + varint_width(len(rows.timestamp))
    tail = 1 if rows.tail is None else byte_lengths(rows.tail)
    body = rows.body_size + (1 + deltas + tail)
    return varint_widths(body) + body


def _batch_edges(ends: Ints, target_bytes: int) -> Ints:
    """The first row of each batch, then the number of rows: as many rows per batch as fit."""
    edges = [0]
    done = 0
    while edges[-1] < len(ends):
        fitting = int(np.searchsorted(ends, done + target_bytes, "right"))
        edges.append(max(fitting, edges[-1] + 1))
        done = int(ends[edges[-1] - 1])
    return np.array(edges, np.int64)


def _slice(rows: _Rows, start: int, end: int) -> _Rows:
    return _Rows(
        key=_binary_slice(rows.key, start, end),
        value=_binary_slice(rows.value, start, end),
        tail=_binary_slice(rows.tail, start, end),
        key_length=rows.key_length[start:end],
        value_length=rows.value_length[start:end],
        body_size=rows.body_size[start:end],
        timestamp=rows.timestamp[start:end],
    )


def _sections(rows: _Rows, edges: Ints) -> Iterator[tuple[memoryview, int, int]]:
    """(record section, first row, row after the last) of every batch."""
    data, starts = _record_bytes(rows, edges)
    # Without headers, the zero at the end of a record is the first byte of the next row.
    shift = 1 if rows.tail is None else 0
    positions = (starts[edges] + shift).tolist()
    bounds = edges.tolist()
    for index in range(len(bounds) - 1):
        section = data[positions[index] : positions[index + 1]]
        yield section, bounds[index], bounds[index + 1]


def _record_bytes(rows: _Rows, edges: Ints) -> tuple[memoryview, Ints]:
    """(bytes of all rows and one zero, start positions of rows)."""
    counts = np.diff(edges)
    offset_delta = np.arange(len(rows.timestamp)) - np.repeat(edges[:-1], counts)
    timestamp_delta = rows.timestamp - np.repeat(rows.timestamp[edges[:-1]], counts)
    length = rows.body_size + varint_widths(offset_delta) + varint_widths(timestamp_delta)
    length += 2 if rows.tail is None else 1 + byte_lengths(rows.tail)
    front = RowWriter(len(length))
    if rows.tail is None:
        front.put_byte(0)
    front.put_varints(length)
    front.put_byte(0)
    front.put_varints(timestamp_delta)
    front.put_varints(offset_delta)
    columns: list[Any] = []
    if rows.key is None:
        front.put_byte(_NULL_LENGTH)
    else:
        front.put_varints(rows.key_length)
        columns += (binary_from(*front.finish()), rows.key)
        front = RowWriter(len(length))
    if rows.value is None:
        front.put_byte(_NULL_LENGTH)
    else:
        front.put_varints(rows.value_length)
    columns.append(binary_from(*front.finish()))
    columns += (column for column in (rows.value, rows.tail) if column is not None)
    return interleave(columns, b"\x00")


def _plain(column: Any, name: str) -> Any:
    """The column as (large) binary or string, None if it is all null.

    Raises ValueError for a type without bytes.
    """
    if column is None or column.null_count == len(column):
        return None
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if any(is_plain(kind) for is_plain in _PLAIN_KINDS):
        return column if kind == column.type else column.cast(pa.large_binary())
    if any(is_castable(kind) for is_castable in _CASTABLE_KINDS):
        return column.cast(pa.large_binary())
    raise ValueError(f"{name} must be binary or string, not {column.type}")


def _lengths(column: Any, count: int) -> Ints:
    return np.full(count, -1, np.int64) if column is None else byte_lengths(column)


def _binary_slice(column: Any, start: int, end: int) -> Any:
    if column is None:
        return None
    return _one_array(column.slice(start, end - start)).cast(pa.binary())


def _one_array(column: Any) -> Any:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _milliseconds(column: Any, count: int, default: int) -> Ints:
    if column is None:
        return np.full(count, default, np.int64)
    if pa.types.is_integer(column.type):
        values, per_ms, factor = column.cast(pa.int64()), 1, 1
    elif pa.types.is_timestamp(column.type):
        values = column.cast(pa.int64())
        per_ms = _UNITS_PER_MS.get(column.type.unit, 1)
        factor = 1000 if column.type.unit == "s" else 1
    else:
        raise ValueError(f"timestamp must be a timestamp or milliseconds, not {column.type}")
    missing = values.null_count
    raw = values.fill_null(0).to_numpy().astype(np.int64) if missing else values.to_numpy()
    found: Ints = raw * factor if per_ms == 1 else np.floor_divide(raw, per_ms)
    if missing:
        found = np.where(values.is_null().to_numpy(zero_copy_only=False), default, found)
    return found
