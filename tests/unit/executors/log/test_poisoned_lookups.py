"""Lookups by time where batches cannot be decoded, or decompress to very much."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import LongPart, run_through
from sparklog.types import Compression, OffsetTimestamp
from sparklog.wire.records.batch import BATCH_OVERHEAD, check_batch, pack_batch, read_header
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.compression import MAX_UNCOMPRESSED_BYTES
from sparklog.wire.records.record_search import SEARCH_BYTES_MAX
from sparklog.wire.records.record_slices import MIN_RECORD_BYTES
from sparklog.wire.records.record_times import MEASURED_BYTES_MAX, record_times
from tests.support.bombs import TINY, bomb, peak_bytes
from tests.unit.executors.log.log_fixtures import Desk, first_since, headers_of, put, with_largest

#: Records after which a search begins no further batch.
WITHIN = SEARCH_BYTES_MAX // MIN_RECORD_BYTES
MIB = 1 << 20


def append(log: Log, data: bytes) -> None:
    """A batch as a leader stamps it."""
    stamped = bytearray(data)
    stamped[0:8] = log.log_end_offset.to_bytes(8, "big")
    log.append([bytes(stamped)], headers_of(bytes(stamped)), 0)


def pair(found: OffsetTimestamp | None) -> tuple[int, int] | None:
    return None if found is None else (found.offset, found.timestamp)


def around(section: bytes, count: int, codec: int = 0, largest: int = 100) -> bytes:
    """A right CRC around any bytes, with timestamps up to ``largest`` as the header says."""
    return pack_batch(
        section, attributes=codec, record_count=count, last_offset_delta=count - 1,
        base_timestamp=0, max_timestamp=largest,
    )  # fmt: skip


UNREADABLE = {
    "garbage": around(b"\xee" * 700, 2),
    "broken zstd": around(b"\x28\xb5\x2f\xfd" + b"\x55" * 90, 2, codec=4),
    "a count that lies": around(TINY * 2, 3),
    "many records of garbage": around(b"\xee" * 7000, 900),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_nobody_can_decode_is_passed_by(name: str) -> None:
    log = Desk().open()
    put(log, 1, 2)
    append(log, UNREADABLE[name])
    after = log.log_end_offset
    put(log, 50, 60, 100)
    assert pair(first_since(log, 2)) == (1, 2)
    assert pair(first_since(log, 3)) == (after, 50)
    assert pair(first_since(log, 61)) == (after + 2, 100)
    assert first_since(log, 101) is None
    assert pair(with_largest(log)) == (after + 2, 100)


@pytest.mark.parametrize("good", [1, 700])
def test_records_before_the_garbage_of_their_batch_are_found(good: int) -> None:
    records = encode_batch([Record(value=b"", timestamp=n) for n in range(good)])
    log = Desk().open()
    append(log, around(records[BATCH_OVERHEAD:] + b"\x0e" + b"\xff" * 60, good + 1, largest=900))
    put(log, 800)
    assert pair(first_since(log, good - 1)) == (good - 1, good - 1)
    assert pair(first_since(log, good)) == (good + 1, 800)


def test_a_wrong_crc_is_an_error_because_another_replica_may_know() -> None:
    log = Desk().open()
    damaged = bytearray(encode_batch([Record(value=b"x" * 50, timestamp=9)]))
    damaged[-5] ^= 1
    log.append([bytes(damaged)], headers_of(bytes(damaged)), 0)
    with pytest.raises(KafkaError) as caught:
        first_since(log, 5)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_bomb_is_searched_whole(codec: Compression) -> None:
    log = Desk().open()
    put(log, 10)
    append(log, bomb(3 * WITHIN, codec, timestamp=20, max_timestamp=100))
    after = log.log_end_offset
    assert first_since(log, 100) is None
    assert pair(first_since(log, 20)) == (1, 20)
    put(log, 5, 100)
    found = first_since(log, 100)
    assert pair(found) == (after, 100), "a lower bound: the header of the bomb lies"


def beyond_the_limit(newest: int) -> bytes:
    """A batch of records of 1 MiB at time 0, of which readers refuse the last ones.  The record at
    index ``newest`` is at time 100."""
    count = MAX_UNCOMPRESSED_BYTES // MIB + 3
    records = [Record(value=bytes(MIB), timestamp=100 * (n == newest)) for n in range(count)]
    return encode_batch(records, compression=Compression.ZSTD)


def test_beyond_the_limit_of_readers_the_answer_is_a_lower_bound() -> None:
    log = Desk().open(segment_bytes=1 << 30)
    put(log, 10)
    limit = MAX_UNCOMPRESSED_BYTES // MIB
    append(log, beyond_the_limit(limit + 1))
    put(log, 100)
    found = first_since(log, 100)
    assert found is not None
    assert found.timestamp == 100
    assert limit - 2 < found.offset <= 1 + limit + 1


def test_beyond_the_limit_the_largest_timestamp_stays_where_it_was_found() -> None:
    log = Desk().open(segment_bytes=1 << 30)
    put(log, 100)
    append(log, beyond_the_limit(1))
    log.advance_log_start(1)  # the segment's own first largest record does not count any more
    assert pair(with_largest(log)) == (2, 100)


def test_only_a_search_in_a_large_batch_has_long_parts() -> None:
    log = Desk().open(segment_bytes=1 << 30)
    put(log, 10)
    append(log, bomb(WITHIN - 1, timestamp=20, max_timestamp=30))
    append(log, bomb(WITHIN + 1, timestamp=40, max_timestamp=50))
    assert long_parts(log, 10) == long_parts(log, 20) == long_parts(log, 40) == 0
    assert long_parts(log, 50) == 1


def long_parts(log: Log, timestamp: int) -> int:
    """The number of long parts of a lookup."""
    found: list[bool] = []

    def run(part: Callable[[], Any]) -> Any:
        found.append(isinstance(part, LongPart))
        return part()

    steps = log.times.first_from(timestamp)
    with suppress(StopIteration):
        part = next(steps)
        while True:
            part = steps.send(run(part))
    return sum(found)


def test_sixteen_bombs_do_not_multiply_the_work_of_one_search() -> None:
    log = Desk().open(segment_bytes=1 << 30)
    for _ in range(16):
        append(log, bomb(WITHIN // 2, timestamp=20, max_timestamp=100))
    found = first_since(log, 100)
    assert found is not None
    assert (found.offset >= WITHIN // 2, found.offset <= WITHIN) == (True, True)


def test_a_search_holds_a_slice_and_not_the_batch() -> None:
    batch = bomb(3 * WITHIN, timestamp=20, max_timestamp=100)
    log = Desk().open(segment_bytes=1 << 30)
    append(log, batch)
    first_since(log, 100)  # what is loaded once is not counted
    assert peak_bytes(lambda: first_since(log, 100)) < 12 * 2**20


def test_a_bomb_is_not_measured_and_may_have_any_timestamp() -> None:
    large = bomb(2 * MEASURED_BYTES_MAX // MIN_RECORD_BYTES)
    small = encode_batch([Record(value=b"v", timestamp=5), Record(value=b"v", timestamp=3)])
    batches = [(read_header(data), data) for data in (small, large, small)]
    for header, data in batches:
        check_batch(data, 0, header)
    assert record_times(batches) == [(3, 5), None, (3, 5)]
    assert peak_bytes(lambda: record_times([(read_header(large), large)] * 4)) < 4 * 2**20


def test_steps_of_a_lookup_run_through() -> None:
    log = Desk().open()
    append(log, UNREADABLE["garbage"])
    assert run_through(log.times.first_from(50)) is None
    assert run_through(log.times.largest()) is None
