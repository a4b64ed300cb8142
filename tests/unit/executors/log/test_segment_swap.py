"""Cleaned segments take the place of others; a crash at any point loses nothing."""

from collections.abc import Callable

import pytest

from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.log.cleaned_segments import CLEANED_SUFFIXES, CleanedGroup
from sparklog.executors.log.log import Log
from sparklog.executors.log.steps import Steps, run_through
from sparklog.executors.log.txn_index import AbortedTxn
from sparklog.segment_files.index_entries import TimestampOffset
from sparklog.segment_files.stats_file import TimestampRange
from sparklog.storage_backends.base import FileHalf
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from sparklog.wire.records.builder import Record, encode_batch
from sparklog.wire.records.control import ControlType, EndTxnMarker, encode_marker
from tests.unit.executors.log.cleaned_logs import clean, compact, swap, swap_steps, write_cleaned
from tests.unit.executors.log.log_fixtures import (
    PARTITION_DIR,
    Desk,
    fill,
    headers_of,
    put,
    read_all,
    read_bytes,
)

#: Offsets that the cleanings of these tests keep.
KEPT = range(0, 1000, 7)


def keep_some(record: Record) -> bool:
    return record.offset in KEPT


def offsets(log: Log, start: int | None = None) -> list[int]:
    return [record.offset for record in read_all(log, start)]


def rolled(desk: Desk, count: int = 60, every: int = 10) -> Log:
    """A log with a segment for every ``every`` records, and an active segment with some too."""
    log = desk.open(cleanup_policy=("compact",))
    for _ in range(0, count, every):
        fill(log, every)
        log.roll(0)
    fill(log, 3)
    log.flush(0)
    return log


def group_of(desk: Desk, log: Log, first: int = 1, end: int = 4) -> CleanedGroup:
    return clean(desk.half, log.segments[first:end], keep_some)


@pytest.fixture(params=["memory", "local"])
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    if request.param == "memory":
        return Desk()
    return Desk(half=LocalBackend(str(tmp_path_factory.mktemp("disk"))))


AFTER = [*range(10), 14, 21, 28, 35, *range(40, 63)]


def test_a_cleaned_segment_takes_the_place_of_three(desk: Desk) -> None:
    log = rolled(desk)
    assert swap(log, group_of(desk, log), now_ms=5)
    assert [segment.base_offset for segment in log.segments] == [0, 10, 40, 50, 60]
    assert log.segments[1].next_offset == 40
    assert log.segments[1].largest == TimestampOffset(39, 39)
    assert offsets(log) == AFTER
    assert [
        start for start in range(64) if offsets(log, start) != [o for o in AFTER if o >= start]
    ] == []
    log.check_invariants()
    assert desk.names(".cleaned") == desk.names(".swap") == []
    assert [name for name in desk.names(".deleted") if ".log" in name] == [
        f"{base:020d}.log.deleted" for base in (10, 20, 30)
    ]
    assert log.purge_deleted(5 + log.config.file_delete_delay_ms) > 0
    assert desk.names(".deleted") == []
    log.close(0)
    again = desk.open(clean=True)
    assert offsets(again) == AFTER
    assert again.log_end_offset == 63
    again.check_invariants()


def test_reads_in_flight_go_on_with_the_files_that_they_began_with(desk: Desk) -> None:
    log = rolled(desk)
    found = log.read(10, 1 << 20, end_offset=63)
    assert found.region is not None
    before = found.region.read()
    assert swap(log, group_of(desk, log))
    log.purge_deleted(1 << 60)
    assert found.region.read() == before
    found.region.release()


def test_a_segment_is_cleaned_again_and_again(desk: Desk) -> None:
    log = rolled(desk)
    for count in (2, 3, 4):
        compact(log, desk.half, keep_some, count=count)
    assert [segment.base_offset for segment in log.segments] == [0, 60]
    assert offsets(log) == [0, 7, 14, 21, 28, 35, 42, 49, 56, 60, 61, 62]
    log.check_invariants()
    assert offsets(desk.open(recovery_point=63)) == offsets(log)


