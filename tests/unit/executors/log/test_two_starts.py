"""Tiered logs: the log start, and the later start of the files."""

from dataclasses import replace
from typing import Any

import pytest

from sparklog.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from sparklog.executors.log import EpochEntry, Log
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import Desk, fill, put, read_all

HOUR_MS = 3_600_000
TIERED: dict[str, Any] = {"remote_storage_enable": True}


def tiered_log(desk: Desk, **config: Any) -> Log:
    """A log of 100 records in leader epochs 0 and 4, with everything sealed in the bucket."""
    log = desk.open(**TIERED, **config)
    fill(log, 50)
    for offset in range(50, 100):
        put(log, offset, leader_epoch=4)
    log.flush(0)
    log.tiered_end_offset = log.segments[-1].base_offset
    return log


def starts(log: Log) -> tuple[int, int]:
    return log.log_start_offset, log.local_log_start_offset


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def reopen(desk: Desk, log: Log, *, clean: bool = False) -> Log:
    """The next process opens the log with the checkpoints as of now."""
    checkpoint = noted(log)
    log.close(0, clean=clean)
    return open_with(desk, checkpoint, clean=clean)


def noted(log: Log) -> tuple[int, int, int]:
    """The recovery point and log starts that a checkpoint has now."""
    return log.recovery_point, log.log_start_to_note, log.local_log_start_offset


def open_with(desk: Desk, checkpoint: tuple[int, int, int], *, clean: bool = False) -> Log:
    point, start, local_start = checkpoint
    return desk.open(
        recovery_point=point,
        log_start_offset=start,
        local_log_start_offset=local_start if local_start > start else 0,
        clean=clean,
    )


def test_local_retention_deletes_what_is_in_the_bucket_and_the_log_start_stays() -> None:
    desk = Desk()
    log = tiered_log(desk, local_retention_bytes=3000, retention_bytes=1_000_000)
    all_bases = bases(log)
    assert log.delete_old_segments(0, 100) == 0
    offset = log.local_retention_offset(0, 100)
    assert offset in all_bases[1:-1]
    assert starts(log) == (0, 0), "nothing has changed yet"
    assert log.delete_local_segments(offset, 0) == all_bases.index(offset)
    assert bases(log) == all_bases[all_bases.index(offset) :]
    assert starts(log) == (0, offset)
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == [(0, 0), (4, 50)]
    assert [record.offset for record in read_all(log, offset)] == list(range(offset, 100))
    with pytest.raises(KafkaError) as refusal:
        log.read(offset - 1, 1000, end_offset=100)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.local_retention_offset(0, 100) == offset
    assert log.delete_local_segments(offset, 0) == 0
    log.check_invariants()


def test_local_retention_by_age() -> None:
    log = Desk().open(**TIERED, local_retention_ms=HOUR_MS)
    fill(log, 100)
    log.tiered_end_offset = log.segments[2].base_offset
    assert log.local_retention_offset(HOUR_MS, 100) == 0
    assert log.local_retention_offset(HOUR_MS + 100, 100) == log.segments[2].base_offset


def test_a_log_that_may_be_tiered_again_notes_its_start_before_retention_deletes_files() -> None:
    """The next start would take the deleted records for records in the bucket."""
    desk = Desk()
    leaves: dict[str, Any] = {"remote_log_delete_on_disable": True, "retention_bytes": 3000}
    log = desk.open(**leaves)
    fill(log, 100)
    log.flush(0)
    before, checkpoint = bases(log), noted(log)
    assert log.delete_old_segments(0, 100, noted_log_start=0) == 0
    start = log.log_start_offset
    assert (start in before[1:], starts(log), bases(log)) == (True, (start, start), before)
    log.close(0, clean=False)
    desk.config = replace(desk.config, remote_storage_enable=True)
    log = open_with(desk, checkpoint)
    assert (starts(log), bases(log)) == ((0, 0), before), "the records are in the files"
    log.config = replace(log.config, remote_storage_enable=False)
    assert log.delete_old_segments(0, 100, noted_log_start=0) == 0
    assert log.delete_old_segments(0, 100, noted_log_start=start) == before.index(start)
    assert (starts(log), bases(log)[0]) == ((start, start), start)


