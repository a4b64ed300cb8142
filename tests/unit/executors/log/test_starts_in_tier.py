"""Logs that start anew where the bucket has all earlier records, with the state from there."""

import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.errors import KafkaError, StorageError
from sparklog.executors.log import EpochEntry, Log, TieredStart
from sparklog.executors.log.names import FULL_TRUNCATION
from sparklog.executors.log.presence import require_present
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.executors.log.log_fixtures import (
    PARTITION_DIR,
    TP,
    Desk,
    batch,
    fill,
    headers_of,
    put,
    read_all,
)

#: Where the whole log and its files start, in these tests.
LOG_START, START = 20, 500
PRODUCER = 7
EPOCHS = (EpochEntry(0, 0), EpochEntry(2, 30), EpochEntry(5, 400), EpochEntry(6, 500))
#: The epochs below the start, cut at the log start.
KEPT_EPOCHS = [(0, LOG_START), (2, 30), (5, 400)]


class PowerCutError(Exception):
    """The machine stops."""


def snapshot() -> bytes:
    """The state of one producer whose last batch is the last below the start."""
    producers = ProducerStateManager(TP)
    (header,) = headers_of(batch(START - 1, producer_id=PRODUCER, base_sequence=3))
    producers.replay(header)
    return producers.to_snapshot()


def start() -> TieredStart:
    return TieredStart(START, LOG_START, EPOCHS, snapshot())


def tiered_log(desk: Desk) -> Log:
    """A log of 60 records, the last from another producer, that ends below the new start."""
    log = desk.open(remote_storage_enable=True)
    fill(log, 59)
    (header,) = headers_of(put(log, 59, producer_id=8, base_sequence=0))
    desk.producers.replay(header)
    log.flush(0)
    return log


def state_of(desk: Desk, log: Log) -> tuple[int, int, int, list[tuple[int, int]], list[int]]:
    """Log start, local log start, end, epochs, producers."""
    epochs = [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]
    ends = log.log_start_offset, log.local_log_start_offset, log.log_end_offset
    return *ends, epochs, list(desk.producers.entries)


BEFORE = (0, 0, 60, [(0, 0)], [8])
AFTER = (LOG_START, START, START, KEPT_EPOCHS, [PRODUCER])
DONE = (0, *AFTER[1:])
EMPTY = (LOG_START, LOG_START, LOG_START, [], [])


def move(log: Log) -> None:
    log.begin_truncation(START, fully=True)
    try:
        log.start_in_tier(start(), 0)
    finally:
        log.end_truncation()


@pytest.mark.parametrize("clean", [False, True])
def test_a_log_starts_anew_with_the_state_of_the_bucket(clean: bool) -> None:
    desk = Desk()
    log = tiered_log(desk)
    assert state_of(desk, log) == BEFORE
    move(log)
    assert state_of(desk, log) == AFTER
    assert (log.recovery_point, log.size, log.recovered_from) == (START, 0, 0)
    (entry,) = desk.producers.entries.values()
    assert (entry.last_sequence, entry.batches[-1].last_offset) == (3, START - 1)
    put(log, 0, leader_epoch=6)
    log.check_invariants()
    log.flush(0)
    point = log.recovery_point
    log.close(0, clean=clean)
    log = desk.open(
        recovery_point=point,
        log_start_offset=LOG_START,
        local_log_start_offset=START,
        clean=clean,
    )
    expected = (LOG_START, START, START + 1, [*KEPT_EPOCHS, (6, START)], [PRODUCER])
    assert state_of(desk, log) == expected
    assert [record.offset for record in read_all(log, START)] == [START]
    log.check_invariants()


def test_a_log_whose_directory_has_vanished_belongs_to_its_topic_again(tmp_path: Path) -> None:
    half = LocalBackend(tmp_path)
    desk = Desk(half=half, topic_id=UUID(int=7))
    log = tiered_log(desk)
    shutil.rmtree(tmp_path / PARTITION_DIR)
    move(log)
    require_present(half, PARTITION_DIR)
    log.close(0)
    log = desk.open(log_start_offset=LOG_START, local_log_start_offset=START)
    assert (log.topic_id, state_of(desk, log)) == (UUID(int=7), AFTER)


