"""Large appends that nobody reads along: past the page cache, where that is faster.

Owns: the two ways such an append can take, how long either took lately, and the alignment of the
direct one.  Must not know whose files these are, nor which appends are meant.

Bytes for the page cache are copied into memory that the system has to find first, push out what
consumers read, and are written later all the same, when somebody waits for a flush.  A direct write
(``O_DIRECT``) spares all that, and its caller waits for the disk instead.  So both ways are
measured, and the direct one is taken as long as it is not much slower: a slow disk gets its bursts
through the page cache as ever.

Only whole pages can go directly.  What stands before the first page boundary and behind the last
goes through the page cache, in the order of the file, so that a killed process leaves a prefix.
"""

import errno
import logging
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sparklog.storage_backends.base import Buffer
from sparklog.storage_backends.descriptors import Descriptor, write_at

log = logging.getLogger(__name__)

#: Appends that are worth the three calls.
LARGE_BYTES: Final = 512 * 1024
#: So much of a file's end was never asked for: nobody reads along.
UNREAD_BYTES: Final = 8 * 1024 * 1024

#: The direct way may take so many times as long: it leaves the processor and the memory to others,
#: and the disk nothing to do later.
_WORTH: Final = 2.0
#: Appends of either way before they are compared.
_SAMPLES: Final = 4
#: One in so many appends takes the other way, to know how long it takes now.
_OTHER_EVERY: Final = 64
#: What of the measurements before still counts when the next comes.
_KEPT: Final = 0.9

#: None where the system has no such thing.
_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)
#: Of places in the file, of sizes, and of memory.
_PAGE: Final = max(4096, mmap.PAGESIZE)
#: Written with one call; memory of every thread that writes so.
_STEP_BYTES: Final = 1024 * 1024
#: Says nothing about the file system.
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
#: The file system, or its disk, does not write like this after all.
_UNABLE: Final = (errno.EINVAL, errno.EOPNOTSUPP)


class Way(Protocol):
    """Which way the next large append takes; told in seconds what it took."""

    def is_direct(self) -> bool: ...

    def took(self, direct: bool, size: int, seconds: float) -> None: ...


class FasterWay:
    """The one that was faster lately (``Way``)."""

    def __init__(self) -> None:
        self._asked = 0
        self._direct = _Pace()
        self._cached = _Pace()

    def is_direct(self) -> bool:
        self._asked += 1
        if min(self._direct.samples, self._cached.samples) < _SAMPLES:
            return self._direct.samples <= self._cached.samples
        better = self._direct.seconds_per_byte <= _WORTH * self._cached.seconds_per_byte
        return better != (self._asked % _OTHER_EVERY == 0)

    def took(self, direct: bool, size: int, seconds: float) -> None:
        (self._direct if direct else self._cached).add(size, seconds)


class _Pace:
    def __init__(self) -> None:
        self.samples = 0
        self._bytes = 0.0
        self._seconds = 0.0

    @property
    def seconds_per_byte(self) -> float:
        return self._seconds / self._bytes

    def add(self, size: int, seconds: float) -> None:
        self.samples += 1
        self._bytes = self._bytes * _KEPT + size
        self._seconds = self._seconds * _KEPT + seconds


class LargeWrites:
    """Those to the files of one folder; from any thread."""

    def __init__(
        self, way: Way | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self._way = FasterWay() if way is None else way
        self._able = _DIRECT is not None

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """As ``write_at``."""
        if not self._able:
            return write_at(descriptor, buffers, position)
        direct = self._way.is_direct()
        began = self._clock()
        if direct:
            size = sum(map(len, buffers))
            direct = self._write_directly(descriptor, buffers, position, size)
        if not direct:
            size = write_at(descriptor, buffers, position)
        self._way.took(direct, size, self._clock() - began)
        return size

    def _write_directly(
        self, descriptor: int, buffers: Sequence[Buffer], position: int, size: int
    ) -> bool:
        """Whether it could be done; any part is written where it could not."""
        try:
            pages = _reopened(descriptor)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                self._give_up(error)
            return False
        try:
            return _write_pages(descriptor, pages.number, buffers, position, position + size)
        except OSError as error:
            if error.errno not in _UNABLE:
                raise
            self._give_up(error)
            return False

    def _give_up(self, error: OSError) -> None:
        self._able = False
        log.info("large appends go through the page cache: %s", error)


def _reopened(descriptor: int) -> Descriptor:
    """The same file, whatever its name is by now."""
    assert _DIRECT is not None
    path = f"/proc/self/fd/{descriptor}"
    return Descriptor(os.open(path, os.O_WRONLY | os.O_CLOEXEC | _DIRECT))


def _write_pages(
    descriptor: int, pages: int, buffers: Sequence[Buffer], position: int, end: int
) -> bool:
    """Write from ``position`` to ``end``; whether all of it could be written."""
    source = _Source(buffers)
    memory = _aligned_memory()
    first_page = -(-position // _PAGE) * _PAGE
    last_page = end // _PAGE * _PAGE
    while position < end:
        if position < first_page:
            stop, number = first_page, descriptor
        elif position < last_page:
            stop, number = min(position + _STEP_BYTES, last_page), pages
        else:
            stop, number = end, descriptor
        part = memory[: stop - position]
        source.fill(part)
        if os.pwrite(number, part, position) < len(part):
            return False
        position = stop
    return True


class _Source:
    """The bytes of some buffers, in order."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._left = [memoryview(buffer) for buffer in reversed(buffers)]

    def fill(self, target: memoryview) -> None:
        filled = 0
        while filled < len(target):
            view = self._left.pop()
            room = len(target) - filled
            if len(view) > room:
                self._left.append(view[room:])
                view = view[:room]
            target[filled : filled + len(view)] = view
            filled += len(view)


class _Memory(threading.local):
    aligned: memoryview | None = None


_memory: Final = _Memory()


def _aligned_memory() -> memoryview:
    """Of this thread."""
    if _memory.aligned is None:
        _memory.aligned = memoryview(mmap.mmap(-1, _STEP_BYTES))
    return _memory.aligned