def test_what_is_not_in_the_bucket_or_not_stable_stays() -> None:
    log = tiered_log(Desk(), local_retention_bytes=0)
    second, active = log.segments[1].base_offset, log.segments[-1].base_offset
    assert log.local_retention_offset(0, 100) == active
    assert log.local_retention_offset(0, second) == second
    log.tiered_end_offset = active - 1
    assert log.local_retention_offset(0, 100) == log.segments[-2].base_offset
    log.tiered_end_offset = 0
    assert log.local_retention_offset(0, 100) == 0


def test_the_active_segment_stays_whatever_the_bucket_is_said_to_have() -> None:
    log = tiered_log(Desk(), local_retention_bytes=0)
    log.tiered_end_offset = 100
    assert log.local_retention_offset(0, 100) == log.segments[-1].base_offset
    assert log.delete_local_segments(100, 0) == 0


@pytest.mark.parametrize(
    ("config", "due_ms"),
    [
        ({"segment_ms": HOUR_MS}, HOUR_MS + 1),
        ({"local_retention_ms": HOUR_MS}, HOUR_MS + 3),
        ({"retention_ms": HOUR_MS}, HOUR_MS + 3),
        ({"retention_ms": HOUR_MS, "remote_log_copy_disable": True}, HOUR_MS + 3),
    ],
)
def test_the_active_segment_of_a_tiered_log_is_rolled_without_appends(
    config: dict[str, Any], due_ms: int
) -> None:
    """The timestamps are 0, 1 and 2.  Age counts from the newest one, ``segment.ms`` from the
    oldest one."""
    log = Desk().open(**TIERED, **config)
    fill(log, 3)
    assert not log.roll_expired(due_ms - 1, 3)
    assert log.roll_expired(due_ms, 3)
    assert bases(log) == [0, 3]
    assert not log.roll_expired(due_ms, 3), "an empty segment is not rolled"
    log.check_invariants()


def test_the_active_segment_is_rolled_for_local_retention_by_size_once_it_is_stable() -> None:
    log = Desk().open(**TIERED, local_retention_bytes=0)
    fill(log, 3)
    assert not log.roll_expired(0, 2)
    assert log.roll_expired(0, 3)
    log.tiered_end_offset = 3
    assert log.delete_local_segments(log.local_retention_offset(0, 3), 0) == 1
    assert (bases(log), starts(log)) == ([3], (0, 3))


@pytest.mark.parametrize("setting", ["segment_ms", "local_retention_ms", "retention_ms"])
def test_old_records_that_are_being_appended_are_not_cut_at_each_check(setting: str) -> None:
    """A backfill with the timestamps 0, 1, 2: the age of a segment counts from its first append."""
    log = Desk().open(**TIERED, **{setting: HOUR_MS})
    log.reconfigure(replace(log.config, segment_bytes=1_000_000))
    start_ms = 1000 * HOUR_MS
    rolled = []
    for minute in range(0, 130, 5):
        now_ms = start_ms + minute * HOUR_MS // 60
        put(log, log.log_end_offset, now_ms=now_ms)
        if log.roll_expired(now_ms, log.log_end_offset):
            rolled.append(minute)
    assert rolled == [65], "the next segment began at minute 70"
    assert log.roll_expired(start_ms + 3 * HOUR_MS, log.log_end_offset), "no record stays for ever"
    log.check_invariants()


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("setting", ["segment_ms", "local_retention_ms"])
def test_a_restart_does_not_delay_the_roll_of_the_active_segment(setting: str, clean: bool) -> None:
    desk = Desk()
    log = desk.open(**TIERED, **{setting: HOUR_MS})
    fill(log, 3)
    point = log.log_end_offset if clean else 0
    log.close(0, clean=clean)
    log = desk.open(recovery_point=point, clean=clean, now_ms=HOUR_MS)
    assert not log.roll_expired(HOUR_MS, 3)
    assert log.roll_expired(HOUR_MS + 3, 3)


