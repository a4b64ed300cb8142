"""Pieces that the packer made: records of one batch each, already laid out.

Owns: their form in Python, and how they are had from Arrow and made rows of again.  Must not know
Spark, partitions or connections.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparklog.wire.batch import BATCH_OVERHEAD, Buffer
from sparklog.wire.columns import decode_columns, encode_section
from sparklog.wire.spans import binary_buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRecords:
    """The records of one batch, without its header; times in milliseconds."""

    records: Buffer
    record_count: int
    base_timestamp: int
    max_timestamp: int

    @property
    def batch_bytes(self) -> int:
        """Of the batch, before compression."""
        return BATCH_OVERHEAD + len(self.records)


def packed_records(batch: pa.RecordBatch) -> Iterator[PackedRecords]:
    """The pieces of an Arrow batch, in order; they lie in its memory."""
    sections = binary_buffers(batch.column("records"))
    numbers = (
        batch.column(name).to_pylist()
        for name in ("record_count", "base_timestamp", "max_timestamp")
    )
    for records, count, base, latest in zip(sections, *numbers, strict=True):
        yield PackedRecords(
            records=records, record_count=count, base_timestamp=base, max_timestamp=latest
        )


def rows_of(piece: PackedRecords) -> pa.Table:
    """The columns ``value`` and ``timestamp`` that the piece was made of.  Raises DecodeError."""
    batch = encode_section(
        piece.records,
        record_count=piece.record_count,
        base_timestamp=piece.base_timestamp,
        max_timestamp=piece.max_timestamp,
    )
    columns = frozenset({"value", "timestamp"})
    decoded = decode_columns(b"".join(batch.parts), columns=columns, check_crc=False)
    return pa.Table.from_batches(list(decoded))
