"""Ranges of several files in one response."""

from collections.abc import Sequence

import pytest

from sparklog.storage_backends.base import Region
from sparklog.storage_backends.joined_region import JoinedRegion
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.transport.send_queue import SendQueue
from sparklog.transport.wire import Buffer


class NarrowWire:
    """A connection that takes a few bytes with each call, and is full now and then."""

    def __init__(self, takes: int) -> None:
        self.sent = bytearray()
        self._takes = takes
        self._calls = 0

    def writev(self, buffers: Sequence[Buffer]) -> int:
        return self._take(b"".join(buffers))

    def send(self, region: Region, done: int) -> int:
        return self._take(region.read()[done:])

    def _take(self, data: bytes) -> int:
        self._calls += 1
        if self._calls % 4 == 0:
            raise BlockingIOError
        self.sent += data[: self._takes]
        return len(data[: self._takes])

    def watch(self, on_writable: object) -> None:
        """The test flushes."""

    def unwatch(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def regions(*data: bytes) -> list[Region]:
    store = MemoryBackend()
    store.append("file", b"".join(data))
    found: list[Region] = []
    start = 0
    for each in data:
        found.append(store.open("file").region(start, len(each)))
        start += len(each)
    return found


@pytest.mark.parametrize("takes", [1, 3, 100])
def test_the_bytes_are_sent_in_order(takes: int) -> None:
    wire = NarrowWire(takes)
    queue = SendQueue(wire, lambda: None, lambda error: pytest.fail(str(error)))
    joined = JoinedRegion(regions(b"one", b"two", b"three"))
    queue.put([b"head:", joined, b":tail"])
    expected = b"head:onetwothree:tail"
    assert (queue.unsent, queue.unsent_regions) == (len(expected) + 4, 11)
    for _ in range(100):
        queue.flush()
    assert bytes(wire.sent) == len(expected).to_bytes(4, "big") + expected
    assert (queue.unsent, queue.unsent_regions) == (0, 0)


def test_a_joined_region_reads_as_one() -> None:
    joined = JoinedRegion(regions(b"one", b"two"))
    assert (joined.size, joined.read(), bytes(joined.view())) == (6, b"onetwo", b"onetwo")
    assert joined.descriptor() is None
    joined.release()
    joined.release()
