"""Large appends to unread files: the choice between direct and cached writes, and their bytes."""

import errno
import fcntl
import mmap
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
    DIRECT_APPEND_BYTES,
    LARGE_BYTES,
    UNREAD_BYTES,
    FasterWritePath,
    LargeWrites,
    TailReaders,
)
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.local_files import LocalFile
from sparklog.storage_backends.registry import open_file_half
from tests.support.descriptors import open_files_in

PAGE = max(4096, mmap.PAGESIZE)
MEBIBYTE = 1024 * 1024


class Always:
    """A write path that is always the same."""

    def __init__(self, direct: bool) -> None:
        self.direct = direct
        self.taken: list[bool] = []

    def is_direct(self) -> bool:
        return self.direct

    def record_write(self, direct: bool, size: int, seconds: float) -> None:
        self.taken.append(direct)


@dataclass
class Calls:
    """The calls of ``os.pwrite``, as (position, size, whether direct), and their results."""

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
    """An empty file whose large appends use the write path ``way``."""
    path = str(folder / "0.log")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    if must_be_able:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_DIRECT))
        except OSError as error:
            os.close(descriptor)
            pytest.skip(f"the file system of {folder} has no direct writes: {error}")
    return LocalFile(path, descriptor, LargeWrites(write_path=way))


def cut(data: bytes, random_source: random.Random) -> Sequence[Buffer]:
    """The same bytes, split into a few buffers of different types."""
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


def asked(way: FasterWritePath, count: int, direct_s: float, cached_s: float) -> list[bool]:
    """The next choices, when appends of 1,000 bytes take these times in seconds."""
    chosen = []
    for _ in range(count):
        direct = way.is_direct()
        way.record_write(direct, 1000, direct_s if direct else cached_s)
        chosen.append(direct)
    return chosen


def test_both_ways_are_measured_before_one_is_chosen() -> None:
    assert asked(FasterWritePath(), 8, 1.0, 9.0) == [True, False] * 4


@pytest.mark.parametrize(
    ("direct_s", "cached_s", "direct"), [(1, 3, True), (1.4, 1, True), (1.6, 1, False)]
)
def test_the_direct_way_is_taken_while_it_is_not_much_slower(
    direct_s: float, cached_s: float, direct: bool
) -> None:
    way = FasterWritePath()
    asked(way, 8, direct_s, cached_s)
    later = asked(way, 256, direct_s, cached_s)
    # The other kind of write is measured again from time to time.
    assert later.count(not direct) == 4


def test_the_choice_follows_a_disk_that_becomes_slow_and_fast_again() -> None:
    way = FasterWritePath()
    asked(way, 16, 1.0, 1.0)
    assert asked(way, 64, 30.0, 1.0)[-40:].count(True) <= 1
    assert asked(way, 64 * 200, 0.5, 1.0)[-40:].count(True) >= 39


def test_a_hopeless_way_is_tried_ever_more_rarely() -> None:
    way = FasterWritePath()
    asked(way, 8, 30.0, 1.0)
    assert asked(way, 64 + 128 + 256 + 512, 30.0, 1.0).count(True) == 4
    assert asked(way, 1023, 30.0, 1.0).count(True) == 0


@pytest.mark.parametrize("direct", [True, False])
def test_one_stop_of_the_process_changes_nothing(direct: bool) -> None:
    way = FasterWritePath()
    asked(way, 200, 1.0, 1.0)
    way.record_write(direct, 1000, 60.0)
    assert asked(way, 63, 1.0, 1.0).count(True) >= 62


def test_a_clock_that_stands_still_is_no_division_by_zero() -> None:
    assert asked(FasterWritePath(), 200, 0.0, 0.0).count(True) > 100


def test_who_comes_far_behind_may_do_so_again() -> None:
    readers = TailReaders(0)
    assert not readers.have_gone(UNREAD_BYTES - 1)
    assert readers.have_gone(UNREAD_BYTES)
    readers.record_read(4 * UNREAD_BYTES, 4 * UNREAD_BYTES)
    assert not readers.have_gone(12 * UNREAD_BYTES - 1)
    assert readers.have_gone(12 * UNREAD_BYTES)


def test_who_reads_again_what_was_read_says_nothing() -> None:
    readers = TailReaders(100)
    readers.record_read(50, UNREAD_BYTES + 100)
    assert readers.have_gone(UNREAD_BYTES + 100)


def test_a_file_that_was_cut_begins_anew_at_its_end() -> None:
    readers = TailReaders(9 * UNREAD_BYTES)
    readers.cut(UNREAD_BYTES)
    assert not readers.have_gone(2 * UNREAD_BYTES - 1)
    assert readers.have_gone(2 * UNREAD_BYTES)


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
    unread_count = UNREAD_BYTES // MEBIBYTE
    for _ in range(unread_count):
        file.writev(large)
    assert way.taken == []
    file.writev(large)
    assert way.taken == [True]
    # Readers may fall twice as far behind as they have been.
    file.region(file.size() - 100, 100).release()
    file.read(0, 10)
    for _ in range(2 * (unread_count + 1)):
        file.writev(large)
    assert way.taken == [True]
    file.writev(large)
    assert way.taken == [True, True]


