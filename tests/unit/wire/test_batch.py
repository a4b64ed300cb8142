"""Record batch headers: reading, checking, stamping."""

import struct

import pytest
from crc32c import crc32c

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import MAX_INT32, Compression, TimestampType
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    BatchHeader,
    add_sequence,
    batch_size,
    check_batch,
    check_client_batch,
    iter_batches,
    read_header,
    stamp,
)
from sparklog.wire.records.builder import Record, decode_records, encode_batch

RECORDS = [Record(key=b"a", value=b"1", timestamp=1000), Record(value=b"22", timestamp=1400)]


def batch(**settings: object) -> bytes:
    return encode_batch(RECORDS, **settings)  # type: ignore[arg-type]


def with_fixed_crc(data: bytearray) -> bytes:
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def changed(position: int, layout: str, value: int, **settings: object) -> bytes:
    """A batch with one header field overwritten and a CRC that is right."""
    data = bytearray(batch(**settings))
    struct.pack_into(layout, data, position, value)
    return with_fixed_crc(data)


def code_of(data: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_batch(data, 0, read_header(data))
    return caught.value.code


def client_code_of(data: bytes) -> ErrorCode:
    check_batch(data, 0, read_header(data))
    with pytest.raises(KafkaError) as caught:
        check_client_batch(read_header(data))
    return caught.value.code


def test_header_says_what_the_batch_was_built_with() -> None:
    data = batch(
        base_offset=40, producer_id=7, producer_epoch=2, base_sequence=9, transactional=True
    )
    header = read_header(data)
    assert header == BatchHeader(
        base_offset=40,
        batch_length=len(data) - 12,
        partition_leader_epoch=-1,
        magic=2,
        crc=crc32c(data[21:]),
        attributes=0x10,
        last_offset_delta=1,
        base_timestamp=1000,
        max_timestamp=1400,
        producer_id=7,
        producer_epoch=2,
        base_sequence=9,
        record_count=2,
    )
    assert (header.size, header.last_offset, header.next_offset) == (len(data), 41, 42)
    assert (header.compression, header.timestamp_type) == (
        Compression.NONE,
        TimestampType.CREATE_TIME,
    )
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (
        True,
        False,
        False,
    )
    assert (header.has_producer, header.last_sequence) == (True, 10)


def test_sequences_wrap_to_zero() -> None:
    header = read_header(batch(producer_id=1, producer_epoch=0, base_sequence=MAX_INT32))
    assert header.last_sequence == 0
    assert add_sequence(MAX_INT32 - 1, 5) == 3
    assert read_header(batch()).last_sequence == -1


def test_a_short_header_is_a_decode_error() -> None:
    for size in (0, 16, 60):
        with pytest.raises(DecodeError):
            read_header(batch()[:size])
    with pytest.raises(DecodeError):
        read_header(batch(), 20)


def test_batches_follow_each_other() -> None:
    first, second = batch(), batch(base_offset=2, compression=Compression.GZIP)
    found = list(iter_batches(memoryview(first + second)))
    assert found == [(read_header(first), 0), (read_header(second), len(first))]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize("cut", [1, 12, 40, 62])
def test_a_cut_off_tail_is_an_error_unless_it_is_expected(cut: int) -> None:
    data = batch() + batch()[:cut]
    with pytest.raises(DecodeError):
        list(iter_batches(data))
    assert list(iter_batches(data, partial_tail=True)) == [(read_header(batch()), 0)]


@pytest.mark.parametrize("length", [-1, 0, 48, -(2**31)])
def test_an_impossible_length_stops_the_walk(length: int) -> None:
    data = changed(8, ">i", length)
    with pytest.raises(DecodeError):
        list(iter_batches(data, partial_tail=True))
    with pytest.raises(DecodeError):
        batch_size(data, 0)
    assert code_of(data) is ErrorCode.CORRUPT_MESSAGE


def test_the_length_may_not_go_beyond_the_bytes() -> None:
    assert code_of(changed(8, ">i", len(batch()))) is ErrorCode.CORRUPT_MESSAGE


def test_every_flipped_bit_after_the_crc_is_noticed() -> None:
    for position in range(17, len(batch())):
        data = bytearray(batch())
        data[position] ^= 0x10
        assert code_of(bytes(data)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (-1, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_other_message_formats_are_refused(magic: int, code: ErrorCode) -> None:
    data = changed(16, ">b", magic)
    assert code_of(data) is code
    with pytest.raises(KafkaError) as caught:
        list(iter_batches(data))
    assert caught.value.code is code


def test_a_short_message_of_an_old_format_is_named_as_such() -> None:
    old = struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8)
    with pytest.raises(KafkaError) as caught:
        list(iter_batches(old))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_an_unknown_codec_is_refused() -> None:
    data = changed(21, ">h", 5)
    assert code_of(data) is ErrorCode.INVALID_RECORD
    with pytest.raises(DecodeError):
        _ = read_header(data).compression


def test_client_batches_keep_to_the_client_rules() -> None:
    check_client_batch(read_header(batch(producer_id=1, producer_epoch=0, base_sequence=0)))
    assert client_code_of(changed(57, ">i", 0)) is ErrorCode.INVALID_RECORD
    assert client_code_of(changed(57, ">i", 3)) is ErrorCode.INVALID_RECORD
    assert client_code_of(changed(23, ">i", -1)) is ErrorCode.INVALID_RECORD
    assert client_code_of(batch(control=True)) is ErrorCode.INVALID_RECORD
    assert client_code_of(batch(producer_id=1, producer_epoch=0)) is ErrorCode.INVALID_RECORD
    append_time = batch(timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert client_code_of(append_time) is ErrorCode.INVALID_TIMESTAMP


def test_stamping_offset_and_epoch_leaves_the_crc_valid() -> None:
    data = bytearray(batch())
    stamp(data, 2**40, 17)
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (2**40, 17)
    check_batch(data, 0, header)
    assert [r.offset for r in decode_records(data)] == [2**40, 2**40 + 1]
    assert bytes(data[12:16]) == b"\x00\x00\x00\x11"
    assert bytes(data[16:]) == batch()[16:]


def test_stamping_the_append_time_makes_the_crc_anew() -> None:
    data = bytearray(batch(compression=Compression.ZSTD))
    stamp(memoryview(data), 5, 1, 99_000)
    header = read_header(data)
    check_batch(data, 0, header)
    assert (header.timestamp_type, header.base_timestamp, header.max_timestamp) == (
        TimestampType.LOG_APPEND_TIME,
        1000,
        99_000,
    )
    assert header.compression is Compression.ZSTD
    assert [r.timestamp for r in decode_records(data)] == [99_000, 99_000]


def test_a_copy_of_the_header_can_be_stamped_alone() -> None:
    whole, original = bytearray(batch()), batch()
    stamp(whole, 5, 1, 99_000)
    header = bytearray(original[:BATCH_OVERHEAD])
    records = memoryview(original)[BATCH_OVERHEAD:]
    stamp(header, 5, 1, 99_000, records=records)
    assert bytes(header) + bytes(records) == bytes(whole)
