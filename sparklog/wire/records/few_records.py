"""The check of a client's small batch for a compacted topic, record by record.

Owns: the same check as ``record_fields.first_keyless``, for batches for which a loop takes less
time than the call of a worker thread.  Pure Python, so that brokers do not need NumPy.
"""

from typing import Final

from sparklog.errors import DecodeError
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    Buffer,
    read_header,
)
from sparklog.wire.records.record_slices import check_count
from sparklog.wire.records.zigzag import MAX_VARLONG_BYTES, decode_varint

#: A small batch is not compressed, and has at most so many records and bytes.
RECORDS_MAX: Final = 32
BYTES_MAX: Final = 16 * 1024


def has_few_records(batch: Buffer) -> bool:
    """Whether ``first_keyless_of_few`` is made for this batch; it has a whole header."""
    if not BATCH_OVERHEAD <= len(batch) <= BYTES_MAX:
        return False
    header = read_header(batch)
    return header.record_count <= RECORDS_MAX and not header.attributes & COMPRESSION_MASK


def first_keyless_of_few(batch: Buffer) -> int | None:
    """The index of the first record without a key in one whole batch; None without such a record.

    Raises DecodeError unless all records can be compacted later.
    """
    count = read_header(batch).record_count
    section = memoryview(batch)[BATCH_OVERHEAD:]
    check_count(count, len(section))
    found: int | None = None
    position = 0
    for index in range(count):
        length, body = decode_varint(section, position)
        end = body + length
        if length < 0 or end > len(section):
            raise DecodeError("the lengths of a batch's records do not add up to its size")
        # The byte of attributes follows the length.
        _, at = decode_varint(section, body + 1, MAX_VARLONG_BYTES)
        offset_delta, at = decode_varint(section, at)
        if offset_delta != index:
            raise DecodeError("the offsets of a batch's records do not follow each other")
        key_length, at = decode_varint(section, at)
        _check_field(at, key_length, end)
        value_length, value_start = decode_varint(section, at + max(key_length, 0))
        _check_field(value_start, value_length, end)
        if key_length < 0 and found is None:
            found = index
        position = end
    if position != len(section):
        raise DecodeError("the lengths of a batch's records do not add up to its size")
    return found


def _check_field(start: int, length: int, end: int) -> None:
    if start > end or length < -1 or length > end - start:
        raise DecodeError("a key or value goes on behind the end of its record")
