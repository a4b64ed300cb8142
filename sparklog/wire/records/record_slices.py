"""The records of one batch in slices of bounded size, decompressed on demand.

Owns: cutting a record section, which is decompressed part by part, behind whole records.  Must not
know the fields of a record, nor the reader.  Pure Python, so that brokers do not need NumPy.

A batch of a few kilobytes may decompress to more than 100 MiB.  Most batches are small and come as
one slice without a walk; the records of a larger batch are walked by their lengths.  A slice is a
record section of its own: whole records, and their count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from sparklog.errors import DecodeError
from sparklog.types import Compression
from sparklog.wire.records.compression import (
    MAX_RATIOS,
    MAX_UNCOMPRESSED_BYTES,
    Buffer,
    TooLargeError,
    decompress,
    decompress_parts,
)
from sparklog.wire.records.zigzag import MAX_VARINT_BYTES, decode_varint

#: Length, attributes, two deltas, key length, value length, header count: a byte each.
MIN_RECORD_BYTES: Final = 7
#: A batch with more bytes of records than this is cut into slices of about this size.
SLICE_BYTES: Final = 1024 * 1024

#: Compressed records up to this size are first decompressed at once; only few of them
#: turn out to be more than one slice, and are decompressed a second time.
_SMALL_BYTES: Final = 64 * 1024
#: Consecutive records of one length after which a run of such records is searched.
_RUN_BEGINS: Final = 8


@dataclass(slots=True)
class RecordSlice:
    """Consecutive records of a batch, and their number.

    Not frozen, because making a frozen dataclass takes three times as long.
    """

    count: int
    data: bytes | memoryview


class FindWhole(Protocol):
    """The type of ``whole_records`` and its replacements, which may end before ``bytes_max``."""

    def __call__(
        self, data: memoryview, count_max: int, bytes_max: int | None = None, /
    ) -> tuple[int, int]: ...


class Shorten(Protocol):
    """The type of a function that replaces a record which is too large to be held."""

    def __call__(self, data: memoryview, /) -> tuple[bytes, int] | None:
        """What stands for the record at the start of ``data``, and the record's size in bytes.

        None if more bytes of the record are needed.  Raises DecodeError.
        """


def whole_slice(
    compression: Compression,
    packed: Buffer,
    record_count: int,
    *,
    limit_bytes: int,
    whole_bytes: int,
) -> RecordSlice | None:
    """The only slice of a small batch; None for a batch that needs ``record_slices``.

    Not a generator: most batches are small, and this call is most of their cost.  Raises
    DecodeError.
    """
    bytes_max = min(limit_bytes, whole_bytes)
    plain: bytes | memoryview
    if compression is Compression.NONE:
        if len(packed) > bytes_max:
            return None
        plain = memoryview(packed)
    elif len(packed) > _SMALL_BYTES:
        return None
    else:
        try:
            plain = decompress(compression, packed, bytes_max)
        except TooLargeError:
            return None
    check_count(record_count, len(plain))
    return RecordSlice(record_count, plain)


def record_slices(
    compression: Compression,
    packed: Buffer,
    record_count: int,
    *,
    limit_bytes: int = MAX_UNCOMPRESSED_BYTES,
    whole_bytes: int = SLICE_BYTES,
    slice_bytes: int = SLICE_BYTES,
    find_whole: FindWhole | None = None,
    shorten: Shorten | None = None,
) -> Iterator[RecordSlice]:
    """The ``record_count`` records of a batch whose (compressed) record section is ``packed``.

    Yields one slice if the records have at most ``whole_bytes`` bytes; only its size is compared
    with the count.  Else yields slices of about ``slice_bytes``, or of one larger record.
    ``find_whole`` replaces ``whole_records``, for instance by column.  ``shorten`` is asked about
    each record whose end has not been decompressed yet.

    Raises DecodeError, maybe after some slices: for malformed data, for a wrong count, and for
    more than ``limit_bytes`` (``TooLargeError``).
    """
    if record_count < 0:
        raise DecodeError(f"a batch cannot have {record_count} records")
    first: list[bytes | memoryview] = []
    size = 0
    parts = decompress_parts(compression, packed, limit_bytes, max(slice_bytes, 1))
    for part in parts:
        first.append(part)
        size += len(part)
        if size > whole_bytes:
            break
    else:
        plain = _joined(first)
        check_count(record_count, len(plain))
        yield RecordSlice(record_count, plain)
        return
    yield from _cut(
        _joined(first), parts, record_count, slice_bytes, find_whole or whole_records, shorten
    )


def check_count(record_count: int, plain_bytes: int) -> None:
    """Raises DecodeError for more records than ``plain_bytes`` bytes can hold."""
    if not 0 <= record_count * MIN_RECORD_BYTES <= plain_bytes:
        raise DecodeError(f"a batch says {record_count} records in {plain_bytes} bytes")


def check_plausible_count(record_count: int, compression: int, packed_bytes: int) -> None:
    """Raises DecodeError for more records than ``packed_bytes`` can hold, without decompression.

    The bound on compressed records is the largest expansion of the codec, and the limit of readers
    (``MAX_UNCOMPRESSED_BYTES``).  An unknown codec is accepted here.
    """
    if compression not in MAX_RATIOS:
        return
    plain_bytes = min(packed_bytes * MAX_RATIOS[compression], MAX_UNCOMPRESSED_BYTES)
    if compression == Compression.NONE:
        plain_bytes = packed_bytes
    if record_count * MIN_RECORD_BYTES > plain_bytes:
        raise DecodeError(
            f"a batch says {record_count} records, its {packed_bytes} bytes of records can hold "
            f"{plain_bytes // MIN_RECORD_BYTES} at most"
        )


def _joined(parts: list[bytes | memoryview]) -> bytes | memoryview:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _cut(
    held: bytes | memoryview,
    parts: Iterator[bytes | memoryview],
    record_count: int,
    slice_bytes: int,
    find_whole: FindWhole,
    shorten: Shorten | None,
) -> Iterator[RecordSlice]:
    """Slices of ``held`` and the parts that follow it."""
    left = record_count
    while left:
        count, end = find_whole(memoryview(held), left, slice_bytes)
        if count:
            yield RecordSlice(count, memoryview(held)[:end])
            left -= count
            held = memoryview(held)[end:]
            continue
        short = shorten(memoryview(held)) if shorten is not None else None
        if short is not None:
            data, size = short
            held = _behind(held, parts, size)
            yield RecordSlice(1, data)
            left -= 1
            continue
        part = next(parts, None)
        if part is None:
            raise DecodeError(
                f"a batch says {record_count} records, the bytes end after {record_count - left}"
            )
        # The buffer of a record larger than a part doubles: no copy per part.
        more: list[bytes | memoryview] = [held, part]
        wanted, size = len(held), len(part)
        while size < wanted and (part := next(parts, None)) is not None:
            more.append(part)
            size += len(part)
        held = b"".join(more)
    if len(held) or any(map(len, parts)):
        raise DecodeError("bytes are left over after the last record of a batch")


def _behind(
    held: bytes | memoryview, parts: Iterator[bytes | memoryview], size: int
) -> bytes | memoryview:
    """What is decompressed behind the first ``size`` bytes of ``held`` and the parts."""
    part: bytes | memoryview | None = held
    while part is not None and len(part) < size:
        size -= len(part)
        part = next(parts, None)
    if part is None:
        raise DecodeError(f"the bytes of a batch end {size} bytes before the end of a record")
    return memoryview(part)[size:]


def whole_records(
    data: bytes | memoryview, count_max: int, bytes_max: int | None = None
) -> tuple[int, int]:
    """(number of whole records at the start of ``data``, their end), by record lengths alone.

    At most ``count_max`` records; the first that reaches beyond ``bytes_max`` is the last.  Raises
    DecodeError if the first record has an impossible length; a later one ends the walk.
    """
    limit = len(data) if bytes_max is None else min(bytes_max, len(data))
    octets = bytes(data[: limit + MAX_VARINT_BYTES])
    count = position = alike = 0
    before = -1
    while count < count_max and position < limit:
        raw, body = octets[position], position + 1
        if raw > 0x7F and body < len(octets) and (second := octets[body]) < 0x80:
            raw, body = raw & 0x7F | second << 7, position + 2
        if raw > 0x7F and body == position + 1:
            try:
                length, body = decode_varint(octets, position)
            except DecodeError:
                if count or len(data) - position < MAX_VARINT_BYTES:
                    break
                raise
        else:
            length = (raw >> 1) ^ -(raw & 1)
        if length < MIN_RECORD_BYTES - 1:
            if count:
                break
            raise DecodeError(f"a record cannot have {length} bytes")
        end = body + length
        if end > len(data):
            break
        count += 1
        if length != before:
            before, alike, position = length, 0, end
            continue
        alike += 1
        if alike >= _RUN_BEGINS:
            room = max(limit - end, 0) // (end - position)
            run = _run(data, position, body, end, min(count_max - count, room))
            count += run
            end += run * (end - position)
            alike = 0
        position = end
    return count, position


def _run(data: bytes | memoryview, position: int, body: int, end: int, most: int) -> int:
    """The number of records with the same length prefix behind the record [position, end)."""
    stride = end - position
    found = min(most, (len(data) - end) // stride)
    for index in range(position, body):
        if not found:
            break
        same = bytes(data[index + stride : index + stride * found + 1 : stride])
        found = len(same) - len(same.lstrip(same[:1])) if same[0] == data[index] else 0
    return found
