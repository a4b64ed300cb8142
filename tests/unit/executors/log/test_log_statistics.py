"""The ``.stats`` of sealed segments: what they say, when they are believed, what becomes of it."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import DecodeError, SparklogError, StorageError
from sparklog.executors.log.dump import dump_stats
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import Steps, T, run_through
from sparklog.segment_files.stats_file import TimestampRange, decode_stats
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import Compression, OffsetTimestamp, TimestampType
from sparklog.wire.records.builder import Record, encode_batch
from tests.unit.executors.log.log_fixtures import (
    Desk,
    batch,
    fill,
    first_since,
    headers_of,
    put,
    with_largest,
)

TIMES = st.lists(st.lists(st.integers(-1, 90), min_size=1, max_size=4), min_size=30, max_size=60)


@pytest.fixture(params=["memory", "local"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(half=MemoryBackend() if request.param == "memory" else LocalBackend(tmp_path))


def ranges(log: Log, start: int = 0, end: int = 1 << 40) -> list[TimestampRange]:
    return run_through(log.statistics.ranges(start, end))


def damage(desk: Desk, path: str, position: int, bit: int = 0) -> None:
    raw = bytearray(desk.half.read(path))
    raw[position % len(raw)] ^= 1 << bit
    desk.half.put(path, raw)


def at(offset: int, timestamp: int) -> OffsetTimestamp:
    return OffsetTimestamp(offset=offset, timestamp=timestamp, leader_epoch=0)


def finish(search: Steps[T], part: Callable[[], Any]) -> T:
    """The rest of a search, from a part that was handed out before."""
    try:
        while True:
            try:
                result = part()
            except SparklogError as error:
                part = search.throw(error)
            else:
                part = search.send(result)
    except StopIteration as end:
        found: T = end.value
        return found


@settings(deadline=None, max_examples=50)
@given(times=TIMES, codec=st.sampled_from(Compression), append_time=st.booleans())
def test_they_say_between_which_times_the_records_of_each_interval_are(
    times: list[list[int]], codec: Compression, append_time: bool
) -> None:
    desk = Desk()
    log = desk.open(segment_ms=1 << 40)
    said: dict[int, int] = {}
    for timestamps in times:
        data = encode_batch(
            [Record(value=b"v", timestamp=timestamp) for timestamp in timestamps],
            base_offset=log.log_end_offset,
            compression=codec,
            timestamp_type=TimestampType(int(append_time)),
        )
        (header,) = headers_of(data)
        for delta, timestamp in enumerate(timestamps):
            said[log.log_end_offset + delta] = header.max_timestamp if append_time else timestamp
        log.append([data], [header], 0)
    log.statistics.measure_pending()
    assert not log.statistics.pending
    found = ranges(log)
    sealed_end = log.segments[-1].base_offset
    assert [each.first_offset for each in found] == [0, *(each.end_offset for each in found)][:-1]
    assert (found[-1].end_offset if found else 0) == sealed_end
    for each in found:
        inside = [said[offset] for offset in range(each.first_offset, each.end_offset)]
        assert (each.lowest, each.highest) == (min(inside), max(inside))
    # Of a sealed segment nothing else than its own file is needed, by another process either.
    log.close(0)
    assert ranges(desk.open(clean=True))[: len(found)] == found


def test_a_part_of_them_can_be_asked_for(desk: Desk) -> None:
    log = desk.open()
    fill(log, 80)
    found = ranges(log)
    inner = found[3]
    assert ranges(log, inner.first_offset, inner.end_offset) == [inner]
    assert ranges(log, inner.end_offset - 1, inner.end_offset + 1) == found[3:5]
    assert ranges(log, log.segments[-1].base_offset) == []


def test_records_that_cannot_be_decoded_may_have_any_time(desk: Desk) -> None:
    log = desk.open()
    whole = batch(0, (5,), size=300)
    # The client that sent it had made the CRC of what cannot be read.
    broken = bytearray(encode_batch([Record(value=b"v" * 300, timestamp=5)], base_offset=1))
    broken[61] = 0xFF
    broken[17:21] = crc32c(bytes(broken[21:])).to_bytes(4, "big")
    for data in (whole, bytes(broken), batch(2, (7,), size=300)):
        log.append([data], headers_of(data), 0)
    log.roll(0)
    put(log, 9)
    assert ranges(log) == [
        TimestampRange(0, 1, 5, 5),
        TimestampRange(1, 2, -(2**63), 2**63 - 1),
        TimestampRange(2, 3, 7, 7),
    ]


def test_damaged_or_missing_ones_are_made_again(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    log = desk.open()
    fill(log, 60)
    before = ranges(log)
    log.close(0)
    name = desk.path(f"{0:020d}.stats")
    whole = desk.half.read(name)
    for position in range(0, len(whole), 7):
        damage(desk, name, position)
        with pytest.raises(DecodeError):
            decode_stats(desk.half.read(name), 0)
        assert ranges(desk.open(clean=True)) == before
        assert desk.half.read(name) == whole
    assert f"{name} is passed by" in caplog.text
    for size in (0, 1, 50, len(whole) - 1):
        desk.half.put(name, whole[:size])
        assert ranges(desk.open(clean=True)) == before
    desk.half.delete(name)
    assert ranges(desk.open(clean=True)) == before
    assert desk.half.read(name) == whole


def test_they_are_not_believed_of_another_log_of_the_same_size(desk: Desk) -> None:
    log = desk.open()
    fill(log, 60)
    log.statistics.measure_pending()
    second = log.segments[1].base_offset
    kept = desk.half.read(desk.path(f"{0:020d}.stats"))
    log.truncate_to(5, 0)
    assert desk.names(".stats") == []
    # A crash brings it back, and the log is as long as it was, with other records.
    for offset in range(5, second + 10):
        put(log, 1000 + offset, now_ms=0)
    log.close(0)
    assert log.segments[1].base_offset == second
    desk.half.put(desk.path(f"{0:020d}.stats"), kept)
    assert ranges(desk.open(clean=True))[-1].highest == 1000 + second - 1


@pytest.mark.parametrize("with_stats", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_in_an_index_changes_no_answer(
    desk: Desk, suffix: str, with_stats: bool
) -> None:
    log = desk.open()
    for offset in range(60):
        put(log, offset // 3 * 10)
    log.close(0)
    expected = {t: at(-(-t // 10) * 3, -(-t // 10) * 10) for t in range(0, 190, 7)}
    names = desk.names(suffix)
    whole = {name: desk.half.read(desk.path(name)) for name in names}
    for position in range(0, len(whole[names[0]]), 3):
        for name in names:
            damage(desk, desk.path(name), position, bit=position % 8)
        if not with_stats:
            for name in desk.names(".stats"):
                desk.half.delete(desk.path(name))
        log = desk.open(clean=True)
        assert {t: first_since(log, t) for t in expected} == expected
        assert with_largest(log) == at(57, 190)
        for offset in range(60):
            found = log.read(offset, 1, end_offset=60)
            assert found.first_offset == offset
            assert found.region is not None
            found.region.release()
        log.close(0)
        assert {name: desk.half.read(desk.path(name)) for name in names} == whole


def test_an_index_that_is_made_anew_is_named_in_the_log(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    log = desk.open()
    fill(log, 60)
    last = log.segments[-1].base_offset
    log.close(0)
    desk.half.delete(desk.path(f"{0:020d}.index"))
    damage(desk, desk.path(f"{last:020d}.timeindex"), 3)
    with caplog.at_level(logging.WARNING):
        log = desk.open(clean=True)
    assert log.recovery.indexes_rebuilt == 2
    assert desk.path(f"{0:020d}.index") in caplog.text
    assert desk.path(f"{last:020d}.timeindex") in caplog.text


def test_a_file_that_was_being_replaced_is_removed(desk: Desk) -> None:
    log = desk.open()
    fill(log, 60)
    log.close(0)
    before = desk.names()
    for name in (f"{0:020d}.index.new", f"{0:020d}.stats.new"):
        desk.half.put(desk.path(name), b"half of it")
    desk.open(clean=True)
    assert desk.names() == before


def test_a_lookup_by_time_reads_one_interval_of_the_log() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open(segment_bytes=1 << 20, index_interval_bytes=4096)
    put(log, 10)
    for _ in range(3000):
        put(log, 5, size=100)
    put(log, 20)
    fill(log, 200)
    reads: list[str] = []
    backend.faults.slow = lambda operation, where: reads.append(operation)
    assert first_since(log, 15) == at(3001, 20)
    assert reads.count("read") < 20


@pytest.mark.parametrize("suffix", [".timeindex", ".stats"])
def test_a_disk_that_is_full_while_a_segment_is_measured_changes_no_answer(suffix: str) -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    fill(log, 12)
    # Recovery ends the time index with an entry of its own, which a measuring leaves out.
    backend.crash(1 << 30)
    log = desk.open()
    for offset in range(12, 16):
        put(log, offset)
    log.roll(0)
    put(log, 16)
    backend.faults.fail_next(operation="writev", under=f"{suffix}.new")
    with pytest.raises(StorageError):
        log.statistics.measure_pending()
    log.check_invariants()
    assert [first_since(log, t) for t in range(17)] == [at(t, t) for t in range(17)]


def test_a_search_begins_again_when_the_log_was_cut_meanwhile() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 60)
    search = log.times.first_from(50)
    held = next(search)
    log.truncate_to(10, 0)
    for _ in range(50):
        put(log, 70)
    assert finish(search, held) == at(10, 70)


def test_an_untouched_log_is_not_written_to_when_it_is_closed() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    fill(log, 60)
    log.close(0)
    log = desk.open(clean=True)
    assert len(first_since(log, 30) and ranges(log)) > 3
    backend.faults.read_only = True
    log.close(0)


def test_they_can_be_dumped(desk: Desk) -> None:
    log = desk.open()
    fill(log, 60)
    found = ranges(log)
    data = desk.half.read(desk.path(f"{0:020d}.stats"))
    assert dump_stats(data, 0) == [
        each for each in found if each.end_offset <= log.segments[1].base_offset
    ]
    log.close(0)
    last = log.segments[-1].base_offset
    assert dump_stats(desk.half.read(desk.path(f"{last:020d}.stats")), last) == []


def test_a_log_that_was_only_read_is_left_as_it_was_found() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 59)
    log.close(0)
    left = {name: desk.half.read(desk.path(name)) for name in desk.names()}
    log = desk.open(clean=True)
    region = log.read(58, 1, end_offset=59).region
    assert region is not None
    region.release()
    log.close(0)
    assert {name: desk.half.read(desk.path(name)) for name in desk.names()} == left


def test_a_segment_that_takes_appends_again_owes_no_statistics(desk: Desk) -> None:
    log = desk.open()
    fill(log, 9)
    log.roll(0)
    fill(log, 1)
    measuring = log.statistics.next_pending()
    assert measuring is not None
    while measuring.measure_more():
        pass
    index = log.segments[0].offset_index
    log.truncate_to(log.segments[1].base_offset, 0)
    assert not log.statistics.pending
    fill(log, 1)
    run_through(log.statistics.take(measuring))
    # The index that takes entries was not put away for one that takes none.
    assert desk.half.size(index.path) == index.capacity * index.ENTRY.size
    assert desk.names(".stats") == []
    log.check_invariants()


def test_a_cut_at_the_start_of_a_segment_that_was_only_believed_leaves_a_known_one(
    desk: Desk,
) -> None:
    log = desk.open()
    fill(log, 59)
    log.close(0)
    log = desk.open(clean=True)
    log.truncate_to(log.segments[1].base_offset, 0)
    (segment,) = log.segments
    assert (segment.indexes.times_known, segment.indexes.largest_known) == (True, True)
    assert first_since(log, 20) == at(20, 20)
    put(log, 50)
    assert first_since(log, 30) == at(log.log_end_offset - 1, 50)
    log.check_invariants()


def test_what_was_measured_of_a_deleted_segment_makes_no_files(desk: Desk) -> None:
    log = desk.open()
    fill(log, 59)
    measuring = log.statistics.next_pending()
    assert measuring is not None
    while measuring.measure_more():
        pass
    log.advance_log_start(log.segments[1].base_offset)
    assert log.delete_old_segments(0, 59) == 1
    run_through(log.statistics.take(measuring))
    log.purge_deleted(1 << 40)
    assert [name for name in desk.names() if name.startswith(f"{0:020d}.")] == []


@given(st.binary(max_size=200))
def test_no_bytes_but_its_own_make_statistics(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_stats(data, 0)
