"""Large appends that nobody reads along: which way they take, and that all bytes are there."""

import errno
import fcntl
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.storage_backends.base import Buffer, FileHalf
from sparklog.storage_backends.large_writes import (
    LARGE_BYTES,
    UNREAD_BYTES,
    FasterWay,
    LargeWrites,
)
from sparklog.storage_backends.local_files import LocalFile

PAGE = 4096
MEBIBYTE = 1024 * 1024


class Always:
    """A way that knows what it wants."""

    def __init__(self, direct: bool) -> None:
        self.direct = direct
        self.taken: list[bool] = []

    def is_direct(self) -> bool:
        return self.direct

    def took(self, direct: bool, size: int, seconds: float) -> None:
        self.taken.append(direct)


@dataclass
class Calls:
    """What ``os.pwrite`` was asked for: (position, size, whether directly), and how it answers."""

    made: list[tuple[int, int, bool]] = field(default_factory=list)
    answer: Callable[[bool], OSError | int | None] = lambda direct: None

    @property
    def direct(self) -> list[tuple[int, int]]:
        return [(position, size) for position, size, direct in self.made if direct]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    found = Calls()
    pwrite = os.pwrite

    def spied(descriptor: int, data: Buffer, position: int) -> int:
        direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        found.made.append((position, len(data), direct))
        answer = found.answer(direct)
        if isinstance(answer, OSError):
            raise answer
        return pwrite(descriptor, data if answer is None else data[:answer], position)

    monkeypatch.setattr(os, "pwrite", spied)
    return found


def opened(folder: Path, way: Always, *, must_be_able: bool = True) -> LocalFile:
    """An empty file that takes large appends as ``way`` says."""
    path = str(folder / "0.log")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    if must_be_able:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_DIRECT))
        except OSError as error:
            os.close(descriptor)
            pytest.skip(f"the file system of {folder} has no direct writes: {error}")
    return LocalFile(path, descriptor, LargeWrites(way))


def cut(data: bytes, random_source: random.Random) -> Sequence[Buffer]:
    """The same bytes in a few buffers of different types."""
    places = sorted(random_source.sample(range(len(data)), 3))
    first, second, third, fourth = (
        data[begin:end] for begin, end in zip([0, *places], [*places, len(data)], strict=True)
    )
    return [first, bytearray(second), memoryview(third), b"", fourth]


def unread(file: LocalFile) -> bytes:
    """Make the file long enough for appends to count as unread."""
    data = os.urandom(UNREAD_BYTES + 17)
    assert file.writev([data]) == len(data)
    return data


# the choice


def asked(way: FasterWay, count: int, direct_s: float, cached_s: float) -> list[bool]:
    """The next choices, when appends of 1,000 bytes take so long."""
    chosen = []
    for _ in range(count):
        direct = way.is_direct()
        way.took(direct, 1000, direct_s if direct else cached_s)
        chosen.append(direct)
    return chosen


def test_both_ways_are_measured_before_one_is_chosen() -> None:
    assert asked(FasterWay(), 8, 1.0, 9.0) == [True, False] * 4


@pytest.mark.parametrize(("direct_s", "cached_s", "direct"), [(1, 4, True), (1.9, 1, True),
                                                             (2.1, 1, False)])  # fmt: skip
def test_the_direct_way_is_taken_while_it_is_not_twice_as_slow(
    direct_s: float, cached_s: float, direct: bool
) -> None:
    way = FasterWay()
    asked(way, 8, direct_s, cached_s)
    later = asked(way, 256, direct_s, cached_s)
    # The other one is looked at again from time to time.
    assert later.count(not direct) == 4


def test_the_choice_follows_a_disk_that_becomes_slow_and_fast_again() -> None:
    way = FasterWay()
    asked(way, 16, 1.0, 1.0)
    assert asked(way, 64, 30.0, 1.0)[-40:].count(True) <= 1
    assert asked(way, 64 * 40, 0.5, 1.0)[-40:].count(True) >= 39


# what is written


@pytest.mark.parametrize("seed", range(6))
def test_bytes_are_the_same_whichever_way_they_went(
    tmp_path: Path, calls: Calls, seed: int
) -> None:
    source = random.Random(seed)
    file = opened(tmp_path, Always(direct=True))
    model = bytearray(unread(file))
    for _ in range(12):
        size = source.choice(
            [1, PAGE, LARGE_BYTES - 1, LARGE_BYTES, source.randrange(3 * MEBIBYTE)]
        )
        data = source.randbytes(max(4, size))
        assert file.writev(cut(data, source)) == len(data)
        model += data
        if source.random() < 0.2:
            model = model[: source.randrange(UNREAD_BYTES, len(model))]
            file.truncate(len(model))
        assert file.size() == len(model)
    assert calls.direct
    assert Path(file.path).read_bytes() == model
    assert file.read(0, len(model)) == model


def test_only_whole_pages_go_directly_and_in_the_order_of_the_file(
    tmp_path: Path, calls: Calls
) -> None:
    file = opened(tmp_path, Always(direct=True))
    begin = len(unread(file))
    end = begin + 2 * MEBIBYTE + 5
    file.writev([os.urandom(2 * MEBIBYTE + 5)])
    first_page = begin + PAGE - 17
    last_page = end // PAGE * PAGE
    step = MEBIBYTE
    assert calls.made == [
        (begin, first_page - begin, False),
        (first_page, step, True),
        (first_page + step, last_page - first_page - step, True),
        (last_page, end - last_page, False),
    ]
    assert (first_page % PAGE, last_page % PAGE) == (0, 0)