def test_without_local_retention_each_check_rolls_what_was_appended_before_it() -> None:
    log = Desk().open(**TIERED, local_retention_ms=0)
    put(log, 1000, now_ms=1000)
    assert not log.roll_expired(1000, 1)
    assert log.roll_expired(1001, 1)
    put(log, 5, now_ms=2000)
    assert not log.roll_expired(2000, 2)
    assert log.roll_expired(2001, 2)


def test_no_segment_is_rolled_while_files_are_truncated_or_replaced_or_the_log_is_offline() -> None:
    log = Desk().open(**TIERED, segment_ms=HOUR_MS)
    fill(log, 3)
    log.begin_truncation(2)
    assert not log.roll_expired(2 * HOUR_MS, 3)
    log.end_truncation()
    assert log.begin_replacement()
    assert not log.roll_expired(2 * HOUR_MS, 3)
    log.end_replacement()
    log.fail(StorageError("the disk failed"))
    with pytest.raises(StorageError):
        log.roll_expired(2 * HOUR_MS, 3)
    assert bases(log) == [0]


def test_the_active_segment_of_other_logs_is_rolled_by_appends() -> None:
    log = Desk().open(segment_ms=HOUR_MS)
    fill(log, 3)
    assert not log.roll_expired(10 * HOUR_MS, 3)


@pytest.mark.parametrize("clean", [False, True])
def test_both_starts_survive_a_restart(clean: bool) -> None:
    desk = Desk()
    log = tiered_log(desk, local_retention_bytes=3000)
    offset = log.local_retention_offset(0, 100)
    log.delete_local_segments(offset, 0)
    log = reopen(desk, log, clean=clean)
    assert starts(log) == (0, offset)
    assert [(e.epoch, e.start_offset) for e in log.leader_epochs.entries] == [(0, 0), (4, 50)]
    log.check_invariants()


def test_a_crash_before_the_files_go_ends_the_deletion_at_the_next_start() -> None:
    desk = Desk()
    log = tiered_log(desk)
    third = log.segments[2].base_offset
    log.close(0, clean=False)
    log = desk.open(recovery_point=100, local_log_start_offset=third)
    assert starts(log) == (0, third)
    assert bases(log)[0] == third


def test_files_that_go_before_the_checkpoint_is_there_are_no_loss_of_the_log_start() -> None:
    """A crash can lose the checkpoint's file; the topic's setting tells that the log is tiered."""
    desk = Desk()
    log = tiered_log(desk)
    third = log.segments[2].base_offset
    log.delete_local_segments(third, 0)
    log.close(0, clean=False)
    assert starts(desk.open(recovery_point=100)) == (0, third)


def test_flushed_records_above_the_local_start_must_be_there() -> None:
    desk = Desk()
    log = tiered_log(desk)
    third = log.segments[2].base_offset
    log.delete_local_segments(third, 0)
    log.close(0, clean=False)
    desk.half.put(desk.path(f"{bases(log)[-1]:020d}.log"), b"")
    with pytest.raises(CorruptLogError, match="was flushed up to 100"):
        desk.open(recovery_point=100, local_log_start_offset=third)


def test_old_files_that_come_back_after_everything_was_deleted_are_no_loss() -> None:
    desk = Desk()
    log = tiered_log(desk)
    log.roll(0)
    log.tiered_end_offset = 100
    back = {name: desk.half.read(desk.path(name)) for name in desk.names(f"{0:019d}.log")}
    assert log.delete_local_segments(100, 0) > 1
    log.close(0, clean=False)
    for name in desk.names(".log"):
        desk.half.delete(desk.path(name))
    for name, data in back.items():
        desk.half.put(desk.path(name), data)
    log = desk.open(recovery_point=100, local_log_start_offset=100)
    assert (*starts(log), log.log_end_offset) == (0, 100, 100)
    assert log.leader_epochs.entries == (EpochEntry(0, 0), EpochEntry(4, 50))
    assert log.has_state(100)
    log.check_invariants()


