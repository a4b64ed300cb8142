"""Finding one record inside one batch by its timestamp.

Owns: the only decoding of records in the log.  Must not know segments.
"""

from sparklog.executors.log.spans import BatchSpan
from sparklog.storage_backends.base import FileHandle
from sparklog.types import OffsetTimestamp, TimestampType
from sparklog.wire.batch import read_header
from sparklog.wire.builder import decode_records


def first_largest_record(
    handle: FileHandle, span: BatchSpan, above: int, start_offset: int
) -> OffsetTimestamp | None:
    """The first record with the largest timestamp in a batch, if that is above ``above``."""
    best: OffsetTimestamp | None = None
    while True:
        found = first_record(handle, span, above + 1, start_offset)
        if found is None:
            return best
        best, above = found, found.timestamp


def first_record(
    handle: FileHandle, span: BatchSpan, timestamp: int, start_offset: int
) -> OffsetTimestamp | None:
    """The first record at or above ``start_offset`` with at least this timestamp."""
    batch = handle.read(span.position, span.size)
    if read_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME:
        offset = max(span.base_offset, start_offset)
        return OffsetTimestamp(offset=offset, timestamp=span.max_timestamp)

    for record in decode_records(batch, skip_control=False):
        if record.offset >= start_offset and record.timestamp >= timestamp:
            return OffsetTimestamp(offset=record.offset, timestamp=record.timestamp)
    return None
