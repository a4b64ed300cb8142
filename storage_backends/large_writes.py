"""Large appends that nobody reads along: past the page cache, where that is faster.

Owns: who counts as reading along, the two ways such an append can take, how long either took
lately, and the alignment of the direct one.  Must not know whose files these are.

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

#: The option of local files that says how many bytes an append has that may go this way (an int).
DIRECT_APPEND_BYTES: Final = "direct_append_bytes"
#: Appends that are worth the three calls, unless somebody says otherwise.
LARGE_BYTES: Final = 512 * 1024
#: So much of a file's end was never asked for: nobody reads along.
UNREAD_BYTES: Final = 4 * 1024 * 1024
#: Who came so far behind may be this many times as far behind later.
_LAG_GROWTH: Final = 2

#: The direct way may take so many times as long: it leaves the memory to others, and the kernel
#: nothing to write later.
_DIRECT_COST_MAX: Final = 1.5
#: Appends of either way before they are compared.
_SAMPLES: Final = 4
#: One in so many appends takes the other way, to know how long it takes now; one in up to so many
#: when it was so many times as slow whenever somebody looked.
_OTHER_EVERY: Final = 64
_OTHER_EVERY_MAX: Final = 4096
_CLEAR_RATIO: Final = 4.0
#: What of the measurements before still counts when the next comes.
_KEPT: Final = 0.9
#: No measurement is shorter, whatever the clock says.
_TICK_S: Final = 1e-6
#: A measurement counts as at most so many times what was usual: a process that was stopped for a
#: minute says nothing about a disk.
_OUTLIER: Final = 4.0

#: None where the system has no such thing.
_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)
#: Of places in the file, of sizes, and of memory.
_PAGE: Final = max(4096, mmap.PAGESIZE)
#: Written with one call; memory of every thread that writes so.
_STEP_BYTES: Final = 1024 * 1024
#: Says nothing about the file system.
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: The file system, or its disk, does not write like this after all.
_UNSUPPORTED: Final = (errno.EINVAL, errno.EOPNOTSUPP)


class TailReaders:
    """How far behind the end of a file those who read it come; sizes in bytes."""

    __slots__ = ("_lag", "_read_to")

    def __init__(self, size: int) -> None:
        self._lag = UNREAD_BYTES
        #: Behind it nobody has asked for anything yet.
        self._read_to = size

    def record_read(self, end: int, size: int) -> None:
        """Somebody reads up to ``end``."""
        if end > self._read_to:
            self._lag = max(self._lag, _LAG_GROWTH * (size - self._read_to))
            self._read_to = end

    def cut(self, size: int) -> None:
        self._read_to = min(self._read_to, size)

    def have_gone(self, size: int) -> bool:
        """Nobody reads along: the unread end is longer than readers have let it become."""
        return size - self._read_to >= self._lag


class WritePath(Protocol):
    """Which way the next large append takes; told in seconds what it took."""

    def is_direct(self) -> bool: ...

    def record_write(self, direct: bool, size: int, seconds: float) -> None: ...


class FasterWritePath:
    """The one that was faster lately (``WritePath``)."""

    def __init__(self) -> None:
        self._direct = _Throughput()
        self._cached = _Throughput()
        self._until_other = self._other_every = _OTHER_EVERY

    def is_direct(self) -> bool:
        if min(self._direct.samples, self._cached.samples) < _SAMPLES:
            return self._direct.samples <= self._cached.samples
        ratio = self._direct.seconds_per_byte / self._cached.seconds_per_byte
        direct = ratio <= _DIRECT_COST_MAX
        self._until_other -= 1
        if self._until_other:
            return direct
        hopeless = not 1 / _CLEAR_RATIO < ratio < _CLEAR_RATIO
        doubled = min(2 * self._other_every, _OTHER_EVERY_MAX)
        self._until_other = self._other_every = doubled if hopeless else _OTHER_EVERY
        return not direct

    def record_write(self, direct: bool, size: int, seconds: float) -> None:
        (self._direct if direct else self._cached).add(size, seconds)


class _Throughput:
    def __init__(self) -> None:
        self.samples = 0
        self.seconds_per_byte = 0.0
        self._bytes = 0.0
        self._seconds = 0.0

    def add(self, size: int, seconds: float) -> None:
        if self.samples >= _SAMPLES:
            seconds = min(seconds, _OUTLIER * self.seconds_per_byte * size)
        self.samples += 1
        self._bytes = self._bytes * _KEPT + size
        self._seconds = self._seconds * _KEPT + max(seconds, _TICK_S)
        self.seconds_per_byte = self._seconds / self._bytes


class LargeWrites:
    """Those to the files of one folder; from any thread."""

    def __init__(
        self,
        large_bytes: int = LARGE_BYTES,
        *,
        write_path: WritePath | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``large_bytes``: smaller ones are none; 0: there are none."""
        self._large_bytes = large_bytes
        self._clock = clock
        self._write_path = FasterWritePath() if write_path is None else write_path
        self._supported = _DIRECT is not None and large_bytes > 0

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """As ``write_at``, of what nobody reads along."""
        size = sum(map(len, buffers)) if self._supported else 0
        if not self._supported or size < self._large_bytes:
            return write_at(descriptor, buffers, position)
        direct = self._write_path.is_direct()
        began = self._clock()
        refusal = _write_directly(descriptor, buffers, position, size) if direct else None
        if not direct or refusal is not None:
            write_at(descriptor, buffers, position)
        if refusal is None:
            self._write_path.record_write(direct, size, self._clock() - began)
        elif refusal.errno not in _OUT_OF_RESOURCES:
            self._supported = False
            log.info("large appends go through the page cache: %s", refusal)
        return size


def _write_directly(
    descriptor: int, buffers: Sequence[Buffer], position: int, size: int
) -> OSError | None:
    """Why it cannot be done here, if so: then any part may be written, and all has to be again."""
    try:
        pages = _reopened(descriptor)
        memory = _aligned_memory()
    except OSError as error:
        return error
    try:
        return _write_pages(descriptor, pages.number, memory, buffers, position, position + size)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return error


def _reopened(descriptor: int) -> Descriptor:
    """The same file, whatever its name is by now."""
    assert _DIRECT is not None
    path = f"/proc/self/fd/{descriptor}"
    return Descriptor(os.open(path, os.O_WRONLY | os.O_CLOEXEC | _DIRECT))


def _write_pages(
    descriptor: int,
    pages: int,
    memory: memoryview,
    buffers: Sequence[Buffer],
    position: int,
    end: int,
) -> OSError | None:
    """Write from ``position`` to ``end``; a short write is why it could not be done."""
    source = _Source(buffers)
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
        written = os.pwrite(number, part, position)
        if written < len(part):
            return OSError(errno.EIO, f"{written} of {len(part)} bytes were written directly")
        position = stop
    return None


class _Source:
    """The bytes of some buffers, in order."""

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._left = [memoryview(buffer).cast("B") for buffer in reversed(buffers)]

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
        # Private: a forked child has its own.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        _memory.aligned = memoryview(mmap.mmap(-1, _STEP_BYTES, flags=flags))
    return _memory.aligned
