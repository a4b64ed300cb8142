import struct
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.log.log import AppendInfo, LogRead
from sparklog.executors.log.offset_index import unpack_offset_index
from sparklog.executors.log.time_index import unpack_time_index
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.records.batch import BATCH_OVERHEAD
from sparklog.wire.records.builder import decode_records
from tests.unit.executors.log.log_fixtures import (
    PARTITION_DIR,
    SMALL,
    TP,
    Desk,
    batch,
    fill,
    first_since,
    headers_of,
    put,
    read_all,
    with_largest,
)


@pytest.fixture(params=["memory", "local"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    return Desk(half=MemoryBackend() if request.param == "memory" else LocalBackend(tmp_path))


def test_a_new_log_is_empty(desk: Desk) -> None:
    log = desk.open()
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point, log.size) == (0, 0, 0, 0)
    assert log.read(0, 100, end_offset=0) == LogRead(region=None, size=0, first_offset=0)
    assert first_since(log, 0) is None
    assert with_largest(log) is None
    assert (log.topic_partition, log.partition_dir, log.offline) == (TP, PARTITION_DIR, None)


def test_batches_are_stored_as_they_came(desk: Desk) -> None:
    log = desk.open()
    first, second = batch(0, (1, 2)), batch(2, (3,))
    both = first + second
    # As a produce request brings them: a stamped copy of a header, then a slice of the request.
    info = log.append(
        [bytearray(both[:BATCH_OVERHEAD]), memoryview(both)[BATCH_OVERHEAD:]], headers_of(both), 9
    )
    assert info == AppendInfo(
        base_offset=0,
        last_offset=2,
        segment_base_offset=0,
        position=0,
        size=len(both),
        rolled=False,
    )
    third = put(log, 4)
    assert desk.half.read(desk.path(f"{0:020d}.log")) == both + third
    assert log.log_end_offset == 4
    assert log.size == len(both + third)
    got = log.read(1, 10**6, end_offset=4)
    assert got.region is not None
    assert (got.region.read(), got.size, got.first_offset) == (both + third, log.size, 0)
    got.region.release()


def test_a_read_takes_whole_batches_within_its_bounds(desk: Desk) -> None:
    log = desk.open(segment_bytes=10**6)
    data = [put(log, *range(3)) for _ in range(40)]
    size = len(data[0])
    cases = {
        # (offset, max bytes, end offset, min one): (first offset, batches)
        (0, 10 * size, 120, True): (0, 10),
        (0, 10 * size - 1, 120, True): (0, 9),
        (7, 10 * size + 1, 120, True): (6, 10),
        (50, 10**6, 120, True): (48, 24),
        (50, 10**6, 100, True): (48, 17),
        (50, 10**6, 101, True): (48, 17),
        (50, 10**6, 102, True): (48, 18),
        (50, 1, 120, True): (48, 1),
        (50, 0, 120, True): (48, 1),
        (50, size - 1, 120, False): (50, 0),
        (50, size, 120, False): (48, 1),
        (50, 10**6, 50, True): (50, 0),
        (50, 10**6, 49, True): (50, 0),
        # The batch that holds the bound is not below it.
        (48, 10**6, 50, True): (48, 0),
        (119, 10**6, 120, True): (117, 1),
        (120, 10**6, 120, True): (120, 0),
    }
    for (offset, max_bytes, end_offset, min_one), (first, batches) in cases.items():
        got = log.read(offset, max_bytes, end_offset=end_offset, min_one=min_one)
        case = (offset, max_bytes, end_offset, min_one)
        assert got.size == batches * size, case
        assert (got.region is None) == (batches == 0), case
        if got.region is not None:
            assert got.first_offset == first, case
            assert got.region.read() == b"".join(data[first // 3 : first // 3 + batches]), case
            got.region.release()


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_read_gives_what_a_plain_list_would(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=40))
    log = Desk().open(index_interval_bytes=data.draw(st.sampled_from([0, 100, 300, 10**6])))
    spans: list[tuple[int, int, int]] = []
    for count in sizes:
        base = log.log_end_offset
        bytes_before = len(put(log, *range(count), size=data.draw(st.integers(0, 60))))
        spans.append((base, log.log_end_offset, bytes_before))
    log.check_invariants()
    end = log.log_end_offset
    for _ in range(20):
        offset = data.draw(st.integers(0, end))
        bound = data.draw(st.integers(0, end))
        max_bytes = data.draw(st.integers(0, 1500))
        got = log.read(offset, max_bytes, end_offset=bound)
        readable = [span for span in spans if span[1] > offset and span[1] <= bound]
        if offset >= bound or not readable or readable[0][0] > offset:
            assert got.size == 0
            continue
        taken = readable[:1]
        for before, span in pairwise(readable):
            same_segment = not any(segment.base_offset == span[0] for segment in log.segments)
            if not same_segment or before not in taken:
                break
            if sum(size for _, _, size in [*taken, span]) <= max_bytes:
                taken.append(span)
        assert got.first_offset == taken[0][0]
        assert got.size == sum(size for _, _, size in taken)


def test_a_read_without_index_entries_ends_at_the_last_batch_that_fits(desk: Desk) -> None:
    # Headers lie at all distances from the ends of the windows in which the log is walked.
    log = desk.open(segment_bytes=10**6, index_interval_bytes=10**6)
    sizes = [*(number * 37 % 200 for number in range(150)), 10_000, 20, 8_192, 20, 20]
    ends = list(accumulate(len(put(log, 0, size=size)) for size in sizes))
    for max_bytes in range(1, ends[-1], 53):
        got = log.read(0, max_bytes, end_offset=log.log_end_offset)
        assert got.size == max([ends[0], *(end for end in ends if end <= max_bytes)]), max_bytes
        assert got.region is not None
        got.region.release()


def test_offsets_outside_the_log_are_refused(desk: Desk) -> None:
    log = desk.open()
    fill(log, 5)
    log.advance_log_start(2)
    for offset in (-1, 1, 6):
        with pytest.raises(KafkaError) as refusal:
            log.read(offset, 100, end_offset=5)
        assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in read_all(log)] == [2, 3, 4]


def test_reads_cross_segments_one_at_a_time(desk: Desk) -> None:
    log = desk.open()
    fill(log, 100, size=50)
    assert len(log.segments) > 5
    for start in (0, 13, 99):
        assert [record.offset for record in read_all(log, start)] == list(range(start, 100))
    second = log.segments[1].base_offset
    got = log.read(second - 1, 10**6, end_offset=100)
    assert got.size == len(batch(0, size=50))


def test_index_entries_name_last_offset_and_position_of_their_batch(desk: Desk) -> None:
    log = desk.open(segment_bytes=10**6, index_interval_bytes=250)
    base = 0
    data = [put(log, 100 + 10 * n, 3) for n in range(10)]
    size = len(data[0])
    # A batch gets an entry when more than the interval lies before it, counted anew after each.
    step = 250 // size + 1
    indexed = list(range(step, 10, step))
    entries = unpack_offset_index(desk.half.read(desk.path(f"{base:020d}.index")), base)
    assert [(e.offset, e.position) for e in entries] == [(2 * n + 1, n * size) for n in indexed]
    times = unpack_time_index(desk.half.read(desk.path(f"{base:020d}.timeindex")), base)
    assert [(e.timestamp, e.offset) for e in times] == [(100 + 10 * n, 2 * n + 1) for n in indexed]
    log.close(0)
    raw = desk.half.read(desk.path(f"{base:020d}.index"))
    assert raw == b"".join(struct.pack(">ii", 2 * n + 1, n * size) for n in indexed)
    raw = desk.half.read(desk.path(f"{base:020d}.timeindex"))
    assert raw[-12:] == struct.pack(">qi", 190, 19)


def test_indexes_are_preallocated_while_they_grow_and_cut_when_sealed(desk: Desk) -> None:
    log = desk.open(index_interval_bytes=100)
    name = desk.path(f"{0:020d}.index")
    assert desk.half.size(name) == 0
    fill(log, 4)
    assert desk.half.size(name) == SMALL.segment_index_bytes
    log.roll(0)
    assert desk.half.size(name) == 8 * log.segments[0].offset_index.entries > 0


def test_a_region_outlives_its_log(desk: Desk) -> None:
    log = desk.open()
    data = put(log, 1, 2, 3)
    got = log.read(0, 100, end_offset=3)
    assert got.region is not None
    log.close(0, clean=False)
    desk.half.remove_folder(PARTITION_DIR)
    assert not desk.half.exists(PARTITION_DIR)
    assert got.region.read() == data
    got.region.release()


def test_a_full_disk_changes_nothing() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    stored = b"".join(fill(log, 3))
    entries = log.segments[-1].offset_index.entries
    for free in range(0, len(batch(3)), 17):
        backend.disk.fill_after(free)
        with pytest.raises(StorageError, match="full"):
            put(log, 77)
        assert (log.log_end_offset, log.size) == (3, len(stored))
        assert log.segments[-1].offset_index.entries == entries
        log.check_invariants()
    backend.faults.clear()
    stored += put(log, 78)
    log.check_invariants()
    assert desk.half.read(desk.path(f"{0:020d}.log")) == stored
    assert with_largest(log).timestamp == 78  # type: ignore[union-attr]


def test_a_full_disk_at_a_roll_changes_nothing() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    while log.size < SMALL.segment_bytes - 100:
        put(log, log.log_end_offset)
    end = log.log_end_offset
    for operation in ("open", "truncate", "writev"):
        backend.faults.fail_next(operation=operation)
        with pytest.raises(StorageError):
            put(log, end, size=100)
        assert (log.log_end_offset, len(log.segments)) == (end, 1)
        log.check_invariants()
        backend.faults.clear()
    put(log, end, size=100)
    assert [segment.base_offset for segment in log.segments] == [0, end]
    assert [record.offset for record in read_all(log)] == list(range(end + 1))
    log.check_invariants()


def test_a_failed_roll_that_could_not_be_undone_is_undone_before_the_log_goes_on() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    fill(log, 5)
    # The new segment is there when its snapshot fails, and its files cannot be deleted.
    backend.faults.fail_next(operation="writev", under=".snapshot")
    backend.faults.fail_next(100, operation="delete", under=f"{5:020d}")
    with pytest.raises(StorageError):
        log.roll(0)
    with pytest.raises(StorageError):
        put(log, 5)
    assert (log.log_end_offset, [record.offset for record in read_all(log)]) == (5, [*range(5)])
    backend.faults.clear()
    fill(log, 5)
    log.roll(0)
    fill(log, 5)
    log.advance_log_start(10)
    log.delete_old_segments(0, 15)
    # A segment of no records between two others would look like one that lost them.
    backend.crash(keep_unflushed=1 << 30)
    log = desk.open()
    assert [record.offset for record in read_all(log)] == list(range(10, 15))


def test_index_entries_that_find_no_room_do_not_cost_the_append() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open(index_interval_bytes=0)
    for n in range(6):
        if n % 2:
            backend.faults.fail_next(operation="reserve")
        put(log, n)
        backend.faults.clear()
    log.check_invariants()
    assert log.segments[0].offset_index.entries < 5
    assert [first_since(log, n).offset for n in range(6)] == list(range(6))  # type: ignore[union-attr]
    log.close(0)
    log = desk.open(clean=True)
    log.check_invariants()
    assert with_largest(log).offset == 5  # type: ignore[union-attr]


def test_an_index_that_lies_is_made_anew() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open(segment_bytes=10**6)
    fill(log, 100)
    log.roll(0)
    name = desk.path(f"{0:020d}.index")
    entries = len(backend.read(name)) // 8
    assert entries > 10
    log.close(0)
    log = desk.open(clean=True)
    wrong = b"".join(struct.pack(">ii", n, 50 + n) for n in range(1, entries))
    backend.put(name, wrong + backend.read(name)[-8:])
    for offset in range(100):
        got = log.read(offset, 1, end_offset=100)
        assert got.first_offset == offset
    log.check_invariants()


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damaged_index_files_never_change_an_answer(data: st.DataObject) -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 60)
    log.close(0)
    for name in desk.names("index"):
        raw = bytearray(desk.half.read(desk.path(name)))
        for _ in range(data.draw(st.integers(0, 3))):
            if raw:
                raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        kind = data.draw(st.sampled_from(["keep", "cut", "delete", "longer"]))
        if kind == "cut":
            raw = raw[: data.draw(st.integers(0, len(raw)))]
        desk.half.put(desk.path(name), raw + bytes(5) * (kind == "longer"))
        if kind == "delete":
            desk.half.delete(desk.path(name))
    log = desk.open(clean=True)
    assert [record.offset for record in read_all(log, max_bytes=700)] == list(range(60))
    for offset in range(60):
        got = log.read(offset, 1, end_offset=60)
        assert got.first_offset == offset


def test_records_read_are_those_written(desk: Desk) -> None:
    log = desk.open()
    stored = b"".join(fill(log, 30))
    assert read_all(log, max_bytes=1) == decode_records(stored)
