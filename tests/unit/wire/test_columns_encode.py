"""Arrow columns to batches: the bytes are the builder's, cut and numbered as asked."""

from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.types import MAX_INT32, Compression
from sparklog.wire.records.batch import check_batch, check_client_batch, read_header
from sparklog.wire.records.builder import Record, decode_records, encode_batch
from sparklog.wire.records.columns import HEADERS_TYPE, EncodedBatch, decode_columns, encode_columns

optional_bytes = st.none() | st.binary(max_size=200)
a_row = st.tuples(
    optional_bytes,
    optional_bytes,
    st.none() | st.integers(-(2**50), 2**50),
    st.none() | st.lists(st.tuples(st.text(max_size=4), optional_bytes), max_size=3),
)
DEFAULT_TIMESTAMP = 123_456


def columns(rows: list[Any]) -> tuple[Any, Any, Any, Any]:
    key, value, timestamp, headers = zip(*rows, strict=True)
    return (
        pa.array(key, pa.binary()),
        pa.array(value, pa.binary()),
        pa.array(timestamp, pa.int64()),
        pa.array(headers, HEADERS_TYPE),
    )


def as_records(rows: list[Any]) -> list[Record]:
    return [
        Record(
            key=key,
            value=value,
            timestamp=DEFAULT_TIMESTAMP if timestamp is None else timestamp,
            headers=tuple(headers or ()),
            offset=offset,
        )
        for offset, (key, value, timestamp, headers) in enumerate(rows)
    ]


def decoded(batches: list[EncodedBatch]) -> list[Record]:
    """All records, with offsets as if the batches were consecutive; checks every batch."""
    found: list[Record] = []
    for batch in batches:
        header = read_header(batch.data)
        check_batch(batch.data, 0, header)
        check_client_batch(header)
        records = decode_records(batch.data)
        assert (batch.record_count, len(records)) == (header.record_count, header.record_count)
        assert header.max_timestamp == batch.max_timestamp == max(r.timestamp for r in records)
        assert header.base_sequence == batch.base_sequence
        assert [r.offset for r in records] == list(range(len(records)))
        found += [
            Record(key=r.key, value=r.value, timestamp=r.timestamp, headers=r.headers, offset=o)
            for o, r in enumerate(records, len(found))
        ]
    return found


def values(batches: list[EncodedBatch]) -> list[bytes | None]:
    return [r.value for r in decoded(batches)]


def timestamps(column: Any) -> list[int]:
    batches = encode_columns(None, pa.nulls(len(column)), column, default_timestamp=7)
    return [r.timestamp for r in decoded(batches)]


@settings(max_examples=120, deadline=None)
@given(
    rows=st.lists(a_row, min_size=1, max_size=60),
    codec=st.sampled_from(Compression),
    target=st.sampled_from([1, 300, 2000, 2**20]),
)
def test_records_come_back(rows: list[Any], codec: Compression, target: int) -> None:
    batches = encode_columns(
        *columns(rows),
        compression=codec,
        target_batch_bytes=target,
        default_timestamp=DEFAULT_TIMESTAMP,
    )
    assert decoded(batches) == as_records(rows)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(a_row, min_size=1, max_size=100))
def test_bytes_are_those_of_the_builder(rows: list[Any]) -> None:
    (batch,) = encode_columns(*columns(rows), default_timestamp=DEFAULT_TIMESTAMP)
    assert batch.data == encode_batch(as_records(rows))


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(a_row, min_size=1, max_size=100), codec=st.sampled_from(Compression))
def test_aiokafka_reads_what_we_encode(rows: list[Any], codec: Compression) -> None:
    (batch,) = encode_columns(
        *columns(rows), compression=codec, default_timestamp=DEFAULT_TIMESTAMP
    )
    theirs = DefaultRecordBatch(batch.data)
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == [
        (r.offset, r.timestamp, r.key, r.value, r.headers) for r in as_records(rows)
    ]


@pytest.mark.parametrize("target", [500, 16_384, 1_000_000])
@pytest.mark.parametrize("with_headers", [False, True])
def test_batches_fill_the_target_and_keep_to_it(target: int, with_headers: bool) -> None:
    count = 20_000
    value = pa.array([b"v" * (50 + i % 90) for i in range(count)])
    key = pa.array([b"%d" % i for i in range(count)])
    headers = pa.array([[("h", b"x" * (i % 3))] for i in range(count)], HEADERS_TYPE)
    batches = encode_columns(
        key, value, headers=headers if with_headers else None, target_batch_bytes=target
    )
    sizes = [len(batch.data) for batch in batches]
    assert max(sizes) <= target
    assert min(sizes[:-1], default=target) > target - 220 - 0.05 * target
    table = pa.Table.from_batches([b for e in batches for b in decode_columns(e.data)])
    assert table["value"].combine_chunks() == value
    assert table["key"].combine_chunks() == key
    assert (table["headers"].combine_chunks() == headers) is with_headers


