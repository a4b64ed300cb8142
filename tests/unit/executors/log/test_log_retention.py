import errno
from contextlib import suppress
from dataclasses import dataclass
from unittest.mock import patch

import pytest

from sparklog.config import TopicConfig
from sparklog.errors import ErrorCode, KafkaError, StorageError
from sparklog.executors.log.retention import RetentionLimits, count_deletable
from sparklog.storage_backends.base import storage_error
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import Desk, fill, first_since, put, read_all

HOUR_MS = 3_600_000


@dataclass
class FakeSegment:
    base_offset: int
    size: int = 100
    age_timestamp: int = 0


SEGMENTS = [FakeSegment(0), FakeSegment(10), FakeSegment(20)]


def count(
    segments: list[FakeSegment] = SEGMENTS,
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    log_start_offset: int = 0,
    stable_offset: int = 30,
    now_ms: int = 0,
    policy: tuple[str, ...] = ("delete",),
) -> int:
    return count_deletable(
        segments,
        limits=RetentionLimits.whole_log(
            TopicConfig(
                retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_policy=policy
            )
        ),
        log_start_offset=log_start_offset,
        log_end_offset=30,
        stable_offset=stable_offset,
        now_ms=now_ms,
    )


def test_without_limits_nothing_goes() -> None:
    assert count(now_ms=10**15) == 0


def test_a_segment_goes_when_its_newest_record_is_too_old() -> None:
    segments = [FakeSegment(0, 100, 50), FakeSegment(10, 100, 20), FakeSegment(20, 100, 90)]
    counts = [count(segments, retention_ms=100, now_ms=now) for now in (150, 151, 190, 191)]
    assert counts == [0, 2, 2, 3]


def test_age_and_size_count_only_where_the_policy_has_delete() -> None:
    compact, both = ("compact",), ("compact", "delete")
    assert count(retention_ms=1, retention_bytes=0, now_ms=99, policy=compact) == 0
    assert count(retention_ms=1, now_ms=99, policy=both) == 3
    assert count(retention_bytes=0, policy=both) == 3
    assert count(log_start_offset=20, policy=compact) == 2


def test_a_young_segment_protects_those_behind_it() -> None:
    segments = [FakeSegment(0, 100, 500), FakeSegment(10), FakeSegment(20)]
    assert count(segments, retention_ms=100, now_ms=550) == 0


def test_segments_go_while_what_is_left_still_reaches_the_limit() -> None:
    counts = {limit: count(retention_bytes=limit) for limit in (300, 201, 200, 101, 100, 1, 0)}
    assert counts == {300: 0, 201: 0, 200: 1, 101: 1, 100: 2, 1: 2, 0: 3}


def test_segments_below_the_log_start_go_but_the_active_one_stays() -> None:
    counts = {start: count(log_start_offset=start) for start in (9, 10, 19, 20, 30)}
    assert counts == {9: 0, 10: 1, 19: 1, 20: 2, 30: 2}


def test_nothing_unstable_goes() -> None:
    counts = {stable: count(retention_bytes=0, stable_offset=stable) for stable in (9, 10, 29, 30)}
    assert counts == {9: 0, 10: 1, 29: 2, 30: 3}


def test_an_empty_active_segment_stays() -> None:
    assert count([FakeSegment(0), FakeSegment(30, 0)], retention_bytes=0) == 1
    assert count([FakeSegment(30, 0)], retention_ms=0, now_ms=HOUR_MS) == 0


def test_reasons_add_up() -> None:
    segments = [FakeSegment(0, 100, 0), FakeSegment(10, 100, 900), FakeSegment(20, 100, 900)]
    assert count(segments, retention_ms=500, retention_bytes=100, now_ms=1000) == 2


def test_an_expired_active_segment_is_rolled_first() -> None:
    desk = Desk()
    log = desk.open(retention_ms=HOUR_MS, file_delete_delay_ms=1000)
    fill(log, 5, now_ms=0)
    assert log.delete_old_segments(HOUR_MS + 4, 5) == 0
    assert log.delete_old_segments(HOUR_MS + 5, 4) == 0
    assert log.delete_old_segments(HOUR_MS + 5, 5) == 1
    assert (log.log_start_offset, log.log_end_offset, log.size) == (5, 5, 0)
    assert log.recovery_point == 5
    assert desk.names(".log") == [f"{5:020d}.log"]
    assert desk.names(".deleted") == [
        f"{0:020d}.index.deleted",
        f"{0:020d}.log.deleted",
        f"{0:020d}.timeindex.deleted",
    ]
    assert log.purge_deleted(HOUR_MS + 1004) == 0
    assert log.purge_deleted(HOUR_MS + 1005) == 3
    assert log.purge_deleted(HOUR_MS + 9999) == 0
    assert desk.names(".deleted") == []
    put(log, 7)
    assert [record.offset for record in read_all(log)] == [5]
    assert log.delete_old_segments(0, 6) == 0


def test_a_log_that_retention_has_emptied_knows_its_epoch_after_a_crash() -> None:
    desk = Desk()
    log = desk.open(retention_ms=HOUR_MS)
    log.assign_leader_epoch(3)
    put(log, 0, leader_epoch=3)
    log.flush(0)
    log.assign_leader_epoch(5)  # and wrote nothing in it
    assert log.delete_old_segments(HOUR_MS + 5, 1) == 1
    log.flush(0)
    log.close(0, clean=False)
    log = desk.open(recovery_point=1, log_start_offset=1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert log.leader_epochs.latest_epoch == 3


def test_a_log_that_lost_deleted_records_knows_the_epoch_that_it_had_written_down() -> None:
    desk = Desk()
    log = desk.open()
    log.assign_leader_epoch(3)
    put(log, 0, leader_epoch=3)
    log.flush(0)
    fill(log, 5)
    log.close(0, clean=False)
    desk.half.put(desk.path(f"{0:020d}.log"), b"")
    log = desk.open(log_start_offset=6)
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)
    assert log.leader_epochs.latest_epoch == 3
    log.check_invariants()