def test_what_was_there_when_a_file_was_opened_counts_as_read(tmp_path: Path) -> None:
    way = Always(direct=True)
    path = opened(tmp_path, way).path
    Path(path).write_bytes(bytes(UNREAD_BYTES))
    again = opened(tmp_path, way)
    again.writev([bytes(MEBIBYTE)])
    assert way.taken == []


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
    assert open_files_in(tmp_path) == 1
    for _ in range(10):
        file.writev([bytes(MEBIBYTE)])
    assert open_files_in(tmp_path) == 1


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
    assert way.taken == []
    assert file.read(0, len(model)) == model


@pytest.mark.parametrize(
    ("code", "tries"),
    [(errno.EINVAL, 1), (errno.ENOENT, 1), (errno.EMFILE, 3), (errno.ENFILE, 3), (errno.ENOMEM, 3)],
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
    for _ in range(3):
        data = os.urandom(MEBIBYTE + 9)
        file.writev([data])
        model += data
    assert (len(calls.direct), way.taken) == (1, [])
    assert file.read(0, 99 * MEBIBYTE) == model


def test_a_full_disk_is_no_reason_to_give_up(tmp_path: Path, calls: Calls) -> None:
    """Direct writes to a full disk are short, and then it refuses cached writes, too."""
    way = Always(direct=True)
    file = opened(tmp_path, way)
    model = unread(file)
    calls.answer = lambda direct: 3 * PAGE if direct else None
    with pytest.MonkeyPatch.context() as patch:
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        patch.setattr(os, "pwritev", lambda *_: (_ for _ in ()).throw(full))
        with pytest.raises(StorageError, match="the disk is full"):
            file.writev([bytes(MEBIBYTE)])
    assert (file.size(), os.path.getsize(file.path)) == (len(model), len(model))
    calls.answer = lambda direct: None
    file.writev([bytes(MEBIBYTE)])
    assert way.taken == [True]
    assert file.read(0, 99 * MEBIBYTE) == model + bytes(MEBIBYTE)


def test_without_memory_for_it_an_append_is_made_as_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = Always(direct=True)
    file = opened(tmp_path, way)
    model = unread(file)
    tried = []

    def refused(*_: object, **__: object) -> mmap.mmap:
        tried.append(1)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(mmap, "mmap", refused)
    # A thread that has no buffer yet.
    thread = threading.Thread(target=lambda: [file.writev([bytes(MEBIBYTE)]) for _ in range(2)])
    thread.start()
    thread.join(60)
    monkeypatch.undo()
    assert (len(tried), way.taken) == (2, [])
    assert file.read(0, 99 * MEBIBYTE) == model + bytes(2 * MEBIBYTE)


def test_a_forked_process_has_memory_of_its_own(tmp_path: Path) -> None:
    files = []
    for name in "ab":
        (tmp_path / name).mkdir()
        files.append(opened(tmp_path / name, Always(direct=True)))
        unread(files[-1])
        files[-1].writev([bytes(MEBIBYTE)])
    child = os.fork()
    if not child:
        for _ in range(60):
            files[1].writev([b"b" * MEBIBYTE])
        os._exit(0)
    for _ in range(60):
        files[0].writev([b"a" * MEBIBYTE])
    assert os.waitpid(child, 0)[1] == 0
    tail = Path(files[0].path).read_bytes()[UNREAD_BYTES + 17 + MEBIBYTE :]
    assert tail == b"a" * (60 * MEBIBYTE)


def test_what_stops_an_append_in_the_middle_leaves_nothing_behind(
    tmp_path: Path, calls: Calls
) -> None:
    file = opened(tmp_path, Always(direct=True))
    model = unread(file)

    def stop(direct: bool) -> None:
        if direct:
            raise KeyboardInterrupt

    calls.answer = stop
    with pytest.raises(KeyboardInterrupt):
        file.writev([bytes(MEBIBYTE)])
    calls.answer = lambda direct: None
    file.writev([b"x"])
    assert Path(file.path).read_bytes() == model + b"x"


@pytest.mark.parametrize("large_bytes", [0, 2 * MEBIBYTE])
def test_an_option_says_how_large_is_large(tmp_path: Path, calls: Calls, large_bytes: int) -> None:
    opened(tmp_path, Always(direct=True)).close()
    half = open_file_half(str(tmp_path), {DIRECT_APPEND_BYTES: large_bytes})
    handle = half.open("1.log", create=True)
    for _ in range(20):
        handle.writev([bytes(2 * MEBIBYTE - 1)])
    assert calls.direct == []
    handle.writev([bytes(2 * MEBIBYTE)])
    assert bool(calls.direct) == bool(large_bytes)
    handle.close()


def test_files_of_one_folder_learn_together(tmp_path: Path, calls: Calls) -> None:
    opened(tmp_path, Always(direct=True)).close()
    calls.answer = lambda direct: OSError(errno.EINVAL, "not like this") if direct else None
    backend = LocalBackend(tmp_path)
    for name in ("1.log", "2.log"):
        handle = backend.open(name, create=True)
        for _ in range(10):
            handle.writev([bytes(MEBIBYTE)])
        handle.close()
    assert len(calls.direct) == 1


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