@pytest.mark.parametrize("lost", ["00100.snapshot", "leader-epoch-checkpoint", "recovery point"])
@pytest.mark.parametrize("comes_back", [True, False])
def test_a_log_without_the_state_at_its_local_start_starts_at_its_log_start(
    lost: str, comes_back: bool
) -> None:
    desk = Desk()
    log = tiered_log(desk)
    log.roll(0)
    log.tiered_end_offset = 100
    first = {name: desk.half.read(desk.path(name)) for name in desk.names(f"{0:019d}.log")}
    log.delete_local_segments(100, 0)
    log.close(0, clean=False)
    for name in [*desk.names(".log"), *desk.names(lost)]:
        desk.half.delete(desk.path(name))
    for name, data in first.items() if comes_back else ():
        desk.half.put(desk.path(name), data)
    point = 99 if lost == "recovery point" else 100
    log = desk.open(recovery_point=point, local_log_start_offset=100)
    for _ in range(2):
        assert (*starts(log), log.log_end_offset, log.recovery_point) == (0, 0, 0, 0)
        assert log.leader_epochs.entries == ()
        assert desk.names(".snapshot") == []
        log.check_invariants()
        log = reopen(desk, log)


def test_deleted_records_move_the_log_start_inside_either_part() -> None:
    log = tiered_log(Desk())
    third, fourth = (log.segments[index].base_offset for index in (2, 3))
    log.delete_local_segments(third, 0)
    assert log.advance_log_start(third - 1)
    assert starts(log) == (third - 1, third)
    assert log.delete_old_segments(0, 100) == 0
    assert log.advance_log_start(fourth + 1)
    assert starts(log) == (fourth + 1, fourth + 1)
    assert log.delete_old_segments(0, 100) == 1
    assert bases(log)[0] == fourth
    log.check_invariants()


def test_a_truncation_above_the_local_start_changes_neither_start() -> None:
    log = tiered_log(Desk())
    third = log.segments[2].base_offset
    log.delete_local_segments(third, 0)
    log.begin_truncation(third + 1)
    assert log.truncate_to(third + 1, 0)
    log.end_truncation()
    assert (*starts(log), log.log_end_offset) == (0, third, third + 1)
    log.check_invariants()


def test_a_truncation_below_the_local_start_leaves_the_bucket_alone() -> None:
    desk = Desk()
    log = tiered_log(desk)
    third = log.segments[2].base_offset
    log.delete_local_segments(third, 0)
    log.begin_truncation(third - 2)
    assert starts(log) == (0, third - 2)
    log.truncate_to(third - 2, 0)
    log.end_truncation()
    assert (*starts(log), log.log_end_offset) == (0, third - 2, third - 2)
    log.check_invariants()
    assert starts(reopen(desk, log)) == (0, third - 2)


def test_a_truncation_to_the_local_start_keeps_the_state_there() -> None:
    desk = Desk()
    log = tiered_log(desk)
    third = log.segments[2].base_offset
    log.delete_local_segments(third, 0)
    log.begin_truncation(third)
    assert (*starts(log), log.recovery_point, log.tiered_end_offset) == (0, third, third, third)
    assert log.truncate_to(third, 0)
    log.end_truncation()
    for _ in range(2):
        assert (*starts(log), log.log_end_offset) == (0, third, third)
        assert log.leader_epochs.entries == (EpochEntry(0, 0),)
        assert log.has_state(third)
        log.check_invariants()
        log = reopen(desk, log)


