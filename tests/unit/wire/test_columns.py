"""Batches to Arrow columns: whole tables, ranges, and malformed bytes."""

import random
import struct
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError, ErrorCode, KafkaError
from sparklog.types import MAX_INT64, Compression, TimestampType
from sparklog.wire.records import record_starts
from sparklog.wire.records.batch import pack_attributes, pack_batch
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import COLUMN_TYPES, decode_columns, next_offset
from sparklog.wire.records.zigzag import encode_varint

optional_bytes = st.none() | st.binary(max_size=150)
a_record = st.builds(
    Record,
    value=optional_bytes,
    key=optional_bytes,
    timestamp=st.integers(-(2**45), 2**45),
    headers=st.lists(st.tuples(st.text(max_size=4), optional_bytes), max_size=2).map(tuple),
)
any_codec = st.sampled_from(Compression)


def table(data: bytes, **options: Any) -> pa.Table:
    schema = pa.schema(COLUMN_TYPES.items())
    return pa.Table.from_batches(list(decode_columns(data, **options)), schema=schema)


def as_rows(records: Iterable[Record], append_time: bool = False) -> list[dict[str, Any]]:
    """The expected rows; timestamps in microseconds."""
    return [
        {
            "key": r.key,
            "value": r.value,
            "offset": r.offset,
            "timestamp": r.timestamp * 1000,
            "timestampType": int(append_time),
            "headers": [{"key": k, "value": v} for k, v in r.headers] or None,
        }
        for r in records
    ]


def rows(found: pa.Table) -> list[dict[str, Any]]:
    index = found.schema.get_field_index("timestamp")
    plain = found.set_column(index, "timestamp", found["timestamp"].cast(pa.int64()))
    return plain.to_pylist()


def log(*sizes: int, codec: Compression = Compression.NONE, payload: str = "text") -> bytes:
    """Consecutive batches with these record counts."""
    chance = random.Random(repr((sizes, payload)))
    parts, offset = [], 0
    for size in sizes:
        records = [PAYLOADS[payload](chance, offset + i) for i in range(size)]
        parts.append(encode_batch(records, base_offset=offset, compression=codec))
        offset += size
    return b"".join(parts)


def fake_record(chance: random.Random, index: int) -> Record:
    """A value that looks like the end of one record and the whole of others."""
    inner = b"\x00\x00\x00" + encode_varint(index) + b"\x01\x08abcd\x00"
    fake = b"\x00" + (encode_varint(len(inner)) + inner) * chance.randint(1, 4)
    return Record(value=fake, key=fake[: chance.randint(0, 20)], timestamp=index)