def test_who_reads_along_keeps_the_page_cache(tmp_path: Path) -> None:
    way = Always(direct=True)
    file = opened(tmp_path, way)
    large = [os.urandom(MEBIBYTE)]
    for _ in range(8):
        file.writev(large)
    assert way.taken == []
    file.writev(large)
    assert way.taken == [True]
    file.region(file.size() - 100, 100).release()
    file.writev(large)
    file.read(0, 10)
    file.writev(large)
    assert way.taken == [True]
    for _ in range(7):
        file.writev(large)
    assert way.taken == [True, True]


def test_small_appends_never_take_the_choice(tmp_path: Path) -> None:
    way = Always(direct=True)
    file = opened(tmp_path, way)
    unread(file)
    file.writev([bytes(LARGE_BYTES - 1)])
    assert way.taken == []


def test_a_deleted_file_takes_them_too(tmp_path: Path, calls: Calls) -> None:
    file = opened(tmp_path, Always(direct=True))
    before = unread(file)
    os.unlink(file.path)
    data = os.urandom(MEBIBYTE)
    file.writev([data])
    assert calls.direct
    assert file.read(len(before), MEBIBYTE) == data


def test_no_descriptor_stays_open(tmp_path: Path) -> None:
    file = opened(tmp_path, Always(direct=True))
    unread(file)
    before = os.listdir("/proc/self/fd")
    for _ in range(10):
        file.writev([bytes(MEBIBYTE)])
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_threads_do_not_share_memory(tmp_path: Path) -> None:
    way = Always(direct=True)
    files: list[LocalFile] = []
    for name in "ab":
        (tmp_path / name).mkdir()
        files.append(opened(tmp_path / name, way))
        unread(files[-1])
    data = [bytes([number]) * MEBIBYTE for number in (1, 2)]
    start = threading.Barrier(2)

    def write(number: int) -> None:
        start.wait(10)
        for _ in range(20):
            files[number].writev([data[number]])

    threads = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for file, expected in zip(files, data, strict=True):
        assert file.read(UNREAD_BYTES + 17, 99 * MEBIBYTE) == expected * 20


# where it cannot be done


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_a_disk_that_refuses_is_not_asked_again(tmp_path: Path, calls: Calls, code: int) -> None:
    way = Always(direct=True)
    file = opened(tmp_path, way)
    model = unread(file)
    calls.answer = lambda direct: OSError(code, "not like this") if direct else None
    for _ in range(3):
        data = os.urandom(MEBIBYTE + 3)
        file.writev([data])
        model += data
    assert len(calls.direct) == 1
    assert way.taken == [False]
    assert file.read(0, len(model)) == model


@pytest.mark.parametrize(
    ("code", "tries"), [(errno.EINVAL, 1), (errno.ENOENT, 1), (errno.EMFILE, 3), (errno.ENFILE, 3)]
)
def test_a_file_that_cannot_be_opened_for_it_is_written_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, tries: int
) -> None:
    file = opened(tmp_path, Always(direct=True), must_be_able=False)
    model = unread(file)
    tried = []

    def refused(path: str, flags: int, *more: int) -> int:
        tried.append(path)
        raise OSError(code, "no", path)

    monkeypatch.setattr(os, "open", refused)
    for _ in range(3):
        file.writev([bytes(MEBIBYTE)])
        model += bytes(MEBIBYTE)
    monkeypatch.undo()
    assert len(tried) == tries
    assert file.read(0, len(model)) == model


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failure_changes_nothing(tmp_path: Path, calls: Calls, code: int) -> None:
    file = opened(tmp_path, Always(direct=True))
    model = unread(file)
    calls.answer = lambda direct: OSError(code, os.strerror(code)) if direct else None
    with pytest.raises(StorageError, match=r"cannot write to .*0\.log: "):
        file.writev([bytes(MEBIBYTE)])
    assert (file.size(), os.path.getsize(file.path)) == (len(model), len(model))
    calls.answer = lambda direct: None
    data = os.urandom(MEBIBYTE)
    file.writev([data])
    assert file.read(0, 99 * MEBIBYTE) == model + data


def test_a_short_write_is_finished_through_the_page_cache(tmp_path: Path, calls: Calls) -> None:
    way = Always(direct=True)
    file = opened(tmp_path, way)
    model = unread(file)
    calls.answer = lambda direct: 3 * PAGE if direct else None
    data = os.urandom(MEBIBYTE + 9)
    file.writev([data])
    assert (len(calls.direct), way.taken) == (1, [False])
    assert file.read(0, 99 * MEBIBYTE) == model + data


def test_every_kind_of_file_takes_large_appends(files: FileHalf) -> None:
    handle = files.open("0.log", create=True)
    model = bytearray()
    source = random.Random(1)
    for number in range(24):
        data = source.randbytes(LARGE_BYTES + 997 * number)
        handle.writev([data[:61], data[61:]])
        model += data
    handle.flush()
    assert handle.read(0, len(model) + 1) == model
    handle.close()
