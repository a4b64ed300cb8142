"""Single records to batches and back, checked against aiokafka."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import Compression, TimestampType
from sparklog.wire.records.batch import BATCH_OVERHEAD, pack_attributes, pack_batch, read_header
from sparklog.wire.records.builder import Record, decode_batch, decode_records, encode_batch

optional_bytes = st.none() | st.binary(max_size=80)
any_time = st.integers(0, 2**40)


def records_at(timestamps: st.SearchStrategy[int]) -> st.SearchStrategy[list[Record]]:
    a_record = st.builds(
        Record,
        value=optional_bytes,
        key=optional_bytes,
        timestamp=timestamps,
        headers=st.lists(st.tuples(st.text(max_size=8), optional_bytes), max_size=3).map(tuple),
    )
    return st.lists(a_record, min_size=1, max_size=40)


some_records = records_at(any_time | st.just(-1))
any_codec = st.sampled_from(Compression)


def numbered(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [
        Record(value=r.value, key=r.key, timestamp=r.timestamp, headers=r.headers, offset=offset)
        for offset, r in enumerate(records, base_offset)
    ]


@settings(max_examples=80, deadline=None)
@given(records=some_records, codec=any_codec, base_offset=st.integers(0, 2**60))
def test_records_come_back(records: list[Record], codec: Compression, base_offset: int) -> None:
    data = encode_batch(records, base_offset=base_offset, compression=codec)
    assert decode_records(data) == numbered(records, base_offset)
    assert read_header(data).max_timestamp == max(r.timestamp for r in records)


@settings(max_examples=80, deadline=None)
@given(records=some_records, codec=any_codec)
def test_aiokafka_reads_what_we_build(records: list[Record], codec: Compression) -> None:
    data = encode_batch(records, compression=codec, producer_id=3, producer_epoch=1)
    theirs = DefaultRecordBatch(data)
    assert theirs.validate_crc()
    assert [(r.key, r.value, r.timestamp, tuple(r.headers), r.offset) for r in theirs] == [
        (r.key, r.value, r.timestamp, r.headers, offset) for offset, r in enumerate(records)
    ]


@settings(max_examples=80, deadline=None)
@given(
    # -1 as the first timestamp is a marker inside aiokafka's builder, not a timestamp.
    records=records_at(any_time),
    codec=any_codec,
)
def test_we_build_what_aiokafka_builds(records: list[Record], codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=1,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        batch_size=2**24,
    )
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    assert decode_records(theirs) == numbered(records)
    if codec is Compression.NONE:
        ours = encode_batch(
            records, producer_id=5, producer_epoch=6, base_sequence=7, transactional=True
        )
        # aiokafka leaves a leader epoch of 0 where others write -1; it lies outside the CRC.
        assert ours[:12] + ours[16:] == theirs[:12] + theirs[16:]


def test_offsets_may_have_gaps() -> None:
    records = [Record(value=b"a", offset=10), Record(value=b"b", offset=17)]
    data = encode_batch(records, base_offset=10, last_offset_delta=9)
    assert decode_records(data) == records
    assert read_header(data).last_offset == 19


def test_an_empty_batch_keeps_its_place() -> None:
    data = encode_batch([], base_offset=10, last_offset_delta=4, producer_id=3)
    assert (len(data), read_header(data).next_offset) == (BATCH_OVERHEAD, 15)
    assert decode_records(data) == []


def test_append_time_is_every_records_timestamp() -> None:
    records = [Record(timestamp=1), Record(timestamp=9)]
    data = encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert [r.timestamp for r in decode_records(data)] == [9, 9]


def test_control_batches_are_left_out_unless_wanted() -> None:
    marker = Record(key=b"\x00\x00\x00\x01", value=bytes(6), offset=1)
    data = encode_batch([Record(value=b"x")]) + encode_batch(
        [marker], base_offset=1, control=True, transactional=True
    )
    assert [r.value for r in decode_records(data)] == [b"x"]
    assert decode_records(data, skip_control=False)[1] == marker


def test_a_wrong_crc_is_refused_unless_it_was_checked_before() -> None:
    data = bytearray(encode_batch([Record(value=b"x")]))
    data[20] ^= 1
    with pytest.raises(KafkaError) as caught:
        decode_records(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert decode_records(data, check_crc=False) == [Record(value=b"x", offset=0)]


def packed(section: bytes, count: int) -> bytes:
    return pack_batch(
        section,
        attributes=pack_attributes(Compression.NONE),
        record_count=count,
        last_offset_delta=count - 1,
        base_timestamp=0,
        max_timestamp=0,
    )


@pytest.mark.parametrize(
    "section",
    [
        pytest.param("0c 00 00 00 01 01", id="cut off"),
        pytest.param("0c 00 00 00 01 01 00 00", id="bytes after the last record"),
        pytest.param("0e 00 00 00 01 01 00 00", id="bytes left over in the record"),
        pytest.param("0b 00 00 00 01 01 00", id="negative record length"),
        pytest.param("0c 00 00 00 03 01 00", id="key length -2"),
        pytest.param("0c 00 00 00 01 7e 00", id="value longer than the record"),
        pytest.param("0c 00 00 00 01 01 02", id="a header that is not there"),
        pytest.param("0c 00 00 00 01 01 01", id="negative header count"),
        pytest.param("10 00 00 00 01 01 02 01 01", id="null header key"),
        pytest.param("12 00 00 00 01 01 02 02 ff 01", id="header key not UTF-8"),
        pytest.param("ff ff ff ff ff 00", id="endless varint"),
        pytest.param("20 00 ff ff ff ff ff ff ff ff ff 02 00 01 01 00", id="over 64 bits"),
    ],
)
def test_a_record_that_lies_is_a_decode_error(section: str) -> None:
    with pytest.raises(DecodeError):
        decode_records(packed(bytes.fromhex(section), 1))


@pytest.mark.parametrize("count", [0, 2, -1, 2**31 - 1])
def test_a_record_count_that_lies_is_a_decode_error(count: int) -> None:
    data = packed(bytes.fromhex("0c 00 00 00 01 01 00"), 1)
    lying = bytearray(data)
    struct.pack_into(">i", lying, 57, count)
    with pytest.raises(DecodeError):
        decode_records(lying, check_crc=False)
    assert decode_batch(data, 0, read_header(data)) == [Record(timestamp=0, offset=0)]
