"""Finding one record inside one batch by its timestamp.

Owns: the only decoding of records in the log.  Must not know segments.
"""

from collections.abc import Iterator

from sparklog.executors.log.spans import BatchSpan
from sparklog.storage_backends.base import FileHandle
from sparklog.types import OffsetTimestamp, TimestampType
from sparklog.wire.batch import check_batch, read_header
from sparklog.wire.builder import iter_records


def first_largest_record(
    handle: FileHandle, span: BatchSpan, above: int, start_offset: int
) -> OffsetTimestamp | None:
    """The first record with the largest timestamp in a batch, if that is above ``above``."""
    best = max(
        _from_offset(handle, span, start_offset), key=lambda found: found.timestamp, default=None
    )
    return best if best is not None and best.timestamp > above else None


def first_record(
    handle: FileHandle, span: BatchSpan, timestamp: int, start_offset: int
) -> OffsetTimestamp | None:
    """The first record at or above ``start_offset`` with at least this timestamp."""
    for found in _from_offset(handle, span, start_offset):
        if found.timestamp >= timestamp:
            return found
    return None


def _from_offset(
    handle: FileHandle, span: BatchSpan, start_offset: int
) -> Iterator[OffsetTimestamp]:
    """The records at or above ``start_offset``, or the first that stands for all."""
    batch = handle.read(span.position, span.size)
    header = read_header(batch)
    check_batch(batch, 0, header)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        offset = max(span.base_offset, start_offset)
        yield OffsetTimestamp(offset=offset, timestamp=span.max_timestamp)
        return
    for record in iter_records(batch, 0, header):
        if record.offset >= start_offset:
            yield OffsetTimestamp(offset=record.offset, timestamp=record.timestamp)