def test_records_without_timestamps_age_by_the_clock() -> None:
    log = Desk().open(retention_ms=HOUR_MS)
    put(log, -1, now_ms=100)
    put(log, -1, now_ms=500)
    assert log.delete_old_segments(HOUR_MS + 500, 2) == 0
    assert log.delete_old_segments(HOUR_MS + 501, 2) == 1


def test_retention_by_size_keeps_the_newest() -> None:
    desk = Desk()
    log = desk.open(retention_bytes=4000)
    fill(log, 200)
    before = log.size
    deleted = log.delete_old_segments(0, 200)
    assert deleted > 3
    assert 4000 <= log.size < before
    assert log.size - log.segments[0].size < 4000
    assert log.log_start_offset == log.segments[0].base_offset > 0
    assert [r.offset for r in read_all(log)] == list(range(log.log_start_offset, 200))
    # Snapshots go with their segments.
    bases = [segment.base_offset for segment in log.segments]
    assert desk.names(".snapshot") == [f"{base:020d}.snapshot" for base in bases]
    log.check_invariants()


def test_deleted_records_are_hidden_at_once_and_freed_later() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 100)
    put(log, 100, leader_epoch=4)
    second = log.segments[1].base_offset
    assert log.advance_log_start(second + 1)
    assert not log.advance_log_start(second + 1)
    assert not log.advance_log_start(second)
    assert log.log_start_offset == second + 1
    assert [record.offset for record in read_all(log)] == list(range(second + 1, 101))
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == [
        (0, second + 1),
        (4, 100),
    ]
    assert first_since(log, 0).offset == second + 1  # type: ignore[union-attr]
    assert log.segments[0].base_offset == 0
    assert log.delete_old_segments(0, 101) == 1
    assert log.segments[0].base_offset == second
    assert log.log_start_offset == second + 1
    log.advance_log_start(101)
    assert read_all(log) == []
    with pytest.raises(KafkaError) as refusal:
        log.advance_log_start(102)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_log_start_survives_through_the_checkpoint() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 30)
    log.advance_log_start(17)
    log.close(0)
    log = desk.open(clean=True, log_start_offset=17)
    assert log.log_start_offset == 17
    assert [record.offset for record in read_all(log)] == list(range(17, 30))


def test_files_of_a_deletion_that_a_crash_cut_short_are_removed() -> None:
    desk = Desk()
    log = desk.open(retention_bytes=0)
    fill(log, 50)
    log.delete_old_segments(0, 50)
    names = desk.names()
    assert any(name.endswith(".deleted") for name in names)
    # The log of a segment was renamed, its indexes were not.
    desk.half.put(desk.path(f"{3:020d}.index"), b"")
    log = desk.open(recovery_point=50)
    assert desk.names() == [name for name in names if not name.endswith(".deleted")]
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_a_deletion_that_fails_is_done_the_next_time(suffix: str) -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open(file_delete_delay_ms=0)
    fill(log, 60)
    second = log.segments[1].base_offset
    log.advance_log_start(second)
    backend.faults.fail_next(operation="rename", under=suffix)
    with suppress(StorageError):
        log.delete_old_segments(0, 60)
    log.delete_old_segments(0, 60)
    assert log.segments[0].base_offset == second
    assert [record.offset for record in read_all(log)] == list(range(second, 60))
    log.purge_deleted(1)
    assert desk.names(".log") == [f"{segment.base_offset:020d}.log" for segment in log.segments]
    log.close(0)
    desk.open(clean=True)
    assert f"{0:020d}.index" not in desk.names()


def test_a_full_disk_without_room_for_another_segment_loses_all_but_the_last() -> None:
    backend = MemoryBackend()
    log = Desk(half=backend).open(retention_bytes=0, file_delete_delay_ms=0)
    fill(log, 60)
    last = log.segments[-1].base_offset
    backend.disk.fill_after(0)
    assert log.delete_old_segments(0, 60) == 2
    assert [segment.base_offset for segment in log.segments] == [last]
    assert log.log_start_offset == last
    backend.disk.fill_after(0)
    with pytest.raises(StorageError):
        log.delete_old_segments(0, 60)
    log.purge_deleted(1)
    assert log.delete_old_segments(0, 60) == 1
    assert log.log_start_offset == 60
    put(log, 0)
    log.check_invariants()


def test_a_full_disk_without_room_for_longer_names_loses_the_files_at_once() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open(file_delete_delay_ms=1000)
    fill(log, 60)
    second = log.segments[1].base_offset
    log.advance_log_start(second)
    full = storage_error("rename", "x", OSError(errno.ENOSPC, "full"))
    with patch.object(backend, "rename", side_effect=full):
        assert log.delete_old_segments(0, 60) == 1
    assert f"{0:020d}.log" not in desk.names()
    assert [name for name in desk.names() if name.startswith("0" * 20)] == []
    assert log.purge_deleted(2000) == 0
    assert [record.offset for record in read_all(log)] == list(range(second, 60))
