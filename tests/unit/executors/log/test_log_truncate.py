from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptLogError, StorageError
from sparklog.executors.log.log import Log
from sparklog.executors.log.names import CLEAN_OFFSET, FULL_TRUNCATION
from sparklog.executors.log.offset_file import encode_offset
from sparklog.executors.log.steps import run_through
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import (
    Desk,
    batch,
    fill,
    headers_of,
    put,
    read_all,
    with_largest,
)


def test_whole_batches_go() -> None:
    log = Desk().open()
    for _ in range(4):
        put(log, 1, 2, 3)
    assert not log.truncate_to(12, 0)
    assert log.truncate_to(11, 0)
    assert log.log_end_offset == 9
    assert log.truncate_to(6, 0)
    assert log.log_end_offset == 6
    assert [record.offset for record in read_all(log)] == list(range(6))
    log.check_invariants()


@settings(deadline=None, max_examples=50)
@given(cut=st.integers(0, 80), again=st.integers(0, 80), flushed=st.booleans())
def test_a_cut_log_goes_on_as_if_it_had_never_been_longer(
    cut: int, again: int, flushed: bool
) -> None:
    desk, twin_desk = Desk(), Desk()
    log, twin = desk.open(), twin_desk.open()
    fill(log, 80)
    if flushed:
        log.flush(0)
    log.truncate_to(cut, 0)
    assert log.recovery_point == (cut if flushed else 0)
    fill(twin, cut)
    for either in (log, twin):
        fill(either, again)
        either.check_invariants()
    assert read_all(log) == read_all(twin)
    assert with_largest(log) == with_largest(twin)
    log.close(0)
    twin.close(0)
    for name in twin_desk.names(".log"):
        assert desk.half.read(desk.path(name)) == twin_desk.half.read(twin_desk.path(name))
    assert desk.names(".log") == twin_desk.names(".log")


def test_a_log_that_starts_over_owes_no_flush() -> None:
    """One that was due all the time and had nothing to do would be tried without an end."""
    log = Desk().open(flush_ms=1000)
    put(log, 1, 2, 3)
    log.truncate_fully_and_start_at(15, 0)
    assert (log.flush_deadline_ms, log.recovery_point) == (None, 15)
    put(log, 1)
    assert log.flush_deadline_ms is not None


def test_producers_and_epochs_go_back_too() -> None:
    desk = Desk()
    log = desk.open()
    for sequence in range(60):
        data = put(log, 1, producer_id=9, base_sequence=sequence, leader_epoch=sequence // 20)
        for header in headers_of(data):
            desk.producers.replay(header)
    assert desk.producers.entries[9].last_sequence == 59
    assert len(desk.names(".snapshot")) == len(log.segments) - 1 > 1
    log.truncate_to(30, 0)
    assert desk.producers.entries[9].last_sequence == 29
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == [(0, 0), (1, 20)]
    assert desk.half.read(desk.path("leader-epoch-checkpoint")) == b"0\n2\n0 0\n1 20\n"
    assert all(int(name[:20]) <= 30 for name in desk.names(".snapshot"))
    log.truncate_to(0, 0)
    assert dict(desk.producers.entries) == {}
    assert log.leader_epochs.latest_epoch == -1


def test_a_log_can_be_truncated_fully_and_start_at_any_offset() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 50)
    log.flush(0)
    for offset in (1000, 3, 2**62):
        log.truncate_fully_and_start_at(offset, 0)
        state = (log.log_start_offset, log.log_end_offset, log.recovery_point, log.size)
        assert state == (offset, offset, offset, 0)
        assert desk.names(".log") == [f"{offset:020d}.log"]
        assert desk.names(".snapshot") == []
        put(log, 5)
        assert [record.offset for record in read_all(log)] == [offset]
    log.close(0)
    log = desk.open(clean=True, log_start_offset=2**62)
    assert log.log_end_offset == 2**62 + 1


def test_a_cut_below_the_log_start_starts_over() -> None:
    log = Desk().open()
    fill(log, 50)
    log.advance_log_start(30)
    log.truncate_to(25, 0)
    assert (log.log_start_offset, log.log_end_offset) == (25, 25)