def test_statistics_are_measured_again() -> None:
    desk = Desk()
    log = rolled(desk)
    log.statistics.measure_pending()
    assert swap(log, group_of(desk, log))
    assert log.statistics.pending
    log.statistics.measure_pending()
    # The interval of the emptied batch at the end belongs to the interval before it.
    assert run_through(log.statistics.ranges(10, 40)) == [
        TimestampRange(10, 35, 14, 28),
        TimestampRange(35, 40, 35, 35),
    ]


def test_a_measurement_of_a_replaced_segment_is_not_taken() -> None:
    desk = Desk()
    log = rolled(desk)
    log.statistics.measure_pending()
    log.segments[1].stats_pending = True
    measuring = log.statistics.next_pending()
    assert measuring is not None
    while measuring.measure_more():
        pass
    # The same batches: nothing but the number of the segment differs.
    assert swap(log, clean(desk.half, log.segments[1:2], lambda _: True))
    assert not log.statistics.is_current(measuring)
    run_through(log.statistics.take(measuring))
    assert log.segments[1].stats_pending


def test_neither_flush_nor_retention_begin_during_a_swap() -> None:
    desk = Desk()
    log = rolled(desk)
    log.reconfigure(desk.config.__class__(retention_bytes=0))
    assert log.begin_replacement()
    assert not log.begin_replacement()
    assert log.start_flush(0, force=True) is None
    assert log.delete_old_segments(0, 63) == 0
    put(log, 100)
    log.roll(0)
    log.end_replacement()
    job = log.start_flush(0, force=True)
    assert job is not None
    job.run()
    log.finish_flush(job, 0)
    assert log.delete_old_segments(0, 64) > 0


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda log: log.truncate_to(35, 0), id="truncated"),
        pytest.param(lambda log: log.truncate_fully_and_start_at(10, 0), id="started over"),
        pytest.param(
            lambda log: log.advance_log_start(25) and log.delete_old_segments(0, 63), id="deleted"
        ),
        pytest.param(lambda log: log.begin_truncation(55), id="truncating"),
    ],
)
def test_a_plan_that_is_outdated_replaces_nothing(change: Callable[[Log], object]) -> None:
    desk = Desk()
    log = rolled(desk)
    generation, group = log.generation, group_of(desk, log)
    before: list[int] = []

    def change_it() -> None:
        log.replacing = False
        change(log)
        log.replacing = True
        before.extend(segment.base_offset for segment in log.segments)

    assert not run_changed(swap_steps(log, group, generation=generation), change_it)
    assert [segment.base_offset for segment in log.segments] == before
    assert desk.names(".cleaned") == desk.names(".swap") == []
    assert log.offline is None


def run_changed(steps: Steps[bool], change: Callable[[], None]) -> bool:
    """Run the steps, with a change before the first blocking part."""

    def changed() -> Steps[bool]:
        part = next(steps)
        change()
        try:
            while True:
                result = yield part
                part = steps.send(result)
        except StopIteration as end:
            return bool(end.value)

    return run_through(changed())


def test_the_same_bases_after_a_truncation_are_other_segments() -> None:
    desk = Desk()
    log = rolled(desk)
    generation, group = log.generation, group_of(desk, log)
    log.truncate_to(20, 0)
    for _ in range(3):
        log.roll(0)
        fill(log, 10)
    assert [segment.base_offset for segment in log.segments][1:4] == list(group.replaced)
    assert run_through(swap_steps(log, group, generation=generation)) is False
    assert offsets(log) == list(range(50))


class PowerLostError(Exception):
    pass


def interrupted(backend: MemoryBackend, log: Log, group: CleanedGroup, step: int) -> bool:
    """Run the swap up to its ``step``-th operation on the disk; whether it got to its end."""
    left = step

    def count(_: Operation, __: str) -> None:
        nonlocal left
        if not left:
            raise PowerLostError
        left -= 1

    backend.faults.slow = count
    try:
        return swap(log, group)
    except PowerLostError:
        return False
    finally:
        backend.faults.clear()