PAYLOADS: dict[str, Any] = {
    "text": lambda chance, i: Record(value=b"text %d" % i * chance.randint(1, 20), timestamp=i * 9),
    "equal": lambda chance, i: Record(value=b"x" * 100, timestamp=5),
    "random": lambda chance, i: Record(
        value=chance.randbytes(chance.randint(0, 300)), key=chance.randbytes(8), timestamp=i
    ),
    "runs": lambda chance, i: Record(
        value=bytes([i // 1000 % 7]) * (i // 1000 % 5 * 90), timestamp=i * 3
    ),
    "zeros": lambda chance, i: Record(value=bytes(chance.randint(0, 200)), timestamp=0),
    "long": lambda chance, i: Record(
        value=chance.randbytes(20_000 if i % 97 == 0 else 60), timestamp=i
    ),
    "very long": lambda chance, i: Record(
        value=bytes(range(1, 255)) * (9_000 if i % 300 == 7 else 0), timestamp=i
    ),
    "fakes": fake_record,
    "headers": lambda chance, i: Record(
        value=b"v",
        timestamp=i,
        headers=tuple((f"h{n}", None if n == 1 else chance.randbytes(n)) for n in range(i % 5)),
    ),
    "all headers": lambda chance, i: Record(
        value=chance.randbytes(9), timestamp=i, headers=(("trace", chance.randbytes(16)),)
    ),
    "nulls": lambda chance, i: Record(
        value=None if i % 3 else b"v", key=None if i % 2 else b"k", timestamp=i
    ),
}


@settings(max_examples=120, deadline=None)
@given(
    batches=st.lists(st.tuples(st.lists(a_record, max_size=30), any_codec), max_size=5),
    group_bytes=st.sampled_from([1, 1000, 2**22]),
)
def test_columns_hold_what_single_records_hold(
    batches: list[tuple[list[Record], Compression]], group_bytes: int
) -> None:
    parts, offset = [], 2**33
    for records, codec in batches:
        parts.append(
            encode_batch(
                records, base_offset=offset, compression=codec, last_offset_delta=len(records)
            )
        )
        offset += len(records) + 1
    data = b"".join(parts)
    assert rows(table(data, group_bytes=group_bytes)) == as_rows(decode_records(data))
    assert next_offset(data) == (offset if batches else None)


@settings(max_examples=50, deadline=None)
@given(records=st.lists(a_record, min_size=1, max_size=300), codec=any_codec)
def test_columns_hold_what_aiokafka_builds(records: list[Record], codec: Compression) -> None:
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 2**24)
    for offset, r in enumerate(records):
        builder.append(offset, abs(r.timestamp), r.key, r.value, list(r.headers))
    data = bytes(builder.build())
    assert rows(table(data)) == as_rows(decode_records(data))


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("sizes", [(2000,), (10, 1, 900, 300), (3,) * 400])
def test_many_records_of_every_kind(payload: str, sizes: tuple[int, ...]) -> None:
    data = log(*sizes, payload=payload)
    assert rows(table(data)) == as_rows(decode_records(data))


def test_records_of_one_length_are_taken_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such records are neither searched nor walked; short runs are given up soon."""
    data = log(3000, 1, 2500, payload="runs") + log(700, payload="equal")
    expected = as_rows(decode_records(data))
    uneven = log(900, payload="text")
    with monkeypatch.context() as patched:
        for other in ("_search", "_walk"):
            patched.setattr(record_starts, other, lambda *_: pytest.fail("not by the run"))
        assert rows(table(data)) == expected
        with pytest.raises(pytest.fail.Exception):
            table(uneven)
    assert rows(table(uneven)) == as_rows(decode_records(uneven))


@pytest.mark.parametrize("codec", Compression)
def test_small_batches_come_as_one_arrow_batch(codec: Compression) -> None:
    data = log(*[7] * 100, codec=codec)
    (found,) = decode_columns(data)
    assert found.num_rows == 700
    assert rows(pa.Table.from_batches([found])) == as_rows(decode_records(data))


def test_groups_bound_what_is_decoded_at_once() -> None:
    data = log(*[100] * 10)
    assert [b.num_rows for b in decode_columns(data, group_bytes=1)] == [100] * 10


def test_types_and_order_are_those_of_sparks_source() -> None:
    (found,) = decode_columns(log(3))
    assert found.schema == pa.schema(COLUMN_TYPES.items())
    assert found.schema.names == [
        "key", "value", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    found.validate(full=True)


def test_only_the_wanted_columns_are_built() -> None:
    (found,) = decode_columns(log(3), columns=frozenset({"offset", "value"}))
    assert found.schema.names == ["value", "offset"]
    (counted,) = decode_columns(log(3), columns=frozenset(), start_offset=1)
    assert (counted.num_rows, counted.num_columns) == (2, 0)
    with pytest.raises(ValueError, match="no such columns: topic"):
        list(decode_columns(b"", columns=frozenset({"topic"})))


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_rows_are_counted_without_their_records(codec: Compression) -> None:
    gaps = [Record(value=b"%d" % i, offset=i) for i in range(411, 500, 7)]
    data = log(5, 400, 6, codec=codec) + encode_batch(gaps, base_offset=411, last_offset_delta=90)
    offsets = [record.offset for record in decode_records(data)]
    for start, end in [(0, 600), (0, 411), (3, 7), (5, 405), (404, 430), (410, 502), (500, 600)]:
        batches = list(
            decode_columns(data, columns=frozenset(), start_offset=start, end_offset=end)
        )
        assert [batch.num_columns for batch in batches] == [0] * len(batches)
        counted = sum(batch.num_rows for batch in batches)
        assert counted == sum(start <= offset < end for offset in offsets)


@pytest.mark.parametrize("payload", ["text", "headers", "nulls"])
def test_ranges_of_offsets_are_exact(payload: str) -> None:
    data = log(5, 400, 6, payload=payload)
    everything = as_rows(decode_records(data))
    for start, end in [(0, 411), (3, 7), (5, 405), (100, 101), (404, 406), (410, 411), (7, 7)]:
        assert rows(table(data, start_offset=start, end_offset=end)) == everything[start:end]
    assert rows(table(data, start_offset=500)) == []


def test_offsets_with_gaps_keep_to_the_range() -> None:
    kept = [Record(value=b"%d" % i, timestamp=0, offset=i) for i in range(10, 900, 7)]
    data = encode_batch(kept, base_offset=10, last_offset_delta=1000)
    expected = as_rows(r for r in kept if 100 <= r.offset < 303)
    assert rows(table(data, start_offset=100, end_offset=303)) == expected
    assert next_offset(data) == 1011


def test_control_batches_are_left_out() -> None:
    marker = Record(key=b"\x00\x00\x00\x01", value=bytes(6), timestamp=4, offset=2)
    data = log(2) + encode_batch([marker], base_offset=2, control=True, transactional=True)
    assert rows(table(data)) == as_rows(decode_records(log(2)))
    assert rows(table(data, skip_control=False))[2:] == as_rows([marker])
    assert next_offset(data) == 3


def test_batches_below_the_lowest_timestamp_are_left_out_whole() -> None:
    old = encode_batch([Record(timestamp=1), Record(timestamp=99)])
    mixed = encode_batch([Record(timestamp=1), Record(timestamp=100)], base_offset=2)
    found = table(old + mixed, min_timestamp=100)
    assert found["offset"].to_pylist() == [2, 3]


def test_append_time_stands_for_every_timestamp() -> None:
    records = [Record(value=b"a", timestamp=1), Record(value=b"b", timestamp=50)]
    appended = encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    created = encode_batch(records, base_offset=2)
    found = rows(table(appended + created))
    assert [(r["timestamp"], r["timestampType"]) for r in found] == [
        (50_000, 1), (50_000, 1), (1_000, 0), (50_000, 0),
    ]  # fmt: skip


def test_timestamps_beyond_microseconds_are_cut_to_the_range() -> None:
    times = (MAX_INT64, -(2**62))
    data = [encode_batch([Record(timestamp=t)], base_offset=i) for i, t in enumerate(times)]
    found = table(b"".join(data))["timestamp"].cast(pa.int64()).to_pylist()
    assert found == [MAX_INT64 // 1000 * 1000, -(MAX_INT64 // 1000 * 1000)]


def test_a_cut_off_tail_is_left_out() -> None:
    whole, tail = log(3), encode_batch([Record(value=b"tail")], base_offset=3)
    for size in range(len(tail)):
        data = whole + tail[:size]
        assert table(data).num_rows == 3
        assert next_offset(data) == 3
    assert next_offset(b"") is None


def test_the_result_does_not_keep_the_bytes_it_came_from() -> None:
    data = bytearray(log(300, payload="nulls"))
    expected = as_rows(decode_records(bytes(data)))
    found = table(data)
    data[:] = bytes(len(data))
    assert rows(found) == expected


def test_a_wrong_crc_is_refused_in_what_is_read() -> None:
    data = bytearray(log(2, 2))
    data[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        table(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert table(data, end_offset=2).num_rows == 2


def test_other_formats_and_impossible_lengths_are_refused() -> None:
    for position, value in [(16, 1), (16, 7), (8, 0xFF)]:
        data = bytearray(log(2))
        data[position] = value
        with pytest.raises((KafkaError, DecodeError)):
            table(data)


def packed(section: bytes, count: int) -> bytes:
    return pack_batch(
        section,
        attributes=pack_attributes(Compression.NONE),
        record_count=count,
        last_offset_delta=2**31 - 1,
        base_timestamp=0,
        max_timestamp=0,
    )


@pytest.mark.parametrize("count", [1, 300])
@pytest.mark.parametrize(
    "record",
    [
        "0c 00 00 00 01 01", "0e 00 00 00 01 01 00 00", "0b 00 00 00 01 01 00",
        "0c 00 00 00 03 01 00", "0c 00 00 00 01 7e 00", "0c 00 00 00 01 01 02",
        "0c 00 00 00 01 01 01", "10 00 00 00 01 01 02 01 01", "12 00 00 00 01 01 02 02 ff 01",
        "10 00 00 00 01 01 02 02 61", "14 00 00 00 01 01 02 02 61 01 00",
        "ff ff ff ff ff 00 00 00 00 00 00 00 00 00", "fe ff ff ff 0f 00 00 00 00 00",
        "20 00 ff ff ff ff ff ff ff ff ff 02 00 01 01 00",
        "0e 00 00 00 fe ff ff ff 0f", "16 00 00 00 01 fe ff ff ff 0f 00", "00 00 00 00 00 00 00",
    ],
)  # fmt: skip
def test_records_that_lie_are_decode_errors(record: str, count: int) -> None:
    good = bytes.fromhex("0c 00 00 00 01 01 00") * (count - 1)
    for section in (good + bytes.fromhex(record), bytes.fromhex(record) + good):
        with pytest.raises(DecodeError):
            table(packed(section, count))


@pytest.mark.parametrize("count", [0, 299, 301, 7000, -1, -(2**31), 2**31 - 1])
def test_record_counts_that_lie_are_decode_errors(count: int) -> None:
    data = bytearray(log(300, 300))
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(DecodeError):
        table(data, check_crc=False)


@pytest.mark.parametrize("count", [301, -1, 2**31 - 1])
def test_more_records_than_offsets_are_decode_errors(count: int) -> None:
    data = bytearray(log(300, 300))
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(DecodeError, match=f"offsets 0 to 299 says {count} records"):
        list(decode_columns(data, columns=frozenset(), check_crc=False))


def test_batches_may_not_borrow_records_from_each_other() -> None:
    data = bytearray(log(300, 300))
    second = len(log(300))
    struct.pack_into(">i", data, 57, 301)
    struct.pack_into(">i", data, second + 57, 299)
    with pytest.raises(DecodeError):
        table(data, check_crc=False)


def test_a_thousand_headers_in_one_record() -> None:
    many = tuple((f"h{i}", b"%d" % i) for i in range(1000))
    records = [Record(value=b"v", timestamp=0, headers=many, offset=i) for i in (0, 1)]
    assert rows(table(encode_batch(records))) == as_rows(records)


def test_decompression_is_bounded() -> None:
    data = encode_batch([Record(value=bytes(10_000))], compression=Compression.ZSTD)
    assert table(data, limit_bytes=20_000).num_rows == 1
    with pytest.raises(DecodeError):
        table(data, limit_bytes=9_000)


@pytest.mark.parametrize("payload", ["text", "equal", "headers", "all headers", "fakes", "nulls"])
@pytest.mark.parametrize("count", [6, 300])
def test_damaged_records_decode_as_single_ones_do_or_not_at_all(payload: str, count: int) -> None:
    """Both decoders agree on every damage: the same records, or an error from both."""
    original = log(count, payload=payload)
    chance = random.Random(count)
    outcomes = {"decoded": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(original)
        for _ in range(chance.choice((1, 1, 2))):
            position = chance.randrange(61, min(len(data), 400))
            data[position] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
        try:
            expected = decode_records(data, check_crc=False)
        except DecodeError:
            with pytest.raises(DecodeError):
                table(data, check_crc=False, start_offset=-(2**63))
            outcomes["refused"] += 1
            continue
        shown = [r for r in as_rows(expected) if abs(r["timestamp"]) < 2**62]
        if len(shown) == len(expected):
            found = table(data, check_crc=False, start_offset=-(2**63))
            assert rows(found) == shown
            outcomes["decoded"] += 1
    assert min(outcomes.values()) > 0
