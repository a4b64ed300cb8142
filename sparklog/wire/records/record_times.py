"""Record timestamps of many batches at once: the lowest and the highest of each batch.

Owns: reading timestamps without decoding other fields, and finding the first timestamp of a search.
Must not know files.  This module imports NumPy, so brokers load it only when they need it.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from sparklog.errors import DecodeError
from sparklog.types import TimestampType
from sparklog.wire.records.batch import BATCH_OVERHEAD, BatchHeader, Buffer
from sparklog.wire.records.compression import decompress
from sparklog.wire.records.record_slices import MIN_RECORD_BYTES, RecordSlice
from sparklog.wire.records.record_starts import record_starts
from sparklog.wire.records.varints import PADDING_BYTES, Bytes, Ints, read_varints
from sparklog.wire.records.zigzag import MAX_VARLONG_BYTES

#: Bytes of records that are decompressed and decoded at a time.
_GROUP_BYTES: Final = 4 << 20
#: Larger decompressed batches are not measured: their records may have any timestamp.
MEASURED_BYTES_MAX: Final = 8 << 20
#: The same limit for all batches of one call, so that a call takes a bounded time.
CALL_BYTES_MAX: Final = 64 << 20

#: Lowest and highest timestamp, in milliseconds.
Times = tuple[int, int]


def record_times(batches: Sequence[tuple[BatchHeader, Buffer]]) -> list[Times | None]:
    """(lowest, highest) timestamp of the records of each whole batch.

    None for a batch whose records cannot be decoded, as clients may send them, and for batches
    beyond MEASURED_BYTES_MAX and CALL_BYTES_MAX.  Of a LogAppendTime batch only the header is
    read.  The CRC is not checked.
    """
    found: list[Times | None] = [
        (header.max_timestamp, header.max_timestamp) for header, _ in batches
    ]
    group: list[tuple[int, Buffer]] = []
    size = total = 0
    for index, (header, batch) in enumerate(batches):
        if header.timestamp_type is not TimestampType.CREATE_TIME:
            continue
        section = _section(header, batch) if total < CALL_BYTES_MAX else None
        if section is None:
            found[index] = None
            continue
        if group and size + len(section) > _GROUP_BYTES:
            _fill_in(found, batches, group)
            group, size = [], 0
        group.append((index, section))
        size += len(section)
        total += len(section)
        if size >= _GROUP_BYTES:
            _fill_in(found, batches, group)
            group, size = [], 0
    _fill_in(found, batches, group)
    return found


def find_time(
    part: RecordSlice, header: BatchHeader, start_offset: int, at_least: int | None
) -> tuple[int, int] | None:
    """(offset, timestamp) of the first record from ``start_offset`` on with the timestamp.

    The timestamp must be ``at_least`` or, if that is None, the largest.  The batch has CreateTime.
    Returns None without such a record.  Raises DecodeError.
    """
    if not part.count:
        return None
    ends, deltas, positions, octets = _time_deltas(np.array([part.count], np.int64), [part.data])
    times = deltas + header.base_timestamp
    offset_deltas, after = read_varints(octets, positions)
    if (after > ends).any():
        raise DecodeError("an offset goes on behind the end of its record")
    offsets = offset_deltas + header.base_offset
    wanted = offsets >= start_offset
    if at_least is not None:
        wanted &= times >= at_least
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return None
    row = rows[0] if at_least is not None else rows[times[rows].argmax()]
    return int(offsets[row]), int(times[row])


def _section(header: BatchHeader, batch: Buffer) -> Buffer | None:
    if header.record_count <= 0:
        return None
    try:
        packed = memoryview(batch)[BATCH_OVERHEAD:]
        return decompress(header.compression, packed, MEASURED_BYTES_MAX)
    except DecodeError:
        return None


def _fill_in(
    found: list[Times | None],
    batches: Sequence[tuple[BatchHeader, Buffer]],
    group: Sequence[tuple[int, Buffer]],
) -> None:
    """Decode the sections of ``group`` together, or each alone if that fails."""
    if not group:
        return
    headers = [batches[index][0] for index, _ in group]
    try:
        times: list[Times | None] = list(_decode(headers, [section for _, section in group]))
    except DecodeError:
        if len(group) > 1:
            for one in group:
                _fill_in(found, batches, [one])
            return
        times = [None]
    for (index, _), pair in zip(group, times, strict=True):
        found[index] = pair


def _decode(headers: Sequence[BatchHeader], sections: Sequence[Buffer]) -> Iterator[Times]:
    counts = np.array([header.record_count for header in headers], np.int64)
    _, deltas, _, _ = _time_deltas(counts, sections)
    firsts = np.cumsum(counts) - counts
    bases = np.array([header.base_timestamp for header in headers], np.int64)
    least, most = np.minimum.reduceat(deltas, firsts), np.maximum.reduceat(deltas, firsts)
    lowest, highest = least + bases, most + bases
    if (((least < 0) & (lowest > bases)) | ((most > 0) & (highest < bases))).any():
        raise DecodeError("a timestamp exceeds 64 bits")
    return zip(lowest.tolist(), highest.tolist(), strict=True)


def _time_deltas(counts: Ints, sections: Sequence[Buffer]) -> tuple[Ints, Ints, Ints, Bytes]:
    """By record: its end, timestamp delta and the position behind the delta; and the bytes."""
    sizes = np.array([len(section) for section in sections], np.int64)
    # Allocate no memory for more records than there are bytes.
    if (counts * MIN_RECORD_BYTES > sizes).any():
        raise DecodeError("a batch claims more records than it has bytes")
    data = b"".join([*sections, bytes(PADDING_BYTES)])
    octets = np.frombuffer(data, np.uint8)
    ends, bodies = record_starts(data, octets, counts, sizes)
    # The byte of attributes follows the length.
    deltas, after = read_varints(octets, bodies + 1, MAX_VARLONG_BYTES)
    if (after > ends).any():
        raise DecodeError("a timestamp goes on behind the end of its record")
    return ends, deltas, after, octets
