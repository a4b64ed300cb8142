"""The faults of a memory disk, and its state after a crash."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import StorageError
from sparklog.storage_backends.base import MissingPathError
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_disk import MemoryDisk
from sparklog.storage_backends.memory_faults import Operation


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


def test_a_full_disk_refuses_whole_writes_and_takes_smaller_ones(memory: MemoryBackend) -> None:
    handle = memory.open("log", create=True)
    handle.writev([b"0123"])
    memory.disk.fill_after(5)
    writes: tuple[Callable[[], object], ...] = (
        lambda: handle.writev([b"abc", b"def"]),
        lambda: memory.append("log", b"abcdef"),
        lambda: memory.put("other", b"abcdef"),
        lambda: memory.put_if_absent("other", b"abcdef"),
        lambda: memory.upload("other", [b"abc", b"def"]),
    )
    for write in writes:
        with pytest.raises(StorageError, match="disk is full; free space"):
            write()
    handle.writev([b"abcde"])
    assert (memory.list(""), memory.read("log")) == (["log"], b"0123abcde")


def test_deleting_frees_a_full_disk(memory: MemoryBackend) -> None:
    memory.put("old", bytes(100))
    memory.disk.fill_after(0)
    memory.delete("old")
    memory.put("new", bytes(100))
    assert memory.disk.used_bytes == 100


def test_a_sparse_map_takes_space_only_when_it_is_reserved(memory: MemoryBackend) -> None:
    memory.disk.fill_after(10)
    mapped = memory.open("index", create=True).map(1000)
    mapped.reserve(8)
    with pytest.raises(StorageError, match="disk is full"):
        mapped.reserve(16)
    mapped.reserve(10)
    assert memory.disk.used_bytes == 10


def test_a_read_only_disk_still_reads(memory: MemoryBackend) -> None:
    handle = memory.open("log", create=True)
    handle.writev([b"data"])
    memory.faults.read_only = True
    writes: tuple[Callable[[], object], ...] = (
        lambda: handle.writev([b"x"]),
        lambda: memory.put("a", b"x"),
        lambda: memory.put_if_absent("a", b"x"),
        lambda: memory.upload("a", [b"x"]),
        lambda: memory.append("a", b"x"),
        lambda: memory.open("a", create=True),
        lambda: memory.lock("a"),
        lambda: memory.make_folder("a"),
        lambda: memory.delete("log"),
        lambda: memory.rename("log", "a"),
        lambda: handle.truncate(0),
    )
    for write in writes:
        with pytest.raises(StorageError, match="read-only; mount it writable"):
            write()
    assert (memory.list(""), handle.read(0, 9), memory.read("log")) == (["log"], b"data", b"data")


def test_the_next_operations_fail_as_told_and_then_work_again(memory: MemoryBackend) -> None:
    memory.put("topic-0/log", b"")
    memory.faults.fail_next(2, "append", under="topic-0")
    outcomes = []
    for path in ("topic-1/log", "topic-0/log", "topic-0/log", "topic-0/log"):
        try:
            memory.append(path, b"x")
            outcomes.append("done")
        except StorageError as error:
            outcomes.append(str(error).partition("; ")[0].replace(memory.url, ""))
    failed = "cannot append /topic-0/log: the device failed"
    assert outcomes == ["done", failed, failed, "done"]
    assert memory.read("topic-0/log") == b"x"


def test_a_lost_answer_leaves_the_effect(memory: MemoryBackend) -> None:
    memory.faults.fail_next(1, "put_if_absent", after=True)
    with pytest.raises(StorageError, match="device failed"):
        memory.put_if_absent("journal/1", b"nonce")
    assert memory.put_if_absent("journal/1", b"other") is False
    assert memory.read("journal/1") == b"nonce"


def test_a_failed_write_is_never_half_done(memory: MemoryBackend) -> None:
    handle = memory.open("log", create=True)
    memory.faults.fail_next(1)
    memory.faults.fail_next(1, after=True)
    with pytest.raises(StorageError):
        handle.writev([b"lost"])
    handle.writev([b"kept"])
    assert handle.size() == 4
    with pytest.raises(StorageError):
        handle.read(0, 4)
    assert handle.read(0, 4) == b"kept"


def test_after_a_failed_flush_a_handle_takes_no_more(memory: MemoryBackend) -> None:
    handle = memory.open("log", create=True)
    handle.writev([b"data"])
    memory.faults.fail_next(1, "flush")
    with pytest.raises(StorageError, match="device failed"):
        handle.flush()
    for attempt in (handle.flush, lambda: handle.writev([b"x"]), lambda: handle.truncate(0)):
        with pytest.raises(StorageError, match="could not be flushed before"):
            attempt()
    assert handle.read(0, 4) == b"data"


def test_the_slow_hook_sees_every_operation_first(memory: MemoryBackend) -> None:
    seen: list[tuple[Operation, str]] = []
    memory.faults.slow = lambda operation, path: seen.append((operation, path))
    handle = memory.open("log", create=True)
    handle.writev([b"data"])
    handle.flush()
    memory.faults.clear()
    memory.read("log")
    log = f"{memory.url}/log"
    assert seen == [("open", log), ("writev", log), ("flush", log)]


def test_a_crash_loses_what_was_not_flushed(memory: MemoryBackend) -> None:
    memory.put("a/state", b"durable at once")
    for name in ("a/log", "a/unflushed"):
        handle = memory.open(name, create=True)
        handle.writev([b"flushed "])
        if name == "a/log":
            handle.flush()
        handle.writev([b"not flushed"])
    memory.crash()
    assert {name: memory.read(f"a/{name}") for name in memory.list("a")} == {
        "state": b"durable at once",
        "log": b"flushed ",
        "unflushed": b"",
    }


@pytest.mark.parametrize(("keep", "left"), [(0, b"ab"), (3, b"abcde"), (99, b"abcdefgh")])
def test_a_crash_may_tear_the_tail(memory: MemoryBackend, keep: int, left: bytes) -> None:
    handle = memory.open("log", create=True)
    handle.writev([b"ab"])
    handle.flush()
    handle.writev([b"cdefgh"])
    memory.crash(keep)
    assert memory.read("log") == left


def test_each_file_may_be_torn_elsewhere(memory: MemoryBackend) -> None:
    asked: list[tuple[str, int]] = []

    def keep(path: str, unflushed: int) -> int:
        asked.append((path, unflushed))
        return len(asked)

    for path in ("a/one", "a/two"):
        memory.append(path, b"abcd")
    memory.crash(keep)
    assert asked == [("a/one", 4), ("a/two", 4)]
    assert [memory.read("a/one"), memory.read("a/two")] == [b"a", b"ab"]


def test_a_crash_undoes_an_unflushed_cut(memory: MemoryBackend) -> None:
    memory.append("log", b"0123456789")
    memory.flush("log")
    memory.truncate("log", 4)
    memory.crash()
    assert memory.read("log") == b"0123456789"


def test_a_torn_rewrite_mixes_new_and_old_bytes(memory: MemoryBackend) -> None:
    memory.append("log", b"0123456789")
    memory.flush("log")
    memory.truncate("log", 4)
    memory.append("log", b"abcd")
    memory.crash(2)
    assert memory.read("log") == b"0123ab6789"


def test_a_crash_loses_what_was_only_stored_into_a_map(memory: MemoryBackend) -> None:
    mapped = memory.open("index", create=True).map(8)
    mapped.buffer[:4] = b"good"
    mapped.flush()
    mapped.buffer[:4] = b"lost"
    memory.crash()
    assert memory.read("index") == b"good\0\0\0\0"
    with pytest.raises(StorageError, match="when its disk crashed"):
        mapped.flush()
    mapped.close()


def test_stores_into_a_closed_map_are_still_unflushed(memory: MemoryBackend) -> None:
    handle = memory.open("index", create=True)
    mapped = handle.map(4)
    mapped.flush()
    mapped.buffer[:] = b"lost"
    mapped.close()
    assert handle.read(0, 4) == b"lost"
    memory.crash()
    assert memory.read("index") == bytes(4)


def test_open_files_do_not_survive_a_crash_but_locks_are_free(memory: MemoryBackend) -> None:
    handle = memory.open("log", create=True)
    region = handle.region(0, 0)
    lock = memory.lock(".lock")
    memory.crash()
    for attempt in (handle.size, handle.flush, lambda: handle.writev([b"x"])):
        with pytest.raises(StorageError, match="when its disk crashed; open it again"):
            attempt()
    assert region.read() == b""
    second = memory.lock(".lock")
    lock.release()
    with pytest.raises(StorageError, match="in use"):
        memory.lock(".lock")
    second.release()


def test_a_strict_crash_also_loses_names_that_were_not_flushed(memory: MemoryBackend) -> None:
    memory.make_folder("a")
    for name in ("kept", "renamed", "deleted"):
        memory.open(f"a/{name}", create=True)
    memory.flush_folder("a")
    memory.open("a/new", create=True).writev([b"x"])
    memory.open("a/flushed", create=True).writev([b"y"])
    memory.flush("a/flushed")
    memory.rename("a/renamed", "a/renamed.to")
    memory.delete("a/deleted")
    lenient = sorted(memory.list("a"))
    memory.crash(lose_names=True)
    assert lenient == ["flushed", "kept", "new", "renamed.to"]
    assert memory.list("a") == ["deleted", "flushed", "kept", "renamed"]


def test_after_its_folder_was_flushed_a_name_survives_a_strict_crash(
    memory: MemoryBackend,
) -> None:
    memory.make_folder("a")
    memory.open("a/log", create=True)
    memory.rename("a/log", "a/log.deleted")
    memory.flush_folder("a")
    memory.rename_folder("a", "b")
    memory.flush_folder("")
    memory.put_if_absent("c/d/commit", b"x")
    memory.crash(lose_names=True)
    assert (memory.list(""), memory.list("b"), memory.read("c/d/commit")) == (
        ["b", "c"],
        ["log.deleted"],
        b"x",
    )


def test_a_crash_reaches_only_below_its_root() -> None:
    disk = MemoryDisk()
    brokers = [MemoryBackend(disk, f"broker-{number}") for number in (1, 2)]
    handles = []
    for broker in brokers:
        broker.make_folder("")
        handle = broker.open("log", create=True)
        handle.writev([b"unflushed"])
        broker.lock(".lock")
        handles.append(handle)
    brokers[0].crash()
    assert [broker.read("log") for broker in brokers] == [b"", b"unflushed"]
    handles[1].writev([b"!"])
    brokers[0].lock(".lock")
    with pytest.raises(StorageError, match="broker-2 is in use"):
        brokers[1].lock(".lock")


def test_a_crash_of_what_was_never_made_does_nothing() -> None:
    backend = MemoryBackend(MemoryDisk(), "broker-1")
    backend.crash()
    with pytest.raises(MissingPathError):
        backend.read("log")


STEPS = st.one_of(
    st.tuples(st.just("append"), st.binary(max_size=6)),
    st.tuples(st.just("cut"), st.integers(0, 12)),
    st.tuples(st.just("flush"), st.just(b"")),
)


@given(steps=st.lists(STEPS, max_size=20), keep=st.integers(0, 40))
def test_a_crash_leaves_the_flushed_bytes_under_a_prefix_of_the_new(
    steps: list[tuple[str, bytes | int]], keep: int
) -> None:
    backend = MemoryBackend()
    handle = backend.open("log", create=True)
    live, flushed, dirty_from = b"", b"", 0
    for step, argument in steps:
        if isinstance(argument, int):
            size = min(argument, len(live))
            handle.truncate(size)
            live, dirty_from = live[:size], min(dirty_from, size)
        elif step == "append":
            handle.writev([argument])
            live += argument
        else:
            handle.flush()
            flushed, dirty_from = live, len(live)
    assert handle.read(0, 1000) == live
    backend.crash(keep)
    torn_at = min(dirty_from + keep, len(live))
    assert backend.read("log") == live[:torn_at] + flushed[torn_at:]
