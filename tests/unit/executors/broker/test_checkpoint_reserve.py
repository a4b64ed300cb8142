"""Checkpoints on a full disk: they are written, and no crash mixes them up."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

from sparklog.errors import DecodeError, StorageError
from sparklog.executors.log_dirs import checkpoint_reserve
from sparklog.executors.log_dirs.broker_dir import LOG_STARTS, BrokerDir, LogOffsets
from sparklog.executors.log_dirs.checkpoint_reserve import (
    RESERVE_FILE,
    CheckpointReserve,
    decode_slot,
    encode_slot,
)
from sparklog.storage_backends.base import storage_error
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition
from tests.support.logged import messages_of

RESERVE = f"broker-1/{RESERVE_FILE}"
TP = TopicPartition("t", 0)


def take(half: MemoryBackend | LocalBackend) -> BrokerDir:
    return BrokerDir.take(half, "broker-1", cluster_id="c", node_id=1, new=True, new_id=UUID(int=1))


def taken_again(log_dir: BrokerDir) -> BrokerDir:
    log_dir.release()
    half = log_dir.half
    assert isinstance(half, MemoryBackend | LocalBackend)
    return take(half)


def offsets(number: int, *, logs: int = 1) -> LogOffsets:
    """Offsets that are all the same number."""
    same = {TopicPartition("t", partition): number for partition in range(logs)}
    return LogOffsets(recovery_points=same, log_starts=same, local_log_starts=same)


def checkpoint_files(half: MemoryBackend) -> list[str]:
    return [name for name in half.list("broker-1") if name.endswith("-checkpoint")]


@pytest.fixture
def half() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def full(half: MemoryBackend) -> Iterator[BrokerDir]:
    """A log directory on a disk that is full since it held ``offsets(1)``."""
    log_dir = take(half)
    log_dir.write_checkpoints(offsets(1))
    half.disk.fill_after(0)
    yield log_dir
    log_dir.release()


def test_a_full_disk_takes_checkpoints_again_and_again(
    half: MemoryBackend, full: BrokerDir
) -> None:
    for number in range(2, 6):
        full.write_checkpoints(offsets(number))
        assert checkpoint_files(half) == []
        half.disk.fill_after(0)
        full = taken_again(full)
        assert full.noted == offsets(number)


def test_no_space_is_given_to_others(half: MemoryBackend, full: BrokerDir) -> None:
    """Records would take it before the next checkpoint."""
    for number in range(2, 6):
        full.write_checkpoints(offsets(number))
        half.disk.fill_after(0)
    assert full.half.size(RESERVE) == 2 * 4096


def test_checkpoints_are_in_their_files_again_once_there_is_room(
    half: MemoryBackend, full: BrokerDir
) -> None:
    full.write_checkpoints(offsets(2))
    half.faults.clear()
    full.write_checkpoints(offsets(3))
    assert len(checkpoint_files(half)) == 3
    assert set(half.read(RESERVE)) == {0xFF}
    for name in checkpoint_files(half):  # as an operator does who wants a recovery of everything
        half.delete(f"broker-1/{name}")
    assert taken_again(full).noted == LogOffsets()


def test_a_file_counts_more_than_the_reserve(half: MemoryBackend, full: BrokerDir) -> None:
    """There was room for checkpoints, but not for another reserve."""
    full.write_checkpoints(offsets(2))
    half.disk.fill_after(100)
    full.write_checkpoints(offsets(3))
    assert len(checkpoint_files(half)) == 3
    full = taken_again(full)
    assert full.noted == offsets(3)
    half.disk.fill_after(0)
    full.write_checkpoints(offsets(4))
    assert taken_again(full).noted == offsets(4)


def test_a_quota_that_is_used_up_is_a_full_disk(half: MemoryBackend) -> None:
    log_dir = take(half)
    log_dir.write_checkpoints(offsets(1))
    used_up = storage_error("write", "x", OSError(errno.EDQUOT, "quota"))
    with patch.object(half, "put", side_effect=used_up):
        log_dir.write_checkpoints(offsets(2))
    assert taken_again(log_dir).noted == offsets(2)


def test_other_errors_are_no_reason_to_use_the_reserve(half: MemoryBackend) -> None:
    log_dir = take(half)
    log_dir.write_checkpoints(offsets(1))
    half.faults.read_only = True
    with pytest.raises(StorageError):
        log_dir.write_checkpoints(offsets(2))
    half.faults.clear()
    half.faults.fail_next(operation="put")
    with pytest.raises(StorageError):
        log_dir.write_checkpoints(offsets(2))
    assert taken_again(log_dir).noted == offsets(1)


class PowerLostError(Exception):
    """The power fails before an operation."""


class PowerLoss:
    """Lets the power fail after so many operations that change a disk."""

    def __init__(self, operations: int) -> None:
        self.left = operations

    def __call__(self, operation: str, path: str) -> None:
        del path
        if operation in ("put", "overwrite", "flush", "delete", "flush_folder"):
            self.left -= 1
            if self.left < 0:
                raise PowerLostError


@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.parametrize("kept", [0, 30, 1 << 20])
def test_a_crash_leaves_old_checkpoints_or_new_ones(is_used: bool, kept: int) -> None:
    """As for files, a recovery point is never found without the log start that moved it."""
    found: list[tuple[int, int, int]] = []
    while True:
        half = MemoryBackend()
        log_dir = take(half)
        for number in (1, 2) if is_used else (2,):
            log_dir.write_checkpoints(offsets(number))
            half.disk.fill_after(0)
        half.faults.slow = loss = PowerLoss(len(found))
        with suppress(PowerLostError):
            log_dir.write_checkpoints(offsets(3))
        half.faults.clear()
        half.crash(keep_unflushed=kept, lose_names=True)
        noted = take(half).noted
        found.append((noted.log_starts[TP], noted.local_log_starts[TP], noted.recovery_points[TP]))
        if loss.left >= 0:
            break
    assert found == sorted(found)
    assert set(found) <= {(2, 2, 2), (3, 2, 2), (3, 3, 2), (3, 3, 3)}
    assert (found[0], found[-1]) == ((2, 2, 2), (3, 3, 3))
    assert len(found) == (4 if is_used else 10), "nothing is left to delete from the second on"


def test_a_file_from_before_a_crash_does_not_hold_back_a_log_start() -> None:
    """There was room for the log starts for a moment, and two crashes follow."""
    found: list[tuple[int, int, int]] = []
    while True:
        half = MemoryBackend()
        log_dir = take(half)
        log_dir.write_checkpoints(offsets(1))
        half.disk.fill_after(0)
        log_dir.write_checkpoints(offsets(2))
        half.disk.fill_after(10_000)
        half.faults.slow = PowerLoss(1)
        with pytest.raises(PowerLostError):
            log_dir.write_checkpoints(offsets(3))
        half.faults.clear()
        half.crash()
        log_dir = take(half)
        assert checkpoint_files(half) == [LOG_STARTS]
        half.disk.fill_after(0)
        half.faults.slow = loss = PowerLoss(len(found))
        with suppress(PowerLostError):
            log_dir.write_checkpoints(offsets(4))
        half.faults.clear()
        half.crash(keep_unflushed=0, lose_names=True)
        noted = take(half).noted
        found.append((noted.log_starts[TP], noted.local_log_starts[TP], noted.recovery_points[TP]))
        if loss.left >= 0:
            break
    assert set(found) == {(3, 2, 2), (4, 4, 4)}
    assert found == sorted(found)


def test_a_write_that_failed_is_made_again_in_the_same_slot(
    half: MemoryBackend, full: BrokerDir
) -> None:
    full.write_checkpoints(offsets(2))
    half.disk.fill_after(0)
    for _ in range(3):
        half.faults.fail_next(operation="flush", under=RESERVE_FILE)
        with pytest.raises(StorageError):
            full.write_checkpoints(offsets(3))
    half.crash(keep_unflushed=20)
    full = take(half)
    assert full.noted == offsets(2)
    half.disk.fill_after(0)
    full.write_checkpoints(offsets(3))
    assert taken_again(full).noted == offsets(3)


def test_the_reserve_grows_with_the_checkpoints(half: MemoryBackend) -> None:
    log_dir = take(half)
    for logs in (1, 100, 1000, 900):
        log_dir.write_checkpoints(offsets(9, logs=logs))
        half.disk.fill_after(0)
        log_dir.write_checkpoints(offsets(10**5, logs=logs))
        half.faults.clear()
    log_dir = taken_again(log_dir)
    assert log_dir.noted == offsets(10**5, logs=900)
    assert half.size(RESERVE) < 200_000


def test_checkpoints_that_do_not_fit_the_reserve_are_refused(
    half: MemoryBackend, full: BrokerDir
) -> None:
    with pytest.raises(StorageError) as caught:
        full.write_checkpoints(offsets(2, logs=1000))
    assert caught.value.is_full
    assert taken_again(full).noted == offsets(1)


def test_a_log_directory_without_a_reserve_works_and_gets_one_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    half = MemoryBackend()
    take(half).release()
    half.delete(RESERVE)
    half.disk.fill_after(1000)
    log_dir = take(half)
    log_dir.write_checkpoints(offsets(1))
    assert not half.exists(RESERVE)
    (told, again) = messages_of(caplog, checkpoint_reserve)
    assert told == again
    assert told.startswith("no space is reserved for the checkpoints: cannot write to memory://")
    half.disk.fill_after(0)
    with pytest.raises(StorageError):
        log_dir.write_checkpoints(offsets(2))
    half.faults.clear()
    log_dir.write_checkpoints(offsets(3))
    half.disk.fill_after(0)
    log_dir.write_checkpoints(offsets(4))
    assert taken_again(log_dir).noted == offsets(4)


def test_the_reserve_takes_its_space_beforehand(tmp_path: Path) -> None:
    half = LocalBackend(tmp_path)
    take(half).release()
    status = os.stat(tmp_path / RESERVE)
    assert status.st_blocks * 512 >= status.st_size == 2 * 4096
    reserve = CheckpointReserve(half, "broker-1")
    reserve.load()
    assert reserve.write({"a-checkpoint": b"1"})
    assert reserve.write({"a-checkpoint": b"2"})
    after = os.stat(tmp_path / RESERVE)
    assert (after.st_ino, after.st_size) == (status.st_ino, status.st_size)
    reserve = CheckpointReserve(half, "broker-1")
    reserve.load()
    assert reserve.contents == {"a-checkpoint": b"2"}


@pytest.mark.parametrize("content", [b"", b"\n", b"x" * 4097])
def test_a_reserve_that_cannot_be_read_holds_nothing(half: MemoryBackend, content: bytes) -> None:
    log_dir = take(half)
    log_dir.write_checkpoints(offsets(1))
    half.put(RESERVE, content)
    log_dir = taken_again(log_dir)
    assert log_dir.noted == offsets(1)
    log_dir.write_checkpoints(offsets(2))
    half.disk.fill_after(0)
    log_dir.write_checkpoints(offsets(3))
    assert taken_again(log_dir).noted == offsets(3)


def test_a_slot() -> None:
    checkpoints = {"a-checkpoint": b"0\n1\nt 0 7\n", "empty": b"", "b": b"\n"}
    slot = encode_slot(5, checkpoints)
    assert decode_slot(slot + b"\xff" * 100) == (5, checkpoints)
    for damaged in (slot[:-1], slot[:7], b"", b"\0" * 100, slot[:-1] + b"x"):
        with pytest.raises(DecodeError):
            decode_slot(damaged)