@pytest.mark.parametrize("lose_names", [False, True])
@pytest.mark.parametrize("again", [None, 0, 1, 2, 3, 5, 8, 13])
def test_a_crash_at_any_operation_leaves_the_log_as_before_or_cleaned(
    lose_names: bool, again: int | None
) -> None:
    """Even if the start that follows crashes too, at its ``again``-th change of a name."""
    seen: list[bool] = []
    for step in range(100):
        backend = MemoryBackend()
        desk = Desk(half=backend)
        log = rolled(desk)
        ended = interrupted(backend, log, group_of(desk, log), step)
        backend.crash(lose_names=lose_names)
        if again is not None:
            crash_start(desk, backend, again, lose_names=lose_names)
        opened = desk.open(recovery_point=63)
        cleaned = offsets(opened) == AFTER
        assert cleaned or offsets(opened) == list(range(63))
        assert cleaned or not ended
        assert opened.log_end_offset == 63
        opened.check_invariants()
        assert desk.names(".cleaned") == desk.names(".swap") == desk.names(".deleted") == []
        seen.append(cleaned)
        opened.close(0)
        assert offsets(desk.open(clean=True)) == (AFTER if cleaned else list(range(63)))
        if ended:
            break
    assert ended
    assert seen == sorted(seen)
    assert seen[0] is False


def crash_start(desk: Desk, backend: MemoryBackend, step: int, *, lose_names: bool) -> None:
    left = step

    def count(operation: Operation, _: str) -> None:
        nonlocal left
        if operation in ("rename", "delete", "flush_folder", "put"):
            if not left:
                raise PowerLostError
            left -= 1

    backend.faults.slow = count
    try:
        desk.open(recovery_point=63)
    except PowerLostError:
        pass
    finally:
        backend.faults.clear()
    backend.crash(lose_names=lose_names)


@pytest.mark.parametrize("operation", ["rename", "flush_folder", "size", "delete"])
@pytest.mark.parametrize("count", range(1, 12))
def test_a_disk_that_fails_takes_the_log_offline_or_leaves_it(
    operation: Operation, count: int
) -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = rolled(desk)
    group = group_of(desk, log)
    calls = 0

    def fail(called: Operation, path: str) -> None:
        nonlocal calls
        calls += called == operation
        if called == operation and calls == count:
            raise StorageError(f"{operation} {path} failed")

    backend.faults.slow = fail
    try:
        swapped = swap(log, group)
    except StorageError:
        swapped = False
    backend.faults.clear()
    if log.offline is None:
        assert offsets(log) == (AFTER if swapped else list(range(63)))
        assert desk.names(".cleaned") == desk.names(".swap") == []
        log.check_invariants()
    opened = desk.open(recovery_point=63)
    assert offsets(opened) in (AFTER, list(range(63)))
    assert opened.log_end_offset == 63
    opened.check_invariants()


def test_a_damaged_swap_is_undone_while_the_replaced_segments_are_there() -> None:
    desk = Desk()
    log = rolled(desk)
    group = group_of(desk, log)
    begin(desk.half, group)
    path = f"{PARTITION_DIR}/{10:020d}.log.swap"
    desk.half.put(path, desk.half.read(path)[:-1])
    assert offsets(desk.open(recovery_point=63)) == list(range(63))
    assert desk.names(".swap") == []


def test_a_damaged_swap_without_the_replaced_segments_is_an_error() -> None:
    desk = Desk()
    log = rolled(desk)
    group = group_of(desk, log)
    begin(desk.half, group)
    path = f"{PARTITION_DIR}/{10:020d}.log"
    desk.half.delete(path)
    desk.half.put(f"{path}.swap", desk.half.read(f"{path}.swap")[:-1])
    with pytest.raises(CorruptLogError, match=r"log\.swap"):
        desk.open(recovery_point=63)


