"""Memory of reads: what somebody looks at stays as it is, and free memory is used again."""

import random
import sys
import threading

from sparklog.remote_log.read_memory import ReadMemory


def marked(memory: ReadMemory, size: int, mark: bytes) -> memoryview:
    """A view of a piece that is full of the mark."""
    view = memory.room(size)
    view[:] = mark * size
    return view


def test_memory_is_used_again_once_no_view_is_left() -> None:
    memory = ReadMemory(1000)
    first = marked(memory, 100, b"a")
    second = marked(memory, 100, b"b")
    part = first[3:7]
    del first
    third = marked(memory, 100, b"c")
    assert (bytes(part), bytes(second), bytes(third)) == (b"aaaa", b"b" * 100, b"c" * 100)
    del part
    assert bytes(memory.room(80)) == b"a" * 80


def test_the_memory_that_was_used_last_comes_first() -> None:
    memory = ReadMemory(1000)
    held = [marked(memory, 10, mark) for mark in (b"a", b"b", b"c")]
    held.clear()
    assert bytes(memory.room(10)) == b"c" * 10


def test_kept_bytes_move_to_the_beginning() -> None:
    memory = ReadMemory(1000)
    first = memory.room(10)
    first[:] = b"0123456789"
    second = memory.room(6, first[7:])
    assert (bytes(second[:3]), len(second), bytes(first)) == (b"789", 6, b"0123456789")


def test_large_memory_is_not_used_again() -> None:
    memory = ReadMemory(1000)
    marked(memory, 1001, b"a")
    assert bytes(memory.room(1001)) == bytes(1001)
    marked(memory, 1000, b"b")
    assert bytes(memory.room(1000)) == b"b" * 1000


def test_no_more_than_a_few_pieces_are_kept() -> None:
    memory = ReadMemory(1000)
    held = [marked(memory, 10, b"a") for _ in range(50)]
    held.clear()
    found = [memory.room(10) for _ in range(50)]
    assert sum(bytes(each) == b"a" * 10 for each in found) == 3


def test_views_keep_their_bytes_whatever_threads_read() -> None:
    memory = ReadMemory(64, threading.Lock())
    failures: list[str] = []

    def read(seed: int) -> None:
        chance = random.Random(seed)
        held: list[tuple[memoryview, bytes]] = []
        for _ in range(2000):
            wanted = chance.randbytes(chance.randrange(80))
            view = memory.room(len(wanted))
            view[:] = wanted
            held.append((view, wanted))
            if len(held) > chance.randrange(4):
                found, expected = held.pop(chance.randrange(len(held)))
                if bytes(found) != expected:
                    failures.append(f"{bytes(found)!r} in place of {expected!r}")
                del found

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failures, failures[0]
