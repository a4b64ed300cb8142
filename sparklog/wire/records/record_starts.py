"""The start and end positions of records in uncompressed record sections.

Owns: the walk along the length prefixes, the only sequential part of decoding.  Must not know the
fields of a record, except the bytes at which a record may begin and end.

A record without headers ends in a zero byte (its header count) and has a zero byte (its unused
attributes) after its length.  So in records of ordinary size nearly all places with a zero byte
before and behind a plausible length are records.  These places are found by column and then
*proven*: each length must lead exactly to the next record, from the first byte to the last, and
every batch must begin at its position with its record count.  Otherwise a plain loop walks.

Before that, runs of records of one length are searched: many topics have records of one size, and
a run lasts as long as the same prefix is found at every stride.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from sparklog.errors import DecodeError
from sparklog.wire.records.record_slices import MIN_RECORD_BYTES, whole_records
from sparklog.wire.records.varints import PADDING_BYTES, Bytes, Ints, read_varints
from sparklog.wire.records.zigzag import decode_varint

#: Fewer records than this are walked faster than searched.
_MIN_RECORDS_TO_SEARCH: Final = 256
#: Larger records are walked: the search costs time per byte, the walk per record.
_MAX_MEAN_BYTES_TO_SEARCH: Final = 320
#: Data with more zero bytes than this per record is not worth searching.
_MAX_ZEROS_PER_RECORD: Final = 12
#: A first length byte below this cannot be a record's: six bytes, zigzag.
_MIN_LENGTH_BYTE: Final = (MIN_RECORD_BYTES - 1) << 1
#: Fewest records per run on average, and the number of first runs that may be shorter.
_MEAN_RUN: Final = 32
_SHORT_RUNS_MAX: Final = 8
#: Records of a slice that are walked first, to learn the size of records.
_SAMPLE: Final = 64
#: Largest length prefix in bytes that ``_search`` reads behind a start.
_LOOK_AHEAD: Final = 8
#: First byte of a length -> its contribution to the distance of the next record.
_STEP: Final = [(b >> 1) + 1 if b < 128 else ((b & 127) >> 1) + 2 for b in range(256)]


def record_starts(data: bytes, octets: Bytes, counts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """(ends of the records, positions after their length prefixes), over all sections.

    ``data`` (and ``octets``, the same as an array) is the sections end to end and PADDING_BYTES;
    section i has ``counts[i]`` records in ``sizes[i]`` bytes.  Raises DecodeError.
    """
    total = int(sizes.sum())
    count = int(counts.sum())
    section_starts = np.cumsum(sizes) - sizes
    if count >= _MIN_RECORDS_TO_SEARCH:
        runs = _runs(data, octets, counts.tolist(), section_starts.tolist(), sizes.tolist())
        if runs is not None:
            return runs
    if count >= _MIN_RECORDS_TO_SEARCH and total <= count * _MAX_MEAN_BYTES_TO_SEARCH:
        starts = _search(octets[:total], octets, count)
        if starts is not None:
            found = _prove(octets, starts, counts, section_starts, total)
            if found is not None:
                return found
    starts = np.fromiter(_walk(data, counts.tolist(), section_starts.tolist()), np.int64, count)
    found = _prove(octets, starts, counts, section_starts, total)
    if found is None:
        raise DecodeError("the lengths of a batch's records do not add up to its size")
    return found


def searched_records(
    data: bytes | memoryview, count_max: int, bytes_max: int | None = None
) -> tuple[int, int]:
    """As ``whole_records``, by column as far as possible.

    The result may be shorter than that of ``whole_records``, but has at least one record.
    """
    limit = len(data) if bytes_max is None else min(bytes_max, len(data))
    count, end = whole_records(data, min(_SAMPLE, count_max), limit)
    if count < min(_SAMPLE, count_max):
        return count, end
    left = limit - end
    if left * count < _MIN_RECORDS_TO_SEARCH * end or end > count * _MAX_MEAN_BYTES_TO_SEARCH:
        return _and_further(data, count, end, count_max, limit)
    # A run of records of one length is found faster without the search.
    more, further = _and_further(data, count, end, min(3 * _SAMPLE, count_max), limit)
    if further * count == more * end:
        return _and_further(data, more, further, count_max, limit)
    ends = _chain(data[end : limit + _LOOK_AHEAD], left, len(data) - end)[: count_max - count]
    if len(ends):
        count, end = count + len(ends), end + int(ends[-1])
    if 4 * end >= limit:
        return count, end
    return _and_further(data, count, end, count_max, limit)


def _and_further(
    data: bytes | memoryview, count: int, end: int, count_max: int, limit: int
) -> tuple[int, int]:
    """``whole_records`` behind ``count`` known records that end at ``end``."""
    if count == count_max or end >= limit:
        return count, end
    try:
        more, further = whole_records(data[end:], count_max - count, limit - end)
    except DecodeError:
        return count, end  # raised only if no record comes before it
    return count + more, end + further


def _chain(data: bytes | memoryview, limit: int, size: int) -> Ints:
    """The ends of consecutive whole records from the first byte on.

    Only records that start below ``limit`` and end at ``size`` or before.
    """
    octets = np.frombuffer(b"".join((data, bytes(PADDING_BYTES))), np.uint8)
    starts = _likely(octets, np.flatnonzero(octets[: limit - 1] == 0))
    lengths, after = _lengths(octets, starts)
    known = np.zeros(limit + 1, np.bool_)
    known[starts] = True
    ends = after + lengths
    sound = (lengths >= MIN_RECORD_BYTES - 1) & (ends <= size)
    # Drop starts that do not lead to another likely start, as most wrong ones do not.
    sound &= (ends >= limit) | known.take(np.minimum(ends, limit))
    starts, ends = starts[sound], ends[sound]
    if not len(starts) or starts[0] != 0:
        return ends[:0]
    broken = np.flatnonzero(ends[:-1] != starts[1:])
    return ends[: int(broken[0]) + 1] if len(broken) else ends


def _runs(
    data: bytes, octets: Bytes, counts: list[int], section_starts: list[int], sizes: list[int]
) -> tuple[Ints, Ints] | None:
    """Ends and bodies, if the records are few runs of one length each."""
    ends: list[Ints] = []
    bodies: list[Ints] = []
    found = 0
    for count, start, size in zip(counts, section_starts, sizes, strict=True):
        position, section_end, left = start, start + size, count
        while left:
            if len(ends) > _SHORT_RUNS_MAX + found // _MEAN_RUN:
                return None
            length, body = decode_varint(data, position)
            stride = body + length - position
            most = min(left, (section_end - position) // stride) if length > 0 else 0
            if not most:
                return None
            run = _same_prefix(octets, position, stride, body - position, most)
            starts = np.arange(position, position + run * stride, stride)
            bodies.append(starts + (body - position))
            ends.append(starts + stride)
            position += run * stride
            left -= run
            found += run
        if position != section_end:
            return None
    return (np.concatenate(ends), np.concatenate(bodies)) if found else None


def _same_prefix(octets: Bytes, position: int, stride: int, width: int, most: int) -> int:
    """The number of records at a stride (``most`` at most) with the first one's length."""
    same = np.ones(most, np.bool_)
    for index in range(position, position + width):
        same &= octets[index : index + (most - 1) * stride + 1 : stride] == octets[index]
    return most if same.all() else int(same.argmin())


