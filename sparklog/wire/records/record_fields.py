"""The fields of records that compaction reads, by column: positions, deltas, keys, values' lengths.

Owns: reading these fields of whole record sections, and the check of a client's batch for a
compacted topic.  Must not know which records are kept.  This module imports NumPy, so brokers load
it only for compacted topics.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparklog.errors import DecodeError
from sparklog.wire.records.batch import BATCH_OVERHEAD, Buffer, read_header
from sparklog.wire.records.record_slices import record_slices
from sparklog.wire.records.record_starts import record_starts, searched_records
from sparklog.wire.records.varints import PADDING_BYTES, Bytes, Ints, read_varints
from sparklog.wire.records.zigzag import MAX_VARLONG_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFields:
    """One entry per record; positions are in ``data``, which ends with PADDING_BYTES.

    ``start`` is the first byte of a record, ``body`` the byte behind its length, ``after_times``
    the byte behind its timestamp delta.  Lengths are -1 for null.
    """

    data: bytes
    octets: Bytes
    start: Ints
    body: Ints
    after_times: Ints
    end: Ints
    timestamp_delta: Ints
    offset_delta: Ints
    key_start: Ints
    key_length: Ints
    value_length: Ints


def read_record_fields(sections: Sequence[Buffer], counts: Sequence[int]) -> RecordFields:
    """The fields of all records of uncompressed sections with so many records each.

    Raises DecodeError for a field that does not lie within its record.  Headers are not read.
    """
    data = b"".join((*sections, bytes(PADDING_BYTES)))
    octets = np.frombuffer(data, np.uint8)
    sizes = np.array([len(section) for section in sections], np.int64)
    end, body = record_starts(data, octets, np.array(counts, np.int64), sizes)
    start = np.concatenate((np.zeros(1, np.int64), end[:-1])) if len(end) else end
    # The byte of attributes follows the length.
    timestamp_delta, after_times = read_varints(octets, body + 1, MAX_VARLONG_BYTES)
    offset_delta, position = read_varints(octets, after_times)
    key_length, key_start = read_varints(octets, position)
    _check_field(key_start, key_length, end)
    value_length, value_start = read_varints(octets, key_start + np.maximum(key_length, 0))
    _check_field(value_start, value_length, end)
    return RecordFields(
        data=data,
        octets=octets,
        start=start,
        body=body,
        after_times=after_times,
        end=end,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_start=key_start,
        key_length=key_length,
        value_length=value_length,
    )


def first_keyless(batch: Buffer) -> int | None:
    """The index of the first record without a key in one whole batch; None without such a record.

    ``batch`` is a batch of a client, whose offsets have no gaps.  Memory is bounded by a slice of
    the records.  Raises DecodeError unless all records can be compacted later.
    """
    header = read_header(batch)
    before = 0
    found: int | None = None
    for part in record_slices(
        header.compression,
        memoryview(batch)[BATCH_OVERHEAD:],
        header.record_count,
        find_whole=searched_records,
    ):
        fields = read_record_fields([part.data], [part.count])
        if not np.array_equal(fields.offset_delta, np.arange(before, before + part.count)):
            raise DecodeError("the offsets of a batch's records do not follow each other")
        keyless = np.flatnonzero(fields.key_length < 0)
        if found is None and len(keyless):
            found = before + int(keyless[0])
        before += part.count
    return found


def _check_field(start: Ints, length: Ints, end: Ints) -> None:
    if ((start > end) | (length < -1) | (length > end - start)).any():
        raise DecodeError("a key or value goes on behind the end of its record")