def test_a_record_above_the_target_has_a_batch_of_its_own() -> None:
    sizes = [10, 10, 5000, 10, 5000, 5000]
    batches = encode_columns(None, pa.array([b"x" * n for n in sizes]), target_batch_bytes=1000)
    assert [batch.record_count for batch in batches] == [2, 1, 1, 1, 1]
    assert [len(v or b"") for v in values(batches)] == sizes


def test_many_megabytes_are_cut_across_passes() -> None:
    value = pa.array([b"%07d" % i * 300 for i in range(6000)])
    batches = encode_columns(None, value, target_batch_bytes=700_000)
    assert len(batches) == 19
    assert values(batches) == value.to_pylist()


def test_sequences_go_on_from_batch_to_batch_and_wrap() -> None:
    batches = encode_columns(
        None,
        pa.array([b"x" * 100] * 5),
        target_batch_bytes=300,
        producer_id=9,
        producer_epoch=4,
        base_sequence=MAX_INT32 - 2,
        transactional=True,
    )
    assert [b.base_sequence for b in batches] == [MAX_INT32 - 2, MAX_INT32, 1]
    headers = [read_header(b.data) for b in batches]
    assert {(h.producer_id, h.producer_epoch, h.is_transactional) for h in headers} == {
        (9, 4, True)
    }
    assert len(decoded(batches)) == 5


def test_no_rows_give_no_batches() -> None:
    assert encode_columns(None, pa.array([], pa.binary())) == []
    assert (
        encode_columns(pa.chunked_array([], pa.string()), pa.chunked_array([], pa.binary())) == []
    )


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "ü", ""]),
        pa.array(["a", None, "ü", ""], pa.large_string()),
        pa.array(["a", None, "ü", ""], pa.string_view()),
        pa.array([b"a", None, "ü".encode(), b""], pa.large_binary()),
        pa.array([b"a", None, "ü".encode(), b""], pa.binary_view()),
        pa.array(["a", None, "ü", ""]).dictionary_encode(),
        pa.array(["-", "a", None, "ü", "", "-"]).slice(1, 4),
        pa.chunked_array([["a"], [], [None, "ü"], [""]], pa.string()),
        pa.chunked_array([["-", "-", "a"], [None, "ü", "", "-"]], pa.string()).slice(2, 4),
    ],
    ids=lambda column: str(column.type)[:30],
)
def test_any_binary_or_string_column_will_do(column: Any) -> None:
    expected = [b"a", None, "ü".encode(), b""]
    found = decoded(encode_columns(column, column, target_batch_bytes=140))
    assert [(r.key, r.value) for r in found] == list(zip(expected, expected, strict=True))


def test_fixed_size_and_all_null_columns_will_do() -> None:
    assert values(encode_columns(None, pa.array([b"ab", None], pa.binary(2)))) == [b"ab", None]
    assert values(encode_columns(None, pa.nulls(3))) == [None] * 3


def test_timestamps_of_every_unit_become_milliseconds() -> None:
    assert timestamps(pa.array([5, None, -5], pa.int64())) == [5, 7, -5]
    assert timestamps(pa.array([5, None], pa.timestamp("s"))) == [5000, 7]
    assert timestamps(pa.array([5, None], pa.timestamp("ms", "UTC"))) == [5, 7]
    assert timestamps(pa.array([5999, -1, None], pa.timestamp("us", "UTC"))) == [5, -1, 7]
    assert timestamps(pa.array([5_999_999, -1], pa.timestamp("ns"))) == [5, -1]
    assert timestamps(pa.chunked_array([[1, 2], [None]], pa.timestamp("ms"))) == [1, 2, 7]


def test_headers_may_be_chunked_sliced_and_missing() -> None:
    rows: list[Any] = [[("a", b"1")], None, [("b", None), ("c", b"")], [], [("d", b"4")]]
    value = pa.array([b"%d" % i for i in range(3)])
    for column in (
        pa.array(rows, HEADERS_TYPE).slice(1, 3),
        pa.chunked_array([rows[1:3], rows[3:4]], HEADERS_TYPE),
        pa.array(rows[1:4], pa.large_list(HEADERS_TYPE.value_type)),
    ):
        found = [r.headers for r in decoded(encode_columns(None, value, headers=column))]
        assert found == [(), (("b", None), ("c", b"")), ()]


@pytest.mark.parametrize("headers", [[[None]], [[(None, b"x")]]])
def test_null_headers_and_header_keys_are_refused(headers: Any) -> None:
    with pytest.raises(ValueError, match="may not be null"):
        encode_columns(None, pa.array([b"v"]), headers=pa.array(headers, HEADERS_TYPE))


def test_columns_that_no_record_can_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="value must be binary or string, not int64"):
        encode_columns(None, pa.array([1]))
    with pytest.raises(ValueError, match="key must be binary or string, not double"):
        encode_columns(pa.array([1.5]), pa.array([b"v"]))
    with pytest.raises(ValueError, match="timestamp must be"):
        encode_columns(None, pa.array([b"v"]), pa.array(["now"]))
    with pytest.raises(ValueError, match="differ in length"):
        encode_columns(pa.array([b"k", b"k"]), pa.array([b"v"]))
