"""The search by timestamp in single batches: exact also in large ones, with bounded memory."""

import pytest

from sparklog.types import Compression, OffsetTimestamp
from sparklog.wire.records.batch import BatchHeader, pack_attributes, pack_batch, read_header
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.compression import compress
from sparklog.wire.records.record_search import (
    SEARCH_BYTES_MAX,
    SearchBudget,
    first_largest_record,
    first_record,
)
from sparklog.wire.records.zigzag import encode_varint
from tests.support.bombs import TINY, bomb, peak_bytes

MIB = 1 << 20
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
#: Codecs that decompress a batch of one block in several parts.
IN_PARTS = [Compression.GZIP, Compression.LZ4, Compression.ZSTD]


def find(
    batch: bytes, timestamp: int, start_offset: int = 0, budget: SearchBudget | None = None
) -> OffsetTimestamp | None:
    header = read_header(batch)
    return first_record(lambda: batch, header, timestamp, start_offset, budget or SearchBudget())


def at(offset: int, timestamp: int) -> OffsetTimestamp:
    return OffsetTimestamp(offset=offset, timestamp=timestamp)


def one_record(batch: bytes) -> BatchHeader:
    header = read_header(batch)
    assert header.record_count == 1
    return header


@pytest.mark.parametrize("codec", CODECS)
def test_a_boundary_behind_the_budget_is_exact(codec: Compression) -> None:
    records = [Record(value=b"v" * 4000, timestamp=n) for n in range(5000)]
    batch = encode_batch(records, compression=codec, base_offset=100)
    assert SEARCH_BYTES_MAX < 4900 * 4000
    assert find(batch, 4900) == at(5000, 4900)
    assert find(batch, 4900, 5050) == at(5050, 4950)
    assert find(batch, 5000) is None


@pytest.mark.parametrize("size", [900, 40_000])
def test_records_of_many_lengths_are_searched_whole(size: int) -> None:
    count = 18 * MIB // size
    records = [Record(value=b"v" * (size // 2 + n % size), timestamp=n) for n in range(count)]
    batch = encode_batch(records, compression=Compression.ZSTD)
    for timestamp in (0, count // 2, count - 1):
        assert find(batch, timestamp) == at(timestamp, timestamp)
    assert find(batch, count) is None


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("codec", CODECS)
def test_a_large_record_is_found_and_passed_by(codec: Compression, few: bool) -> None:
    """With few records in the batch they are decoded one by one, else by column."""
    sizes = [3] * (2 if few else 700) + [20 * MIB, 300_000, 5, 2 * MIB, 6]
    records = [Record(value=b"v" * size, timestamp=n) for n, size in enumerate(sizes)]
    batch = encode_batch(records, compression=codec)
    for timestamp in range(len(sizes) - 7, len(sizes)):
        assert find(batch, timestamp) == at(timestamp, timestamp)
        assert find(batch, 0, timestamp) == at(timestamp, timestamp)
    assert find(batch, len(sizes)) is None


@pytest.mark.parametrize("codec", IN_PARTS)
def test_a_large_record_is_not_held(codec: Compression) -> None:
    batch = encode_batch([Record(value=bytes(60 * MIB), timestamp=7)], compression=codec)
    header = one_record(batch)
    assert find(batch, 7) == at(0, 7)  # what is loaded once is not counted
    assert peak_bytes(lambda: find(batch, 7)) < 4 * MIB
    budget = SearchBudget()
    assert first_largest_record(lambda: batch, header, 6, 0, budget) == at(0, 7)
    assert budget.bytes_left == 0


@pytest.mark.parametrize("codec", IN_PARTS)
def test_a_large_record_that_is_cut_off_is_no_result_and_is_charged(codec: Compression) -> None:
    section = TINY + encode_varint(200 * MIB) + bytes([0, 100, 2]) + bytes(40 * MIB)
    batch = pack_batch(
        compress(codec, section), attributes=pack_attributes(codec), record_count=2,
        last_offset_delta=1, base_timestamp=0, max_timestamp=50,
    )  # fmt: skip
    budget = SearchBudget()
    assert find(batch, 50, budget=budget) is None
    assert budget.bytes_left == 0


def test_without_budget_no_batch_is_begun() -> None:
    lying = bomb(SEARCH_BYTES_MAX // len(TINY) + 1, timestamp=20, max_timestamp=100)
    budget = SearchBudget()
    assert find(lying, 100, budget=budget) is None
    sent = encode_batch([Record(value=b"", timestamp=n) for n in (5, 100)])
    assert find(sent, 100, budget=budget) == at(0, 100), "a lower bound"


def test_the_batch_that_holds_the_start_offset_is_not_charged() -> None:
    """Its largest timestamp may be right, and below the start offset."""
    records = [Record(value=b"v" * 20_000, timestamp=n) for n in (100, *[5] * 1000)]
    large = encode_batch(records, compression=Compression.ZSTD)
    budget = SearchBudget()
    assert find(large, 100, 1, budget) is None
    assert budget.bytes_left == SEARCH_BYTES_MAX
    assert find(large, 101, 0, budget) is None
    assert budget.bytes_left == 0
