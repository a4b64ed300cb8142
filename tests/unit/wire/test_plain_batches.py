"""Batches for a reader that decodes records itself: all wanted batches, and no others."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import Compression
from sparklog.wire.protocol.messages.fetch import AbortedTransaction
from sparklog.wire.records.batch import BATCH_OVERHEAD, iter_batches, pack_attributes, pack_batch
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.columns import decode_columns
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker
from sparklog.wire.records.plain_batches import plain_batches

HERE = {"start_offset": 0, "end_offset": 2**40}


def batch(first: int, count: int, codec: Compression = Compression.NONE, **options: Any) -> bytes:
    records = [Record(value=b"value %d" % n, key=b"k", timestamp=n) for n in range(count)]
    return encode_batch(records, base_offset=first, compression=codec, **options)


def pieces(data: bytes, **options: Any) -> list[bytes]:
    found = list(plain_batches(data, **HERE | options))
    return [
        bytes(each.data[first:end])
        for each in found
        for first, end in zip(each.edges, each.edges[1:], strict=False)
    ]


def test_batches_that_follow_each_other_are_given_as_they_are() -> None:
    data = b"".join(batch(first, 10) for first in range(0, 50, 10))
    [found] = plain_batches(data, **HERE)
    assert (found.data, found.edges) == (data, (0, len(data)))
    assert found.data.obj is data  # type: ignore[union-attr]


def test_a_piece_ends_with_the_batch_that_fills_it() -> None:
    each = batch(0, 10)
    data = b"".join(batch(first, 10) for first in range(0, 50, 10))
    size = len(each)
    [found] = plain_batches(data, piece_bytes=size + 1, **HERE)
    assert found.edges == (0, 2 * size, 4 * size, 5 * size)


def test_what_is_left_out_parts_what_is_not() -> None:
    old, wanted, later = batch(0, 5), batch(5, 5), batch(10, 5)
    aborted = batch(15, 5, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = encode_marker(
        EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=0),
        base_offset=20,
        timestamp=0,
        producer_id=7,
        producer_epoch=0,
    )
    last, outside = batch(21, 2), batch(23, 2)
    data = old + wanted + later + aborted + marker + last + outside
    found = pieces(
        data,
        start_offset=7,
        end_offset=23,
        aborted=[AbortedTransaction(producer_id=7, first_offset=15)],
    )
    assert found == [wanted + later, last]
    assert pieces(old, min_timestamp=5) == []
    assert pieces(data[:-1], start_offset=22) == [last]


def test_a_compressed_batch_comes_as_if_it_never_was() -> None:
    plain = batch(0, 20) + batch(20, 20)
    data = batch(0, 20, Compression.ZSTD) + batch(20, 20, Compression.GZIP)
    [found] = pieces(data)
    assert len(found) == len(plain)
    headers = [header for header, _ in iter_batches(found)]
    assert [header.compression for header in headers] == [Compression.NONE] * 2
    assert list(decode_columns(found, check_crc=False)) == list(decode_columns(plain))
    first, second = pieces(data, piece_bytes=1)
    assert first + second == found


def test_damage_and_lies_are_told() -> None:
    data = bytearray(batch(0, 5))
    data[70] ^= 1
    with pytest.raises(KafkaError) as caught:
        pieces(bytes(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    lie = pack_batch(
        batch(0, 2)[BATCH_OVERHEAD:],
        attributes=pack_attributes(Compression.NONE),
        record_count=9,
        last_offset_delta=8,
        base_timestamp=0,
        max_timestamp=0,
    )
    with pytest.raises(DecodeError, match="says 9 records in"):
        pieces(lie)
    with pytest.raises(DecodeError, match="more than 1000 bytes"):
        pieces(batch(0, 500, Compression.ZSTD), limit_bytes=1000)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.tuples(st.integers(1, 20), st.sampled_from(Compression)), max_size=8),
    piece_bytes=st.sampled_from([1, 500, 2**18]),
    bounds=st.tuples(st.integers(0, 100), st.integers(0, 100)),
)
def test_the_records_are_those_of_the_columns(
    counts: list[tuple[int, Compression]], piece_bytes: int, bounds: tuple[int, int]
) -> None:
    parts, offset = [], 0
    for count, codec in counts:
        parts.append(batch(offset, count, codec))
        offset += count
    data = b"".join(parts)
    limits = {"start_offset": min(bounds), "end_offset": max(bounds)}
    found = b"".join(pieces(data, piece_bytes=piece_bytes, **limits))
    expected = [row for each in decode_columns(data, **limits) for row in each.to_pylist()]
    assert expected == [
        row for each in decode_columns(found, check_crc=False, **limits) for row in each.to_pylist()
    ]
