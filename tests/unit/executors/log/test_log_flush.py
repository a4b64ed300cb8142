import pytest

from sparklog.config import TopicConfig
from sparklog.errors import StorageError
from sparklog.executors.log.flush import FlushState, PostponedFlushError
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import PARTITION_DIR, Desk, fill, put, read_all


def target(state: FlushState, *, end: int = 10, now_ms: int = 0, **changes: int) -> int | None:
    return state.target(TopicConfig(**changes), end, now_ms)  # type: ignore[arg-type]


def test_by_default_only_sealed_segments_are_flushed() -> None:
    state = FlushState(0)
    state.appended(0)
    assert target(state, now_ms=10**12) is None
    state.indexes_pending = True
    assert target(state) == 10


def test_flush_messages_counts_records() -> None:
    state = FlushState(4)
    state.appended(0)
    assert target(state, flush_messages=7) is None
    assert target(state, flush_messages=6) == 10
    assert target(state, flush_messages=1, end=4) is None


def test_flush_ms_counts_from_the_first_record_that_is_not_durable() -> None:
    state = FlushState(0)
    config = TopicConfig(flush_ms=500)
    assert state.deadline_ms(config) is None
    state.appended(100)
    state.appended(300)
    assert state.deadline_ms(config) == 600
    assert state.deadline_ms(TopicConfig()) is None
    assert [target(state, flush_ms=500, now_ms=now) for now in (599, 600)] == [None, 10]


def test_one_flush_covers_all_that_came_before_it() -> None:
    log = Desk().open(flush_messages=1)
    assert log.start_flush(0) is None
    put(log, 1)
    assert log.flush_due(0)
    job = log.start_flush(0)
    assert job is not None
    assert log.start_flush(0) is None
    put(log, 2)
    put(log, 3)
    job.run()
    assert log.recovery_point == 0
    log.finish_flush(job, 5)
    assert log.recovery_point == 1
    second = log.start_flush(5)
    assert second is not None
    second.run()
    log.finish_flush(second, 6)
    assert log.recovery_point == 3
    assert not log.flush_due(10**12)


def test_a_flush_restarts_the_time_of_what_came_during_it() -> None:
    log = Desk().open(flush_ms=100)
    put(log, 1, now_ms=10)
    assert log.flush_deadline_ms == 110
    job = log.start_flush(110)
    assert job is not None
    put(log, 2, now_ms=120)
    job.run()
    log.finish_flush(job, 130)
    assert log.flush_deadline_ms == 210
    job = log.start_flush(210)
    assert job is not None
    job.run()
    log.finish_flush(job, 211)
    assert log.flush_deadline_ms is None


def test_what_was_flushed_survives_a_crash_and_needs_its_index_no_more() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    fill(log, 60)
    assert log.flush_due(0)
    job = log.start_flush(0)
    assert job is not None
    job.run()
    log.finish_flush(job, 0)
    assert log.recovery_point == 60
    put(log, 60)
    assert not log.flush_due(0)
    segments = len(log.segments)
    backend.crash(lose_names=True)
    log = desk.open(recovery_point=60)
    assert (log.log_start_offset, log.log_end_offset) == (0, 60)
    assert (log.recovery.segments_recovered, log.recovery.indexes_rebuilt) == (1, 1)
    assert len(log.segments) == segments > 2
    assert [record.offset for record in read_all(log)] == list(range(60))
    log.check_invariants()


def test_a_segment_sealed_during_a_flush_asks_for_the_next_one() -> None:
    log = Desk().open()
    put(log, 1)
    job = log.start_flush(0, force=True)
    assert job is not None
    log.roll(0)
    job.run()
    log.finish_flush(job, 0)
    assert log.flush_due(0)
    job = log.start_flush(0)
    assert job is not None
    assert [path.rpartition(".")[2] for path in job.paths] == ["index", "timeindex", "snapshot"]
    job.run()
    log.finish_flush(job, 0)
    assert not log.flush_due(10**12)