def test_a_start_without_known_state_begins_without_it() -> None:
    desk = Desk()
    log = tiered_log(desk)
    log.begin_truncation(START, fully=True)
    log.start_in_tier(TieredStart(START, LOG_START, (), None), 0)
    log.end_truncation()
    assert state_of(desk, log) == (LOG_START, START, START, [], [])
    assert desk.names(".snapshot") == []


def test_a_crash_never_leaves_the_files_without_the_state_below_them() -> None:
    found = []
    for survived in range(100):
        half = MemoryBackend()
        desk = Desk(half=half)
        log = tiered_log(desk)
        log.begin_truncation(START, fully=True)
        # The checkpoint on the disk, which is written before the truncation.
        point = log.recovery_point
        assert (log.log_start_offset, log.local_log_start_offset) == (0, 0)
        left = survived

        def count(operation: str, where: str) -> None:
            nonlocal left
            if operation in ("put", "rename", "delete", "truncate", "flush_folder", "open"):
                if not left:
                    raise PowerCutError
                left -= 1

        half.faults.slow = count
        done = False
        try:
            log.start_in_tier(start(), 0)
            done = True
        except PowerCutError:
            pass
        half.faults.slow = None
        half.crash(keep_unflushed=survived % 2 and 1 << 30, lose_names=survived % 3 == 0)
        log = desk.open(recovery_point=point)
        state = state_of(desk, log)
        log.check_invariants()
        assert not half.exists(desk.path(FULL_TRUNCATION))
        if done:
            assert state == DONE, "the checkpoint does not tell the new log start yet"
            break
        found.append(state)
        # What follows goes on from there.
        put(log, 0, leader_epoch=6)
        log.flush(0)
        half.crash()
        again = desk.open(recovery_point=log.log_end_offset)
        assert again.log_end_offset == log.log_end_offset
        again.check_invariants()
    assert all(state in (BEFORE, EMPTY, DONE) for state in found), found
    assert found.count(EMPTY) > 5
    assert found.count(BEFORE) >= 1


@pytest.mark.parametrize("operation", ["put", "delete", "open", "flush_folder"])
def test_a_failed_start_takes_the_log_offline_and_the_next_one_begins_below(
    operation: str,
) -> None:
    half = MemoryBackend()
    desk = Desk(half=half)
    log = tiered_log(desk)
    log.begin_truncation(START, fully=True)
    under = {"put": "snapshot"}.get(operation, "")
    half.faults.fail_next(operation=operation, under=under)  # type: ignore[arg-type]
    with pytest.raises(StorageError) as failure:
        log.start_in_tier(start(), 0)
    log.end_truncation()
    assert log.offline is failure.value
    with pytest.raises((StorageError, KafkaError)):
        put(log, 0)
    log.close(0, clean=False)
    log = desk.open(recovery_point=0)
    assert state_of(desk, log) == EMPTY
    log.check_invariants()


def test_a_damaged_producer_snapshot_takes_the_log_offline() -> None:
    """Whoever starts the log checks the snapshot before; nothing goes on without it."""
    desk = Desk()
    log = tiered_log(desk)
    damaged = bytearray(snapshot())
    damaged[-1] ^= 1
    log.begin_truncation(START, fully=True)
    with pytest.raises(StorageError, match=r"00000500\.snapshot: "):
        log.start_in_tier(start()._replace(producer_snapshot=bytes(damaged)), 0)
    log.end_truncation()
    assert log.offline is not None
    log.close(0, clean=False)
    assert state_of(desk, desk.open(recovery_point=0)) == EMPTY


def test_a_log_that_had_gaps_starts_anew_too() -> None:
    desk = Desk()
    desk.config = replace(desk.config, cleanup_policy=("compact",))
    log = tiered_log(desk)
    log.gaps.set_before(headers_of(batch(99)), 60)
    assert log.gaps.is_set
    move(log)
    assert state_of(desk, log) == AFTER
    assert not desk.half.exists(desk.path(FULL_TRUNCATION))