def test_an_abandoned_truncation_gives_both_starts_back() -> None:
    log = tiered_log(Desk())
    third = log.segments[2].base_offset
    log.delete_local_segments(third, 0)
    log.begin_truncation(5)
    assert starts(log) == (0, 5)
    log.end_truncation()
    assert starts(log) == (0, third)


def test_a_log_may_start_in_the_middle_of_what_is_in_the_bucket() -> None:
    desk = Desk()
    log = tiered_log(desk)
    log.begin_truncation(70, fully=True)
    log.truncate_fully_and_start_at(70, 0, log_start_offset=10)
    log.end_truncation()
    assert (*starts(log), log.log_end_offset) == (10, 70, 70)
    assert starts(reopen(desk, log)) == (10, 70)


def test_files_below_the_log_start_stay_until_the_checkpoint_has_it() -> None:
    """Otherwise the deleted records would count as records in the bucket after a crash."""
    desk = Desk()
    log = tiered_log(desk)
    third, fourth, fifth = (log.segments[index].base_offset for index in (2, 3, 4))
    log.delete_local_segments(third, 0)
    checkpoint = noted(log)
    assert log.advance_log_start(fifth)
    assert log.delete_old_segments(0, 100, noted_log_start=checkpoint[1]) == 0
    assert log.delete_old_segments(0, 100, noted_log_start=fourth) == 1
    assert bases(log)[0] == fourth
    log.check_invariants()
    assert log.delete_old_segments(0, 100, noted_log_start=noted(log)[1]) == 1
    assert starts(reopen(desk, log)) == (fifth, fifth)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_crash_around_a_full_truncation_leaves_a_log_that_starts_where_its_leaders_does(
    is_dropped: bool,
) -> None:
    """Records below had been deleted: they must not count as records in the bucket."""
    desk = Desk()
    log = tiered_log(desk)
    log.delete_local_segments(log.segments[2].base_offset, 0)
    log.begin_truncation(110, fully=True, log_starts_there=True)
    checkpoint = noted(log)
    if is_dropped:
        log.truncate_fully_and_start_at(110, 0)
    log = open_with(desk, checkpoint)
    assert (*starts(log), log.log_end_offset) == (110, 110, 110)
    log.check_invariants()


def test_a_full_truncation_that_is_abandoned_notes_no_later_log_start() -> None:
    log = tiered_log(Desk())
    third = log.segments[2].base_offset
    log.delete_local_segments(third, 0)
    before = noted(log)
    log.begin_truncation(110, fully=True, log_starts_there=True)
    log.end_truncation()
    assert noted(log) == before


def test_a_topic_that_is_no_longer_tiered_starts_with_its_files_after_a_deletion() -> None:
    """The limits are those of the whole log, so the bucket's older records have expired too."""
    log = tiered_log(Desk())
    third, fourth = (log.segments[index].base_offset for index in (2, 3))
    log.delete_local_segments(third, 0)
    log.reconfigure(replace(Desk().config, retention_bytes=log.size - 1))
    assert log.delete_old_segments(0, 100) == 0
    assert starts(log) == (0, third)
    log.reconfigure(replace(Desk().config, retention_bytes=log.size - log.segments[0].size))
    assert log.delete_old_segments(0, 100) == 1
    assert starts(log) == (fourth, fourth)


def test_a_failed_deletion_hides_the_records_and_is_done_again() -> None:
    half = MemoryBackend()
    desk = Desk(half=half)
    log = tiered_log(desk)
    third = log.segments[2].base_offset
    half.faults.fail_next(operation="rename")
    with pytest.raises(StorageError):
        log.delete_local_segments(third, 0)
    assert starts(log) == (0, third)
    assert log.delete_local_segments(third, 0) == 2
    log.check_invariants()


def test_no_segment_is_deleted_during_a_truncation() -> None:
    log = tiered_log(Desk())
    third = log.segments[2].base_offset
    log.begin_truncation(90)
    assert log.delete_local_segments(third, 0) == 0
    assert starts(log) == (0, 0)