def test_a_forced_flush_takes_everything() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    put(log, 1)
    log.assign_leader_epoch(3)
    put(log, 2, leader_epoch=3)
    assert not log.flush_due(0)
    job = log.start_flush(0, force=True)
    assert job is not None
    job.run()
    log.finish_flush(job, 0)
    assert log.recovery_point == 2
    backend.crash(lose_names=True)
    assert backend.read(f"{PARTITION_DIR}/leader-epoch-checkpoint") == b"0\n2\n0 0\n3 1\n"
    assert desk.open(recovery_point=2).log_end_offset == 2


def test_a_failed_flush_takes_the_log_offline() -> None:
    backend = MemoryBackend()
    log = Desk(half=backend).open(flush_messages=1)
    put(log, 1)
    backend.faults.fail_next(operation="flush")
    job = log.start_flush(0)
    assert job is not None
    with pytest.raises(StorageError) as failure:
        job.run()
    log.fail_flush(job, failure.value)
    assert log.offline is failure.value
    assert log.recovery_point == 0
    with pytest.raises(StorageError, match="offline"):
        put(log, 2)
    assert log.start_flush(0) is None
    assert [record.offset for record in read_all(log)] == [0]
    with pytest.raises(StorageError, match="offline"):
        log.close(0)
    log.close(0, clean=False)


def test_a_flush_without_room_for_the_leader_epochs_is_made_again() -> None:
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    for _ in range(40):
        put(log, 1, leader_epoch=3)
    segments = len(log.segments)
    assert segments > 1
    backend.disk.fill_after(0)
    for _ in range(2):
        job = log.start_flush(0)
        assert job is not None
        with pytest.raises(PostponedFlushError):
            job.run()
        log.postpone_flush(job)
        assert (log.offline, log.recovery_point) == (None, 0)
        assert log.flush_due(0)
    backend.faults.clear()
    job = log.start_flush(0)
    assert job is not None
    job.run()
    log.finish_flush(job, 0)
    assert log.recovery_point == 40
    assert not log.flush_due(10**12)
    backend.crash(lose_names=True)
    log = desk.open(recovery_point=40)
    assert (len(log.segments), log.leader_epochs.latest_epoch) == (segments, 3)
    assert log.recovery.segments_recovered == 1


def test_a_flush_of_what_retention_deleted_meanwhile_is_fine() -> None:
    log = Desk().open(retention_bytes=0)
    fill(log, 40)
    job = log.start_flush(0)
    assert job is not None
    log.delete_old_segments(0, 40)
    log.purge_deleted(10**9)
    job.run()
    log.finish_flush(job, 0)
    assert log.recovery_point == log.log_end_offset == 40


def test_a_flush_proves_nothing_about_a_log_that_was_cut_meanwhile() -> None:
    log = Desk().open()
    fill(log, 10)
    job = log.start_flush(0, force=True)
    assert job is not None
    log.truncate_to(4, 0)
    fill(log, 6)
    job.run()
    log.finish_flush(job, 0)
    assert log.recovery_point == 0
    log.flush(0)
    assert log.recovery_point == 10


def test_a_tail_that_was_cut_off_without_a_flush_does_not_come_back() -> None:
    """The start that cut it failed, and the next one finds nothing to cut."""
    backend = MemoryBackend()
    desk = Desk(half=backend)
    log = desk.open()
    fill(log, 5)
    log.flush(0)
    put(log, 1, 2, 3)
    backend.crash(30)
    backend.faults.fail_next(operation="flush")
    with pytest.raises(StorageError):
        desk.open(recovery_point=5)
    backend.end_process()
    log = desk.open(recovery_point=5)
    log.roll(0)
    fill(log, 1)
    log.flush(0)
    backend.crash()
    assert desk.open(recovery_point=6).log_end_offset == 6
