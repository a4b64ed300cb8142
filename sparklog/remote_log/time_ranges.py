"""The timestamps of the records of a segment, by interval (the part ``stats``).

Owns: the intervals in the bytes of the part, which has the format of a ``.stats`` file, and which
offsets they leave for bounds of time.  Must not know how a segment is measured, or objects.

The part has a header with checksums, and then an interval for each entry of the offset index, big
endian: the first offset relative to the segment's i32, and the lowest and the highest timestamp of
its records, i64 each.  See ``executors.log.stats_file`` for the header.
"""

import struct
from itertools import chain, pairwise
from typing import Final

from crc32c import crc32c

from sparklog.errors import DecodeError
from sparklog.remote_log.remote_segment import RemoteSegment
from sparklog.wire.records.batch import Buffer

#: Magic, version, and the CRC-32C of the rest of the header.
_PREFIX: Final = struct.Struct(">4shI")
#: Size and next offset of the log; the number of intervals (-1: not measured) and their CRC-32C.
_FIELDS: Final = struct.Struct(">qq44xiI")
_INTERVAL: Final = struct.Struct(">iqq")
_HEADER_BYTES: Final = _PREFIX.size + _FIELDS.size
_NOT_MEASURED: Final = -1


def offsets_within(
    stats: Buffer, segment: RemoteSegment, lowest_ms: int | None, highest_ms: int | None
) -> list[tuple[int, int]]:
    """The spans of offsets that hold all records with timestamps in [``lowest_ms``, ``highest_ms``]
    (milliseconds; None is no bound), in order.

    Raises DecodeError unless ``stats`` are the sound statistics of the whole segment.
    """
    spans: list[tuple[int, int]] = []
    behind = (segment.next_offset - segment.base_offset, 0, 0)
    for (first, lowest, highest), (end, _, _) in pairwise(
        chain(_intervals(stats, segment), [behind])
    ):
        if not 0 <= first < end:
            raise DecodeError("intervals of segment statistics do not ascend")
        too_old = lowest_ms is not None and highest < lowest_ms
        too_new = highest_ms is not None and lowest > highest_ms
        if too_old or too_new:
            continue
        span = segment.base_offset + first, segment.base_offset + end
        if spans and spans[-1][1] == span[0]:
            spans[-1] = spans[-1][0], span[1]
        else:
            spans.append(span)
    return spans


def _intervals(stats: Buffer, segment: RemoteSegment) -> list[tuple[int, int, int]]:
    view = memoryview(stats)
    if len(view) < _HEADER_BYTES:
        raise DecodeError(f"segment statistics of {len(view)} bytes are cut off")
    magic, version, crc = _PREFIX.unpack_from(view)
    if (magic, version) != (b"SLST", 1) or crc != crc32c(view[_PREFIX.size : _HEADER_BYTES]):
        raise DecodeError("segment statistics are damaged, or of an unknown kind")
    log_size, next_offset, count, body_crc = _FIELDS.unpack_from(view, _PREFIX.size)
    body = view[_HEADER_BYTES:]
    if count == _NOT_MEASURED or len(body) != count * _INTERVAL.size or body_crc != crc32c(body):
        raise DecodeError("segment statistics have no sound intervals")
    if (log_size, next_offset) != (segment.log_size, segment.next_offset):
        raise DecodeError("segment statistics are those of another segment")
    return list(_INTERVAL.iter_unpack(body))