def begin(half: FileHalf, group: CleanedGroup) -> None:
    path = group.segment.path(PARTITION_DIR, ".log")
    half.rename(path, path.replace(".cleaned", ".swap"))


def with_aborted_transaction(desk: Desk) -> Log:
    """Offsets 0 to 2 are of a transaction, and 3 is its marker; then a segment without any."""
    log = desk.open(cleanup_policy=("compact",))
    data = encode_batch(
        [Record(value=b"t")] * 3,
        leader_epoch=0,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    marker = EndTxnMarker(control_type=ControlType.ABORT, coordinator_epoch=0)
    end = encode_marker(
        marker, base_offset=3, leader_epoch=0, producer_id=1, producer_epoch=0, timestamp=0
    )
    (began,), (ended,) = headers_of(data), headers_of(end)
    log.append([data], [began], 0)
    desk.producers.replay(began)
    log.append([end], [ended], 0, desk.producers.aborted_by(ended, marker))
    desk.producers.replay(ended, 0, marker)
    log.roll(0)
    fill(log, 6)
    log.roll(0)
    fill(log, 2)
    log.flush(0)
    return log


def aborted(log: Log) -> tuple[AbortedTxn, ...]:
    found = log.read(0, 1 << 20, end_offset=log.log_end_offset, with_aborted=True)
    assert found.region is not None
    found.region.release()
    return found.aborted


ABORTED = AbortedTxn(producer_id=1, first_offset=0, last_offset=3, last_stable_offset=4)


def test_the_transaction_index_of_a_cleaned_segment_is_taken_over() -> None:
    desk = Desk()
    log = with_aborted_transaction(desk)
    assert aborted(log) == (ABORTED,)
    assert swap(log, clean(desk.half, log.segments[:2], lambda record: record.offset != 5))
    assert aborted(log) == (ABORTED,)
    log.close(0)
    assert aborted(desk.open(clean=True)) == (ABORTED,)


@pytest.mark.parametrize("suffix", CLEANED_SUFFIXES)
@pytest.mark.parametrize("change", ["missing", "longer"])
def test_a_swap_begins_only_with_every_cleaned_file(suffix: str, change: str) -> None:
    desk = Desk()
    log = with_aborted_transaction(desk)
    group = clean(desk.half, log.segments[:2], lambda record: record.offset != 5)
    path = group.segment.path(PARTITION_DIR, suffix)
    if change == "missing":
        desk.half.delete(path)
    else:
        desk.half.put(path, desk.half.read(path) + b"x")
    with pytest.raises(StorageError if change == "missing" else CorruptLogError):
        swap(log, group)
    assert log.offline is None
    assert [segment.base_offset for segment in log.segments] == [0, 4, 10]
    assert aborted(log) == (ABORTED,)
    assert desk.names(".cleaned") == desk.names(".swap") == []
    log.check_invariants()


@pytest.mark.parametrize("recovery_point", [0, 12])
def test_a_start_that_finishes_a_swap_rebuilds_the_transaction_index(recovery_point: int) -> None:
    desk = Desk()
    log = with_aborted_transaction(desk)
    begin(desk.half, clean(desk.half, log.segments[:2], lambda record: record.offset != 5))
    log = desk.open(recovery_point=recovery_point)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert aborted(log) == (ABORTED,)
    log.check_invariants()


def test_a_transaction_whose_entry_was_cleaned_away_is_forgotten() -> None:
    desk = Desk()
    log = with_aborted_transaction(desk)
    batches = [data for data in read_bytes(log) if headers_of(data)[0].base_offset in range(4, 10)]
    assert swap(log, write_cleaned(desk.half, log.segments[:2], batches))
    assert aborted(log) == ()
    assert desk.names(".txnindex") == []
    log.close(0)
    assert aborted(desk.open(clean=True)) == ()