def _search(plain: Bytes, octets: Bytes, count: int) -> Ints | None:
    """The likely starts, in order: exactly ``count`` of them, or None."""
    zeros = np.flatnonzero(plain == 0)
    if len(zeros) > _MAX_ZEROS_PER_RECORD * count:
        return None
    found = _likely(octets, zeros)
    if len(found) == count:
        return found
    return _narrow(octets, found, len(plain), count)


def _likely(octets: Bytes, zeros: Ints) -> Ints:
    """The likely starts among the first byte and the bytes behind zero bytes."""
    starts = np.empty(len(zeros) + 1, np.int64)
    starts[0] = 0
    np.add(zeros, 1, out=starts[1:])
    first = octets.take(starts)
    long = first > 0x7F
    behind = starts + 1 + long
    behind += long & (octets.take(starts + 1) > 0x7F)
    likely = (octets.take(behind) == 0) & (first >= _MIN_LENGTH_BYTE)
    found: Ints = starts[likely]
    return found


def _narrow(octets: Bytes, starts: Ints, total: int, count: int) -> Ints | None:
    """Drop starts that do not lead to another likely start, then starts that none leads to."""
    if len(starts) < count:
        return None
    lengths, after = _lengths(octets, starts)
    following = after + lengths
    known = np.zeros(total + 1, np.bool_)
    known[starts] = True
    known[total] = True
    leads_on = (lengths > 0) & (following <= total)
    leads_on &= known.take(np.where(leads_on, following, 0))
    starts, following = starts[leads_on], following[leads_on]
    if len(starts) > count:
        known[:] = False
        known[0] = True
        known[following] = True
        starts = starts[known.take(starts)]
    return starts if len(starts) == count else None


def _lengths(octets: Bytes, starts: Ints) -> tuple[Ints, Ints]:
    """Like read_varints, for lengths of up to three bytes; longer ones come out as -1."""
    first, second, third = (octets.take(starts + k).astype(np.int64) for k in range(3))
    two, three = first > 0x7F, (first > 0x7F) & (second > 0x7F)
    raw = (first & 0x7F) | np.where(two, (second & 0x7F) << 7, 0) | np.where(three, third << 14, 0)
    odd_or_longer = ((raw & 1) == 1) | (three & (third > 0x7F))
    return np.where(odd_or_longer, -1, raw >> 1), starts + 1 + two + three


def _prove(
    octets: Bytes, starts: Ints, counts: Ints, section_starts: Ints, total: int
) -> tuple[Ints, Ints] | None:
    """Ends and bodies, if the starts form a chain from 0 to ``total`` that fits the sections."""
    ends = np.empty(len(starts), np.int64)
    if len(starts):
        ends[:-1] = starts[1:]
        ends[-1] = total
        if starts[0] != 0:
            return None
    elif total:
        return None
    lengths, bodies = read_varints(octets, starts)
    if not np.array_equal(bodies + lengths, ends):
        return None
    firsts = np.cumsum(counts) - counts
    filled = counts > 0
    if not np.array_equal(starts[firsts[filled]], section_starts[filled]):
        return None
    return ends, bodies


def _walk(data: bytes, counts: list[int], section_starts: list[int]) -> Iterator[int]:
    """Unchecked starts by following the lengths, at most to the end of the data."""
    last = len(data) - PADDING_BYTES
    for count, position in zip(counts, section_starts, strict=True):
        for _ in range(count):
            yield position
            byte = data[position]
            if byte < 0x80:
                position += _STEP[byte]
            elif (second := data[position + 1]) < 0x80:
                position += _STEP[byte] + (second << 6)
            else:
                length, position = decode_varint(data, position)
                position += max(length, 0)
            if position > last:
                position = last
