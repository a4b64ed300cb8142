"""The search for a record by its timestamp inside one batch.

Owns: the decoding of records for lookups by timestamp, and its bound.  Must not know segments, or
where a batch is read from.

Clients decide what a batch decompresses to, so a search has a budget (``SearchBudget``) of
decompressed bytes, and decodes in slices.  Of a record larger than a slice only timestamp and
offset are kept.  Searches must run outside of event loops.  Records that cannot be decoded are
skipped: no reader gets them.

The budget decides whether a search begins another batch.  A batch that was begun is searched whole,
because readers take the offset of a search for the exact end of what they read.  So the result is
exact if the header of the first batch that is searched is right about its largest timestamp.  The
result is a lower bound, the first offset that was not checked, in two cases: the headers of batches
that use the budget up claim a timestamp that none of their records has, or one batch decompresses
to more than ``batch_bytes_max``, by default what readers accept (``MAX_UNCOMPRESSED_BYTES``).
"""

from collections.abc import Callable, Iterator
from functools import partial
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
from sparklog.wire.records.compression import MAX_UNCOMPRESSED_BYTES, TooLargeError
from sparklog.wire.records.record_slices import FindWhole, RecordSlice, record_slices
from sparklog.wire.records.zigzag import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    decode_varint,
    encode_varint,
)

#: Decompressed bytes after which one search by timestamp begins no further batch.
SEARCH_BYTES_MAX: Final = 16 * 1024 * 1024
#: The same for a search for the largest timestamp, which may have to decode many batches.
LARGEST_BYTES_MAX: Final = 64 * 1024 * 1024
#: Decompressed bytes of records that are held at once.
_SLICE_BYTES: Final = 256 * 1024
#: Bytes of the length, the attributes, the timestamp delta and the offset delta of a record.
_FIELDS_BYTES_MAX: Final = 2 * MAX_VARINT_BYTES + 1 + MAX_VARLONG_BYTES
#: What follows these fields in a record with null as key and value.
_NO_KEY_VALUE_HEADERS: Final = encode_varint(-1) + encode_varint(-1) + encode_varint(0)
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
    """The decompressed bytes that are left to one search; without any, it begins no batch.

    ``is_cut_short``: the search ended in a batch that has more than ``batch_bytes_max`` bytes.
    """

    __slots__ = ("batch_bytes_max", "bytes_left", "is_cut_short")

    def __init__(
        self,
        bytes_left: int = SEARCH_BYTES_MAX,
        *,
        batch_bytes_max: int = MAX_UNCOMPRESSED_BYTES,
    ) -> None:
        self.bytes_left = bytes_left
        self.batch_bytes_max = batch_bytes_max
        self.is_cut_short = False

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

    ``read`` returns the bytes of the batch.  Where the search may not go on, the result is the
    largest timestamp of the header, at the first offset that was not checked.
    """
    best: OffsetTimestamp | None = None
    try:
        for found in _from_offset(read, span, start_offset, budget):
            if best is None or found.timestamp > best.timestamp:
                best = found
    except _UncheckedError as end:
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

    ``read`` returns the bytes of the batch.  Where the search may not go on, the result is the
    first offset that was not checked, with the batch's largest timestamp.
    """
    try:
        for found in _from_offset(read, span, start_offset, budget, at_least=timestamp):
            if found.timestamp >= timestamp:
                return found
    except _UncheckedError as end:
        return OffsetTimestamp(offset=end.offset, timestamp=span.max_timestamp)
    return None


class _UncheckedError(Exception):
    """The search may not go on; ``offset`` is the first offset that was not checked."""

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
        raise _UncheckedError(reached)
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
    # The header of the batch that holds the start offset may be right, and the largest timestamp
    # below that offset.  This one batch is not charged.
    charged = budget if span.base_offset >= start_offset else SearchBudget()
    before = 0
    try:
        for part in _slices(batch, header, budget.batch_bytes_max, charged):
            charged.take(len(part.data))
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
        budget.is_cut_short = True
        raise _UncheckedError(reached) from None
    except DecodeError:
        pass  # the CRC is right: the client sent records that cannot be decoded
    charged.take(span.size)


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


def _slices(
    batch: Buffer, header: BatchHeader, limit_bytes: int, charged: SearchBudget
) -> Iterator[RecordSlice]:
    find_whole: FindWhole | None = None
    if header.record_count > _FEW_RECORDS:
        # This imports NumPy, and takes a fraction of the time for records of different lengths.
        from sparklog.wire.records.record_starts import searched_records

        find_whole = searched_records
    return record_slices(
        header.compression,
        memoryview(batch)[BATCH_OVERHEAD:],
        header.record_count,
        limit_bytes=limit_bytes,
        whole_bytes=_SLICE_BYTES,
        slice_bytes=_SLICE_BYTES,
        find_whole=find_whole,
        shorten=partial(_shortened, charged),
    )


def _shortened(charged: SearchBudget, data: memoryview) -> tuple[bytes, int] | None:
    """A record without key, value and headers, and the size of the record, which is charged.

    None for a record that can be held, and if ``data`` may end within the fields that are left.
    """
    if len(data) < _FIELDS_BYTES_MAX:
        return None
    length, body = decode_varint(data, 0)
    if body + length <= _SLICE_BYTES:
        return None
    _, after_time = decode_varint(data, body + 1, MAX_VARLONG_BYTES)
    _, after_offset = decode_varint(data, after_time)
    fields = bytes(data[body:after_offset]) + _NO_KEY_VALUE_HEADERS
    charged.take(body + length)
    return encode_varint(len(fields)) + fields, body + length