def test_a_cut_through_the_batch_of_the_log_start_moves_it_back() -> None:
    log = Desk().open()
    put(log, 1, 2, 3, 4)
    log.advance_log_start(2)
    log.truncate_to(3, 0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_failed_cut_takes_the_log_offline() -> None:
    backend = MemoryBackend()
    log = Desk(half=backend).open()
    fill(log, 10)
    backend.faults.fail_next(operation="truncate")
    with pytest.raises(StorageError):
        log.truncate_to(5, 0)
    assert log.offline is not None
    data = batch(10)
    with pytest.raises(StorageError, match="offline"):
        log.append([data], headers_of(data), 0)


def cleaned_below(log: Log, offset: int) -> None:
    assert run_through(log.advance_clean_offset(offset, log.generation))


def test_the_clean_offset_is_lowered_before_the_log_is_cut() -> None:
    half = MemoryBackend()
    desk = Desk(half=half)
    log = desk.open()
    fill(log, 60)
    log.flush(0)
    bases = [segment.base_offset for segment in log.segments]
    cleaned_below(log, bases[-1])
    log.begin_truncation(bases[1] + 1)
    assert not run_through(log.advance_clean_offset(60, log.generation))
    half.faults.fail_next(1, operation="truncate")
    half.faults.fail_next(1, operation="delete")
    with suppress(StorageError):
        log.truncate_to(bases[1] + 1, 0)
    half.faults.clear()
    half.crash()
    again = desk.open(recovery_point=0)
    assert again.clean_offset == bases[1]


def test_a_cut_above_the_clean_offset_leaves_it_for_the_next_cut() -> None:
    """Records below it may be gone because of records up to it, which a deeper cut would drop."""
    desk = Desk()
    log = desk.open()
    fill(log, 60)
    log.flush(0)
    middle = log.segments[2]
    clean_offset = middle.base_offset + 2
    cleaned_below(log, clean_offset)
    assert clean_offset + 1 < middle.next_offset
    log.truncate_to(clean_offset + 1, 0)
    assert (log.clean_offset, log.log_end_offset) == (clean_offset, clean_offset + 1)
    log.truncate_to(clean_offset, 0)
    log.close(0)
    assert desk.open(clean=True).clean_offset == clean_offset


def test_a_clean_offset_in_a_gap_at_the_end_is_lowered_to_the_end() -> None:
    """Records that are appended in its place are not compacted."""
    log = Desk().open()
    fill(log, 20)
    for base_offset in (30, 40):
        data = batch(base_offset)
        log.append([data], headers_of(data), 0)
    log.flush(0)
    cleaned_below(log, 35)
    log.truncate_to(35, 0)
    assert (log.log_end_offset, log.clean_offset) == (31, 31)


class PowerCut(Exception):
    """The machine loses power before an operation."""


def test_a_crash_never_leaves_the_beginning_of_a_compacted_log_that_is_dropped() -> None:
    ends = []
    for survived in range(100):
        half = MemoryBackend()
        desk = Desk(half=half)
        log = desk.open()
        fill(log, 60)
        log.flush(0)
        before = read_all(log)
        cleaned_below(log, log.segments[-1].base_offset)
        log.begin_truncation(7, fully=True)
        left = survived

        def count(operation: str, where: str) -> None:
            nonlocal left
            if operation in ("put", "rename", "delete", "truncate", "flush_folder", "open"):
                if not left:
                    raise PowerCut
                left -= 1

        half.faults.slow = count
        try:
            log.truncate_fully_and_start_at(7, 0)
        except PowerCut:
            pass
        else:
            break
        half.faults.slow = None
        half.crash(keep_unflushed=survived % 2 and 1 << 30, lose_names=survived % 3 == 0)
        assert desk.names(".log") or half.exists(desk.path(FULL_TRUNCATION))
        again = desk.open(recovery_point=7)
        ends.append(again.log_end_offset)
        if again.log_end_offset == 60:
            assert read_all(again) == before
        else:
            assert (again.log_start_offset, again.log_end_offset) == (7, 7)
            assert (again.clean_offset or 0) <= 7
        put(again, 5)
        again.flush(0)
        half.crash()
        third = desk.open(recovery_point=again.log_end_offset)
        assert third.log_end_offset == again.log_end_offset
        third.check_invariants()
    assert ends.count(60) >= 1
    assert ends.count(7) > 10
    assert set(ends) == {7, 60}


def test_a_full_truncation_without_its_offset_is_damage() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 5)
    log.close(0)
    desk.half.put(desk.path(FULL_TRUNCATION), b"7")
    with pytest.raises(CorruptLogError, match="does not tell where the log is to start"):
        desk.open(clean=True)


def test_a_clean_offset_is_never_above_the_end_of_the_log() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 5)
    log.flush(0)
    cleaned_below(log, 5)
    log.close(0)
    desk.half.put(desk.path(CLEAN_OFFSET), encode_offset(9))
    assert desk.open(clean=True).clean_offset == 5
    assert desk.half.read(desk.path(CLEAN_OFFSET)) == encode_offset(5)


@pytest.mark.parametrize("data", [b"", b"1\n5\n", b"0\n5", b"0\n-5\n", b"0\n\xff\n", b"0\n5\n6\n"])
def test_a_clean_offset_that_cannot_be_read_counts_as_none(data: bytes) -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 5)
    log.close(0)
    desk.half.put(desk.path(CLEAN_OFFSET), data)
    assert desk.open(clean=True).clean_offset is None
