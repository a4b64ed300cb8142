"""The search for a record by its timestamp inside one batch.

Owns: the decoding of records for lookups by timestamp, and its bound.  Must not know segments, or
where a batch is read from.

Clients decide what a batch decompresses to, so a search has a budget (``SearchBudget``) of
decompressed bytes, and decodes in slices.  Records that cannot be decoded are skipped: no reader
gets them.  Beyond the budget the search returns the offset of the first record that it has not
checked, which is a lower bound of the right offset.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from sparklog.errors import DecodeError
from sparklog.types import OffsetTimestamp, TimestampType
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    Buffer,
    check_batch,
    read_header,
)
from sparklog.wire.records.builder import iter_slice
from sparklog.wire.records.compression import TooLargeError
from sparklog.wire.records.record_slices import RecordSlice, record_slices

#: Decompressed bytes that one search by timestamp may read.
SEARCH_BYTES_MAX: Final = 16 * 1024 * 1024
#: The same for a search for the largest timestamp, which may have to decode many batches.
LARGEST_BYTES_MAX: Final = 64 * 1024 * 1024
#: Decompressed bytes of records that are held at once.
_SLICE_BYTES: Final = 256 * 1024
#: Records of smaller batches are decoded one by one, so that the broker need not import NumPy.
_FEW_RECORDS: Final = 512


class SearchedBatch(Protocol):
    """What a search knows of a batch before it reads the batch."""

    @property
    def size(self) -> int: ...

    @property
    def base_offset(self) -> int: ...

    @property
    def last_offset(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...


class SearchBudget:
    """The decompressed bytes that are left to one search."""

    __slots__ = ("bytes_left",)

    def __init__(self, bytes_left: int = SEARCH_BYTES_MAX) -> None:
        self.bytes_left = bytes_left

    def take(self, size: int) -> None:
        self.bytes_left = max(self.bytes_left - size, 0)


def first_largest_record(
    read: Callable[[], Buffer],
    span: SearchedBatch,
    above: int,
    start_offset: int,
    budget: SearchBudget,
) -> OffsetTimestamp | None:
    """The first record with the largest timestamp in a batch, if that is above ``above``.

    ``read`` returns the bytes of the batch.  Beyond the budget the result is the largest
    timestamp of the header, at the offset that the search has reached.
    """
    best: OffsetTimestamp | None = None
    try:
        for found in _from_offset(read, span, start_offset, budget):
            if best is None or found.timestamp > best.timestamp:
                best = found
    except _BeyondBudgetError as end:
        if best is None or best.timestamp < span.max_timestamp:
            best = OffsetTimestamp(offset=end.offset, timestamp=span.max_timestamp)
    return best if best is not None and best.timestamp > above else None


def first_record(
    read: Callable[[], Buffer],
    span: SearchedBatch,
    timestamp: int,
    start_offset: int,
    budget: SearchBudget,
) -> OffsetTimestamp | None:
    """The first record at or above ``start_offset`` with at least this timestamp.

    ``read`` returns the bytes of the batch.  Beyond the budget the result is the first
    offset that was not checked, with the batch's largest timestamp.
    """
    try:
        for found in _from_offset(read, span, start_offset, budget, at_least=timestamp):
            if found.timestamp >= timestamp:
                return found
    except _BeyondBudgetError as end:
        return OffsetTimestamp(offset=end.offset, timestamp=span.max_timestamp)
    return None


class _BeyondBudgetError(Exception):
    """The budget is used up; ``offset`` is the first offset that was not checked."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def _from_offset(
    read: Callable[[], Buffer],
    span: SearchedBatch,
    start_offset: int,
    budget: SearchBudget,
    *,
    at_least: int | None = None,
) -> Iterator[OffsetTimestamp]:
    """The records at or above ``start_offset`` that can be the result of the search.

    The result is the first record with a timestamp of ``at_least`` or later; for None it is the
    first record with the largest timestamp.

    Raises KafkaError for a wrong CRC: a sound copy of the batch may hold the answer.
    """
    #: The first offset that the search has not passed.
    reached = max(span.base_offset, start_offset)
    if not budget.bytes_left:
        raise _BeyondBudgetError(reached)
    batch = read()
    header = read_header(batch)
    check_batch(batch, 0, header)
    if header.record_count == 0:
        return  # emptied by compaction
    gapless = header.record_count == header.last_offset_delta + 1
    if gapless and header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        offset = max(span.base_offset, start_offset)
        yield OffsetTimestamp(offset=offset, timestamp=span.max_timestamp)
        return
    before = 0
    try:
        for part in _slices(batch, header, budget):
            budget.take(len(part.data))
            append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            if append_time or header.record_count <= _FEW_RECORDS:
                found = _one_by_one(part, header)
            else:
                found = _by_column(part, header, start_offset, at_least)
            for record in found:
                if record.offset >= start_offset:
                    yield record
            before += part.count
            reached = max(reached, min(span.base_offset + before, span.last_offset))
    except TooLargeError:
        raise _BeyondBudgetError(reached) from None
    except DecodeError:
        pass  # the CRC is right: the client sent records that cannot be decoded
    budget.take(span.size)


def _one_by_one(part: RecordSlice, header: BatchHeader) -> Iterator[OffsetTimestamp]:
    for record in iter_slice(part, header):
        yield OffsetTimestamp(offset=record.offset, timestamp=record.timestamp)


def _by_column(
    part: RecordSlice, header: BatchHeader, start_offset: int, at_least: int | None
) -> Iterator[OffsetTimestamp]:
    """At most one record, found with NumPy, which is imported at the first such search.

    The record is the first with a timestamp of ``at_least``, or the first with the largest
    timestamp if ``at_least`` is None.  Where a record cannot be decoded, the search ends with the
    records before it, and then DecodeError is raised.
    """
    from sparklog.wire.records.record_times import find_time

    try:
        found = find_time(part, header, start_offset, at_least)
    except DecodeError:
        from sparklog.wire.records.readable_records import readable_records

        found = find_time(readable_records(part), header, start_offset, at_least)
        if found is not None:
            yield OffsetTimestamp(offset=found[0], timestamp=found[1])
        raise
    if found is not None:
        yield OffsetTimestamp(offset=found[0], timestamp=found[1])


def _slices(batch: Buffer, header: BatchHeader, budget: SearchBudget) -> Iterator[RecordSlice]:
    return record_slices(
        header.compression,
        memoryview(batch)[BATCH_OVERHEAD:],
        header.record_count,
        limit_bytes=budget.bytes_left,
        whole_bytes=_SLICE_BYTES,
        slice_bytes=_SLICE_BYTES,
    )
