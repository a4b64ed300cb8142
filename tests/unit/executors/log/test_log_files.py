"""Open files stay few, whatever is read and written."""

from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.executors.log import file_cache
from sparklog.executors.log.file_cache import FileCache
from sparklog.executors.log.log import Log
from sparklog.executors.partition.producer_state import ProducerStateManager
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition
from sparklog.wire.records.builder import decode_records
from tests.support.descriptors import open_files_in
from tests.unit.executors.log.log_fixtures import (
    PARTITION_DIR,
    SMALL,
    Desk,
    batch,
    fill,
    first_since,
    headers_of,
    read_all,
)


def open_log(half: LocalBackend, number: int, files: FileCache) -> Log:
    partition = TopicPartition("many", number)
    return Log.open(
        half,
        str(partition),
        topic_partition=partition,
        config=SMALL,
        files=files,
        producers=ProducerStateManager(partition),
        now_ms=0,
    )


def test_many_logs_share_few_descriptors(tmp_path: Path) -> None:
    half = LocalBackend(tmp_path)
    files = FileCache(12)
    logs = [open_log(half, number, files) for number in range(40)]
    assert open_files_in(tmp_path) == 0
    stored: list[bytes] = [b""] * len(logs)
    for turn in range(30):
        for number, log in enumerate(logs):
            data = batch(turn, (turn + number,))
            log.append([data], headers_of(data), 0)
            stored[number] += data
            assert len(files) <= 12
    assert open_files_in(tmp_path) <= 12
    for number, log in enumerate(logs):
        assert read_all(log) == decode_records(stored[number])
        assert first_since(log, 5 + number).offset == 5  # type: ignore[union-attr]
    assert open_files_in(tmp_path) <= 12
    for log in logs:
        log.close(0)
    assert (len(files), open_files_in(tmp_path)) == (0, 0)


def test_the_least_recently_used_is_closed() -> None:
    half = MemoryBackend()
    for name in "abcd":
        half.put(name, b"1234")
    files = FileCache(3)
    for name in "abcab":
        files.handle(half, name, 4)
    assert (len(files), files.opened_count) == (3, 3)
    files.handle(half, "d", 4)
    assert ["c" in files, "a" in files, "b" in files, "d" in files] == [False, True, True, True]
    files.drop("a")
    files.drop("a")
    assert len(files) == 2
    files.close()
    assert len(files) == 0


def test_idle_files_are_closed_in_rounds_but_some_stay_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(file_cache, "KEPT_IDLE", 2)
    monkeypatch.setattr(file_cache, "CLOSED_AT_ONCE", 2)
    half = MemoryBackend()
    for name in "abcdefg":
        half.put(name, b"1234")
    files = FileCache(7)

    def use(names: str) -> None:
        for name in names:
            files.handle(half, name, 4)

    def is_open() -> str:
        return "".join(name for name in "abcdefg" if name in files)

    use("abcdefg")
    assert (files.close_idle(), is_open()) == (False, "abcdefg")  # all of them were used
    use("bd")
    assert (files.close_idle(), is_open()) == (True, "bdefg")
    assert (files.close_idle(), is_open()) == (True, "bdg")
    assert (files.close_idle(), is_open()) == (False, "bd")
    assert (files.close_idle(), is_open()) == (False, "bd")
    use("abcdefg")
    assert len(files) == 7


def test_the_mark_between_rounds_takes_no_room() -> None:
    half = MemoryBackend()
    for name in "abcd":
        half.put(name, b"1234")
    files = FileCache(2)
    for name in "abcd":
        files.handle(half, name, 4)
        files.close_idle()
        assert len(files) <= 2
    assert ["c" in files, "d" in files] == [True, True]


def test_a_file_that_shrank_under_the_log_is_noticed() -> None:
    desk = Desk()
    log = desk.open()
    fill(log, 5)
    name = desk.path(f"{0:020d}.log")
    desk.files.close()
    desk.half.truncate(name, 10)
    with pytest.raises(StorageError, match="something else cut it"):
        log.read(0, 100, end_offset=5)


@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_log_does_not_touch_the_files_of_its_successor(clean: bool) -> None:
    desk = Desk()
    closed = desk.open()
    fill(closed, 5)
    closed.close(0, clean=clean)
    desk.half.remove_folder(PARTITION_DIR)
    successor = desk.open()
    stored = b"".join(fill(successor, 9))
    with pytest.raises(StorageError, match="was closed"):
        closed.read(0, 100, end_offset=5)
    assert desk.half.read(desk.path(f"{0:020d}.log")) == stored


def test_the_rest_of_a_failed_write_is_cut_off_when_the_file_is_opened_again() -> None:
    desk = Desk()
    log = desk.open()
    stored = b"".join(fill(log, 2))
    name = desk.path(f"{0:020d}.log")
    desk.files.close()
    desk.half.append(name, b"rest of a write that failed")
    stored += b"".join(fill(log, 1))
    assert desk.half.read(name) == stored


def test_the_rest_of_a_failed_write_is_cut_off_before_a_segment_is_sealed() -> None:
    desk = Desk()
    log = desk.open()
    stored = b"".join(fill(log, 2))
    name = desk.path(f"{0:020d}.log")
    desk.half.append(name, b"rest of a write that failed")
    log.roll(0)
    fill(log, 1)
    assert desk.half.read(name) == stored
    log.close(0)
    assert [record.offset for record in read_all(desk.open(clean=True))] == [0, 1, 2]
