"""Targets: record batches as they come, and their records with length and CRC made right.

Two decoders of ours read the same batch, one by records and one by columns, and must agree.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from sparklog.errors import DecodeError, KafkaError
from sparklog.types import Compression
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    CRC_START,
    LOG_OVERHEAD,
    MAGIC_V2,
    check_batch,
    check_client_batch,
    iter_batches,
    read_header,
)
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import decode_columns, next_offset
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker
from sparklog.wire.records.record_slices import record_slices, whole_records
from tests.fuzz.target import Target

GOLDEN = Path(__file__).parents[2] / "golden"
LIMIT_BYTES = 64 * 1024
REFUSALS = (DecodeError, KafkaError)

_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_SIZE = struct.Struct(">H")


def _walk(data: bytes) -> None:
    for header, start in iter_batches(data, partial_tail=True):
        check_batch(data, start, header)
        check_client_batch(header)
    next_offset(data)
    list(iter_batches(data))


def _mended(data: bytes) -> bytes:
    """One batch of these bytes, with magic, length and CRC as they must be."""
    batch = bytearray(data.ljust(BATCH_OVERHEAD, b"\0"))
    _LENGTH.pack_into(batch, 8, len(batch) - LOG_OVERHEAD)
    batch[16] = MAGIC_V2
    _CRC.pack_into(batch, 17, crc32c(batch[CRC_START:]))
    return bytes(batch)


def _decode_twice(data: bytes) -> None:
    batch = _mended(data)
    found = [_read(by, batch) for by in (_by_records, _by_columns)]
    assert found[0] == found[1]
    if found[0] is None:
        raise DecodeError("both refuse it")


def _read(by: Any, batch: bytes) -> Any:
    try:
        return by(batch)
    except REFUSALS:
        return None


def _by_records(batch: bytes) -> list[tuple[Any, ...]]:
    records = decode_records(batch, skip_control=False, limit_bytes=LIMIT_BYTES)
    return [(r.key, r.value, _wrapped(r.offset), r.headers) for r in records]


def _by_columns(batch: bytes) -> list[tuple[Any, ...]]:
    columns = decode_columns(
        batch, start_offset=-(2**64), end_offset=2**64, skip_control=False,
        limit_bytes=LIMIT_BYTES,
    )  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    for part in columns:
        part.validate(full=True)
        keys, values, offsets = (part[name].to_pylist() for name in ("key", "value", "offset"))
        part["timestamp"].cast(pa.int64())
        headers = part["headers"].to_pylist()
        assert len(part["timestampType"]) == part.num_rows
        for key, value, offset, pairs in zip(keys, values, offsets, headers, strict=True):
            named = tuple((pair["key"], pair["value"]) for pair in pairs or ())
            rows.append((key, value, offset, named))
    return rows


def _slice(data: bytes) -> None:
    """The slices of a batch hold the records that it decodes to; and where they end, it does."""
    batch = _mended(data)
    header = read_header(batch)
    found = record_slices(
        header.compression,
        memoryview(batch)[BATCH_OVERHEAD:],
        header.record_count,
        limit_bytes=LIMIT_BYTES,
        whole_bytes=0,
        slice_bytes=64,
    )
    parts = list(found)
    assert sum(part.count for part in parts) == header.record_count
    for part in parts:
        assert whole_records(part.data, part.count + 1) == (part.count, len(part.data))


def _leave_out(data: bytes) -> None:
    """With and without what cannot be read: what is given, and what is told of, do not overlap."""
    batch = _mended(data)
    header = read_header(batch)
    told: list[tuple[int, int]] = []
    rows = sum(
        part.num_rows
        for part in decode_columns(
            batch, start_offset=-(2**64), end_offset=2**64, skip_control=False,
            limit_bytes=LIMIT_BYTES, group_bytes=256,
            on_fault=lambda first, last, error: told.append((first, last)),
        )
    )  # fmt: skip
    assert len(told) <= 1
    assert rows <= max(header.record_count, 0)
    strict = _read(_by_columns, batch)
    if strict is not None:
        assert not told
        assert rows == len(strict)
    if told:
        raise DecodeError("records are left out")


def _wrapped(number: int) -> int:
    """As 64 bits hold it."""
    return (number + 2**63) % 2**64 - 2**63


def _decode_committed(data: bytes) -> None:
    """An answer: how many transactions were aborted, then batches, each behind its size."""
    count, position = (data[0] % 4, 1) if data else (0, 0)
    aborted = tuple(
        AbortedTransaction(producer_id=number, first_offset=number * 2) for number in range(count)
    )
    batches = b""
    while position + _SIZE.size <= len(data):
        (size,) = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        batches += _mended(data[position : position + size])
        position += size
    for part in decode_columns(batches, aborted=aborted, limit_bytes=LIMIT_BYTES):
        part.validate(full=True)


def _batches() -> Iterator[bytes]:
    records = [
        Record(key=b"k", value=b"value" * 4, timestamp=1000, headers=(("h", b"x"), ("n", None))),
        Record(key=None, value=None, timestamp=990),
        Record(key=b"", value=b"", timestamp=2**40),
    ]
    for codec in Compression:
        yield encode_batch(records, compression=codec, base_offset=5)
    yield encode_batch(records[:1], producer_id=1, producer_epoch=2, base_sequence=3)
    yield encode_batch([], base_offset=7, last_offset_delta=3)
    for kind in ControlType:
        marker = EndTxnMarker(control_type=kind, coordinator_epoch=4)
        yield encode_marker(marker, producer_id=1, producer_epoch=2, timestamp=3, base_offset=9)


def _seeds() -> Iterator[bytes]:
    yield from _batches()
    for path in sorted(GOLDEN.glob("*.bin")):
        yield path.read_bytes()[:4096]


def _answers() -> Iterator[bytes]:
    transactional = encode_batch([Record(value=b"v" * 80)], producer_id=1, transactional=True)
    marker = EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=4)
    end = encode_marker(marker, producer_id=1, producer_epoch=0, timestamp=3, base_offset=3)
    for batch in _batches():
        answer = (transactional, end, batch)
        yield b"\2" + b"".join(_SIZE.pack(len(part)) + part for part in answer)


TARGETS = [
    Target(name="batches", decode=_walk, seeds=_seeds, errors=REFUSALS),
    Target(name="records", decode=_decode_twice, seeds=_batches, errors=REFUSALS),
    Target(name="record-slices", decode=_slice, seeds=_batches, errors=REFUSALS),
    Target(name="readable-records", decode=_leave_out, seeds=_batches, errors=REFUSALS),
    Target(name="committed-records", decode=_decode_committed, seeds=_answers, errors=REFUSALS),
]
