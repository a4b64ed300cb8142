"""Records of a batch in slices: the same records, within the memory limits."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError
from sparklog.types import Compression
from sparklog.wire.records import record_starts
from sparklog.wire.records.batch import (
    BATCH_OVERHEAD,
    check_batch,
    iter_batches,
    pack_attributes,
    pack_batch,
    read_header,
)
from sparklog.wire.records.builder import Record, decode_records, encode_batch, iter_records
from sparklog.wire.records.columns import decode_columns
from sparklog.wire.records.compression import MAX_RATIOS, TooLargeError, compress, decompress_parts
from sparklog.wire.records.plain_batches import plain_batches
from sparklog.wire.records.record_slices import (
    MIN_RECORD_BYTES,
    RecordSlice,
    check_plausible_count,
    record_slices,
    whole_records,
    whole_slice,
)
from sparklog.wire.records.record_starts import searched_records
from tests.support.bombs import BOMB_RECORDS, TINY, bomb, peak_bytes

CODECS = [Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD]


def slices(batch: bytes, **options: Any) -> list[RecordSlice]:
    header = read_header(batch)
    packed = memoryview(batch)[BATCH_OVERHEAD:]
    return list(record_slices(header.compression, packed, header.record_count, **options))


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 5, 60, 200, 9000]), min_size=1, max_size=60),
    repeats=st.integers(1, 12),
    codec=st.sampled_from(list(Compression)),
    slice_bytes=st.sampled_from([1, 7, 100, 4096]),
)
def test_slices_laid_end_to_end_are_the_records(
    sizes: list[int], repeats: int, codec: Compression, slice_bytes: int
) -> None:
    records = [Record(value=b"v" * size) for size in sizes for _ in range(repeats)]
    batch, plain = encode_batch(records, compression=codec), encode_batch(records)
    found = slices(batch, whole_bytes=0, slice_bytes=slice_bytes)
    assert b"".join(bytes(part.data) for part in found) == plain[BATCH_OVERHEAD:]
    assert sum(part.count for part in found) == len(records)
    largest = max(len(part.data) // part.count + 1 for part in found)
    for part in found:
        assert whole_records(part.data, part.count + 1) == (part.count, len(part.data))
        assert len(part.data) < slice_bytes + max(sizes) + 16 + largest


@settings(max_examples=150, deadline=None)
@given(
    values=st.lists(
        st.binary(max_size=40) | st.sampled_from([b"", bytes(30), b"\x00\x0e\x00\x00\x00\x00" * 9]),
        min_size=1, max_size=40,
    ),
    repeats=st.integers(1, 40),
    headers=st.lists(st.sampled_from([(), (("h", b"\x00"),)]), min_size=1, max_size=3),
    count_max=st.integers(1, 2000),
    bytes_max=st.none() | st.integers(1, 60_000),
    cut=st.integers(0, 3),
)  # fmt: skip
def test_whole_records_by_the_column_are_whole_records(
    values: list[bytes],
    repeats: int,
    headers: list[tuple[tuple[str, bytes], ...]],
    count_max: int,
    bytes_max: int | None,
    cut: int,
) -> None:
    records = [
        Record(value=value, headers=headers[n % len(headers)])
        for n in range(repeats)
        for value in values
    ]
    section = memoryview(encode_batch(records))[BATCH_OVERHEAD:]
    data = section[: len(section) - cut * len(section) // 7]
    most, furthest = whole_records(data, count_max, bytes_max)
    count, end = searched_records(data, count_max, bytes_max)
    assert whole_records(data, count) == (count, end)
    assert count <= most
    assert bool(count) == bool(most)
    assert 4 * end >= furthest


def test_records_of_many_sizes_are_not_walked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    def counted(*args: Any) -> tuple[int, int]:
        found = whole_records(*args)
        walked.append(found[0])
        return found

    monkeypatch.setattr(record_starts, "whole_records", counted)
    values = [bytes(5 + 7 * n % 50) for n in range(40_000)]
    records = [Record(value=value, timestamp=n) for n, value in enumerate(values)]
    section = memoryview(encode_batch(records))[BATCH_OVERHEAD:]
    assert searched_records(section, len(records), 2**20) == whole_records(section, 40_000, 2**20)
    assert sum(walked) < 1000


@pytest.mark.parametrize("codec", list(Compression))
def test_a_small_batch_is_given_without_slicing_and_a_large_one_is_not(codec: Compression) -> None:
    packed = compress(codec, TINY * 1000)
    whole = whole_slice(codec, packed, 1000, limit_bytes=2**20, whole_bytes=7000)
    assert whole is not None
    assert (whole.count, bytes(whole.data)) == (1000, TINY * 1000)
    for limit, least in ((6999, 7000), (2**20, 6999)):
        assert whole_slice(codec, packed, 1000, limit_bytes=limit, whole_bytes=least) is None
    with pytest.raises(DecodeError, match="says 1001 records"):
        whole_slice(codec, packed, 1001, limit_bytes=2**20, whole_bytes=7000)


def test_a_small_batch_is_one_slice_and_is_not_walked() -> None:
    batch = encode_batch([Record(value=b"a"), Record(value=b"b")], compression=Compression.ZSTD)
    damaged = pack_batch(
        compress(Compression.ZSTD, b"\xff" * 20), attributes=4, record_count=2,
        last_offset_delta=1, base_timestamp=0, max_timestamp=0,
    )  # fmt: skip
    assert [part.count for part in slices(batch)] == [2]
    assert [part.count for part in slices(damaged)] == [2]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("count", "why"), [(999, "left over"), (1001, "end after 1000"), (2**31 - 1, "end after 1000")]
)
def test_a_count_that_lies_is_told_at_the_end(codec: Compression, count: int, why: str) -> None:
    packed = compress(codec, TINY * 1000)
    with pytest.raises(DecodeError, match=why):
        list(record_slices(codec, packed, count, whole_bytes=0, slice_bytes=100))


def test_a_length_that_no_record_has_ends_the_walk() -> None:
    for length in (b"\x00", b"\x0a", b"\x01", b"\xff\xff\xff\xff\xff"):
        with pytest.raises(DecodeError):
            list(record_slices(Compression.NONE, TINY + length * 20, 9, whole_bytes=0))


@pytest.mark.parametrize("codec", [c for c in CODECS if c is not Compression.NONE])
def test_parts_have_the_size_that_was_asked_for_and_end_at_the_limit(codec: Compression) -> None:
    packed = compress(codec, TINY * 100_000)
    parts = decompress_parts(codec, packed, part_bytes_max=1000)
    assert len(next(parts)) <= 1000
    assert max(map(len, parts)) <= 1000
    with pytest.raises(TooLargeError):
        list(decompress_parts(codec, packed, 50_000, 1000))


@pytest.mark.parametrize("codec", [c for c in CODECS if c is not Compression.NONE])
def test_a_few_records_of_a_bomb_cost_a_few_records(codec: Compression) -> None:
    batch = bomb(codec=codec)
    header = read_header(batch)

    def take() -> None:
        records = iter_records(batch, 0, header)
        assert [next(records).offset for _ in range(5)] == [0] * 5

    take()  # what is loaded once is not counted
    assert peak_bytes(take) < 8 * 2**20


def test_records_below_an_offset_are_not_decoded_where_their_number_says_it() -> None:
    records = [Record(value=b"%d" % n * 40) for n in range(40_000)]
    batch = encode_batch(records, base_offset=100, compression=Compression.ZSTD)
    found = list(iter_records(batch, 0, read_header(batch), from_offset=40_098))
    assert len(found) < 10_000
    assert [record.offset for record in found[-2:]] == [40_098, 40_099]


def test_records_from_an_offset_on_are_all_given_at_the_ends_of_slices() -> None:
    records = [Record(value=b"%d" % n * 40) for n in range(20_000)]
    batch = encode_batch(records, base_offset=100, compression=Compression.ZSTD)
    header = read_header(batch)
    end = 100
    for part in slices(batch):
        end += part.count
        for first in (end - 2, end - 1, end):
            given = [r.offset for r in iter_records(batch, 0, header, from_offset=first)]
            assert [offset for offset in given if offset >= first] == list(range(first, 20_100))


def test_columns_of_a_bomb_are_decoded_in_groups() -> None:
    batch = bomb()

    def scan() -> None:
        rows = [part.num_rows for part in decode_columns(batch, columns=frozenset({"offset"}))]
        assert sum(rows) == BOMB_RECORDS
        assert max(rows) * MIN_RECORD_BYTES <= 4 * 2**20

    assert peak_bytes(scan) < 130 * 2**20


def test_a_bomb_is_counted_in_pieces_and_without_its_records() -> None:
    batch = bomb()

    def count() -> None:
        rows = [part.num_rows for part in decode_columns(batch, columns=frozenset())]
        assert (sum(rows), max(rows)) == (BOMB_RECORDS, 128 * 1024)

    assert peak_bytes(count) < 2**20


def test_a_bomb_comes_to_the_jvm_as_batches_of_bounded_size() -> None:
    records = 0
    for pieces in plain_batches(bomb(), start_offset=0, end_offset=2**40):
        assert len(pieces.data) < 3 * 2**20
        for header, _ in iter_batches(pieces.data):
            records += header.record_count
            assert header.compression is Compression.NONE
    assert records == BOMB_RECORDS


def test_pieces_of_one_large_batch_hold_its_records() -> None:
    wanted = [Record(value=b"%d" % n * 50, timestamp=n, key=b"k") for n in range(30_000)]
    batch = encode_batch(wanted, compression=Compression.LZ4, base_offset=7)
    given = [bytes(p.data) for p in plain_batches(batch, start_offset=0, end_offset=2**40)]
    assert len(given) > 1
    assert decode_records(b"".join(given), check_crc=False) == decode_records(batch)


@pytest.mark.parametrize("codec", list(Compression))
def test_a_plausible_count_is_one_that_the_codec_can_reach(codec: Compression) -> None:
    fits = 1000 * MAX_RATIOS[codec] // MIN_RECORD_BYTES
    check_plausible_count(min(fits, 19_000_000), codec, 1000)
    for count in (fits + 1, 2**31 - 1):
        with pytest.raises(DecodeError, match=f"says {count} records"):
            check_plausible_count(count, codec, 1000)


@pytest.mark.parametrize("codec", list(Compression))
def test_what_compresses_best_is_plausible(codec: Compression) -> None:
    batch = bomb(1_000_000, codec)
    header = read_header(batch)
    check_batch(batch, 0, header)
    check_plausible_count(header.record_count, codec, len(batch) - BATCH_OVERHEAD)


def test_an_implausible_count_is_not_counted() -> None:
    lie = pack_batch(
        TINY, attributes=0, record_count=2**31 - 1, last_offset_delta=2**31 - 2,
        base_timestamp=0, max_timestamp=0,
    )  # fmt: skip
    with pytest.raises(DecodeError, match="says 2147483647 records"):
        list(decode_columns(lie, columns=frozenset()))


# what cannot be read is left out


def told(data: bytes, **options: Any) -> tuple[list[bytes], list[tuple[int, int]]]:
    """The values that are read, and the offsets that are skipped."""
    faults: list[tuple[int, int]] = []
    values: list[bytes] = []
    for part in decode_columns(
        data, on_fault=lambda first, last, error: faults.append((first, last)), **options
    ):
        values += part["value"].to_pylist() if "value" in part.schema.names else []
    return values, faults


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def good(first: int, count: int, codec: Compression = Compression.NONE) -> bytes:
    records = [Record(value=value) for value in values(first, count)]
    return encode_batch(records, base_offset=first, compression=codec)


def with_garbage(first: int, before: int, after: int, codec: Compression) -> bytes:
    """A batch with a right CRC whose records are garbage behind the first ``before``."""
    section = good(first, before)[BATCH_OVERHEAD:] if before else b""
    return pack_batch(
        compress(codec, section + b"\x0e\x00\x00\xff\xff\xff\xff\xff" * after),
        attributes=pack_attributes(codec), record_count=before + after,
        last_offset_delta=before + after - 1, base_timestamp=0, max_timestamp=0,
        base_offset=first,
    )  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("before", [0, 1, 300])
def test_records_before_the_first_that_cannot_be_decoded_are_read(
    codec: Compression, before: int
) -> None:
    end = 10 + before + 5
    data = good(0, 10, codec) + with_garbage(10, before, 5, codec) + good(end, 3, codec)
    assert told(data) == (values(0, 10 + before) + values(end, 3), [(10 + before, end - 1)])


def test_a_large_batch_is_read_up_to_its_garbage_and_not_behind_it() -> None:
    section = TINY * 800_000
    packed = compress(Compression.ZSTD, section + b"\x0e" + b"\xff" * 7 + section)
    data = pack_batch(
        packed, attributes=4, record_count=1_600_001, last_offset_delta=1_600_000,
        base_timestamp=0, max_timestamp=0,
    )  # fmt: skip
    faults: list[tuple[int, int]] = []
    rows = [
        part.num_rows
        for part in decode_columns(
            data,
            columns=frozenset({"timestamp"}),
            on_fault=lambda first, last, error: faults.append((first, last)),
        )
    ]
    assert (sum(rows), faults) == (800_000, [(800_000, 1_600_000)])


@pytest.mark.parametrize("length", [b"\x00", b"\x01", b"\xff\xff\xff\xff\xff"])
def test_records_before_a_length_that_no_record_has_are_read_also_of_a_large_batch(
    length: bytes,
) -> None:
    before = 800_003
    data = pack_batch(
        compress(Compression.ZSTD, TINY * before + length + TINY * 9), attributes=4,
        record_count=before + 10, last_offset_delta=before + 9, base_timestamp=0, max_timestamp=0,
    )  # fmt: skip
    faults: list[tuple[int, int]] = []
    rows = [
        part.num_rows
        for part in decode_columns(
            data,
            columns=frozenset({"timestamp"}),
            on_fault=lambda first, last, error: faults.append((first, last)),
        )
    ]
    assert (sum(rows), faults) == (before, [(before, before + 9)])
    records = iter_records(data, 0, read_header(data))
    for _ in range(before):
        next(records)
    with pytest.raises(DecodeError):
        next(records)


def test_a_batch_with_a_wrong_crc_or_broken_compression_is_left_out_whole() -> None:
    wrong = bytearray(good(3, 3))
    wrong[-1] ^= 1
    broken = pack_batch(
        b"\x28\xb5\x2f\xfd" + b"\x55" * 20, attributes=4, record_count=2, last_offset_delta=1,
        base_timestamp=0, max_timestamp=0, base_offset=6,
    )  # fmt: skip
    unknown = pack_batch(
        b"1234567", attributes=7, record_count=1, last_offset_delta=0,
        base_timestamp=0, max_timestamp=0, base_offset=8,
    )  # fmt: skip
    data = good(0, 3) + bytes(wrong) + broken + unknown + good(9, 2)
    assert told(data) == (values(0, 3) + values(9, 2), [(3, 5), (6, 7), (8, 8)])


@pytest.mark.parametrize("group_bytes", [10, 2**20])
def test_bytes_behind_the_last_record_are_told_at_its_offset(group_bytes: int) -> None:
    section = good(3, 3)[BATCH_OVERHEAD:] + b"left over"
    longer = pack_batch(
        section, attributes=0, record_count=3, last_offset_delta=2, base_timestamp=0,
        max_timestamp=0, base_offset=3,
    )  # fmt: skip
    data = good(0, 3) + longer + good(6, 2)
    assert told(data, group_bytes=group_bytes) == (values(0, 8), [(5, 5)])


def test_what_is_left_out_is_not_counted_either() -> None:
    data = good(0, 10) + with_garbage(10, 4, 5, Compression.NONE) + good(19, 3)
    rows = decode_columns(data, columns=frozenset(), on_fault=lambda *_: None, believe_counts=False)
    assert sum(part.num_rows for part in rows) == 17
