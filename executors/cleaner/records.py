"""The records of many batches by column, and new batches from some of them.

Owns: decompression, the columns that compaction needs, and the bytes of a batch that has lost
records or got a delete horizon.  Must not know which records are kept, or why.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparklog.executors.cleaner.batch_reader import Batch
from sparklog.executors.cleaner.latest_offsets import Mask
from sparklog.types import NO_TIMESTAMP, TimestampType
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    BatchHeader,
    Buffer,
    pack_batch,
)
from sparklog.wire.records.compression import compress, decompress
from sparklog.wire.records.record_fields import RecordFields, read_record_fields
from sparklog.wire.records.record_slices import check_count
from sparklog.wire.records.spans import Span, binary_from, gather, interleave
from sparklog.wire.records.varints import Ints, RowWriter, varint_widths

#: Decompressed bytes that are decoded together, unless a single batch has more.
CHUNK_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChunk:
    """The records of some batches; ``edges`` are the rows at which the batches begin and end."""

    batches: Sequence[Batch]
    fields: RecordFields
    edges: Ints
    offsets: Ints

    def keys(self, rows: Mask) -> Any:
        """The keys of some rows, which have keys, as an Arrow array."""
        start = self.fields.key_start[rows]
        end = start + self.fields.key_length[rows]
        return gather(
            self.fields.data, Span(start, end, np.zeros(len(start), np.bool_)), pa.binary()
        )

    def of_batches(self, values: Sequence[Any], kind: Any) -> Any:
        """One value per record, from one value per batch."""
        return np.repeat(np.array(values, kind), np.diff(self.edges))

    def count_of_batches(self, rows: Mask) -> list[int]:
        """The number of these rows in each batch."""
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows)))
        counts: list[int] = np.diff(before[self.edges]).tolist()
        return counts


def read_chunks(batches: Sequence[Batch], chunk_bytes: int = CHUNK_BYTES) -> Iterator[RecordChunk]:
    """The records of batches that have records.  Raises DecodeError."""
    group: list[Batch] = []
    sections: list[Buffer] = []
    size = 0
    for batch in batches:
        section = _section(batch)
        if group and size + len(section) > chunk_bytes:
            yield _chunk(group, sections)
            group, sections, size = [], [], 0
        group.append(batch)
        sections.append(section)
        size += len(section)
    if group:
        yield _chunk(group, sections)


def rebuild(chunk: RecordChunk, index: int, kept: Mask, delete_horizon_ms: int | None) -> bytes:
    """The batch at ``index`` with some of its records, of which there is at least one.

    ``kept`` are rows of the chunk.  With ``delete_horizon_ms`` the batch gets this delete horizon
    as its base timestamp (KIP-534).  Its header keeps offsets, producer, sequence, epoch and codec.
    """
    first, last = int(chunk.edges[index]), int(chunk.edges[index + 1])
    header, fields = chunk.batches[index].header, chunk.fields
    rows = kept[first:last]
    times = fields.timestamp_delta[first:last][rows] + header.base_timestamp
    if delete_horizon_ms is None:
        begin, end = int(fields.start[first]), int(fields.end[last - 1])
        sizes = fields.end[first:last] - fields.start[first:last]
        section: Buffer = fields.octets[begin:end][np.repeat(rows, sizes)].tobytes()
    else:
        picked = np.arange(first, last)[rows]
        section = _with_times(fields, picked, times - delete_horizon_ms)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, delete_horizon_ms
    by_append = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return _packed(
        header,
        compress(header.compression, section),
        attributes=attributes,
        record_count=int(rows.sum()),
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp if by_append else int(times.max()),
    )


def emptied(header: BatchHeader) -> bytes:
    """The batch without its records (``DefaultRecordBatch.writeEmptyHeader``)."""
    return _packed(
        header,
        b"",
        attributes=header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
        record_count=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
    )


def _packed(
    header: BatchHeader,
    section: Buffer,
    *,
    attributes: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
) -> bytes:
    return pack_batch(
        section,
        attributes=attributes,
        record_count=record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _section(batch: Batch) -> Buffer:
    header = batch.header
    section = decompress(header.compression, batch.data[BATCH_OVERHEAD:])
    check_count(header.record_count, len(section))
    return section


def _chunk(batches: Sequence[Batch], sections: Sequence[Buffer]) -> RecordChunk:
    counts = [batch.header.record_count for batch in batches]
    fields = read_record_fields(sections, counts)
    bases = np.array([batch.header.base_offset for batch in batches], np.int64)
    return RecordChunk(
        batches=batches,
        fields=fields,
        edges=np.concatenate((np.zeros(1, np.int64), np.cumsum(np.array(counts, np.int64)))),
        offsets=np.repeat(bases, counts) + fields.offset_delta,
    )


def _with_times(fields: RecordFields, rows: Ints, timestamp_delta: Ints) -> memoryview:
    """The records with other timestamp deltas."""
    start, end = fields.after_times[rows], fields.end[rows]
    rest = gather(fields.data, Span(start, end, np.zeros(len(rows), np.bool_)), pa.binary())
    front = RowWriter(len(rows))
    front.put_varints(1 + varint_widths(timestamp_delta) + end - start)
    front.put_byte(0)
    front.put_varints(timestamp_delta)
    section, _ = interleave([binary_from(*front.finish()), rest])
    return section
