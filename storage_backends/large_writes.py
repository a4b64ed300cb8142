"""Large appends to files whose end is not being read: past the page cache, where that is faster.

Owns: the criterion for readers of a file's end, the choice between direct and cached writes, the
measured speed of both, and the alignment of direct writes.  Must not know what the files are.

A cached write copies its bytes into memory that the system has to find first.  It evicts pages that
consumers read, and the bytes must be written anyway, later, when a flush waits for them.  A direct
write (``O_DIRECT``) avoids all that, but its caller waits for the disk.  Therefore both kinds of
writes are measured, and direct writes are used as long as they are not much slower.  A slow disk
still gets its bursts through the page cache.

Only whole pages can be written directly.  The bytes before the first page boundary and after the
last one are written through the page cache, in the order of the file, so that a killed process
leaves a prefix.
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

#: The option of local files with the minimum size of a direct append in bytes (an int).
DIRECT_APPEND_BYTES: Final = "direct_append_bytes"
#: The default minimum size of a direct append: from this size on it is worth its three calls.
LARGE_BYTES: Final = 512 * 1024
#: A file's end counts as unread if at least this many bytes of it were never read.
UNREAD_BYTES: Final = 4 * 1024 * 1024
#: Readers may fall behind this many times as far as they have been behind before.
_LAG_GROWTH: Final = 2

#: Direct writes may take this many times as long as cached ones: they use no memory of the page
#: cache, and leave the kernel nothing to write later.
_DIRECT_COST_MAX: Final = 1.5
#: Appends of each kind before the two kinds are compared.
_SAMPLES: Final = 4
#: One in ``_OTHER_EVERY`` appends uses the other kind of write, to measure its present speed.  That
#: becomes one in up to ``_OTHER_EVERY_MAX`` while the speeds differ by more than ``_CLEAR_RATIO``.
_OTHER_EVERY: Final = 64
_OTHER_EVERY_MAX: Final = 4096
_CLEAR_RATIO: Final = 4.0
#: The weight of earlier measurements decays by this factor with each new one.
_KEPT: Final = 0.9
#: The shortest measurement in seconds, whatever the clock says.
_TICK_S: Final = 1e-6
#: A measurement counts as at most this many times the usual time: the stall of a process for a
#: minute tells nothing about a disk.
_OUTLIER: Final = 4.0

#: None on systems without direct writes.
_DIRECT: Final[int | None] = getattr(os, "O_DIRECT", None)
#: The alignment of file positions, sizes and memory in bytes.
_PAGE: Final = max(4096, mmap.PAGESIZE)
#: Most bytes that are written with one call; every thread that writes directly has a buffer of it.
_STEP_BYTES: Final = 1024 * 1024
#: Errors that tell nothing about the file system.
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: Errors of file systems, or disks, that do not support direct writes.
_UNSUPPORTED: Final = (errno.EINVAL, errno.EOPNOTSUPP)


class TailReaders:
    """How far the readers of a file are behind its end; sizes in bytes."""

    __slots__ = ("_lag", "_read_to")

    def __init__(self, size: int) -> None:
        self._lag = UNREAD_BYTES
        #: No byte after this position was read yet.
        self._read_to = size

    def record_read(self, end: int, size: int) -> None:
        """Note that bytes up to ``end`` are read, of a file with ``size`` bytes."""
        if end > self._read_to:
            self._lag = max(self._lag, _LAG_GROWTH * (size - self._read_to))
            self._read_to = end

    def cut(self, size: int) -> None:
        self._read_to = min(self._read_to, size)

    def have_gone(self, size: int) -> bool:
        """Whether the unread end is longer than active readers have ever let it become."""
        return size - self._read_to >= self._lag


class WritePath(Protocol):
    """Chooses between direct and cached writes, from their measured times in seconds."""

    def is_direct(self) -> bool: ...

    def record_write(self, direct: bool, size: int, seconds: float) -> None: ...


class FasterWritePath:
    """Chooses the kind of write that was faster lately (``WritePath``)."""

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
    """The large writes to the files of one folder, from any thread."""

    def __init__(
        self,
        large_bytes: int = LARGE_BYTES,
        *,
        write_path: WritePath | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``large_bytes`` is the minimum size of a direct append in bytes; 0 disables it."""
        self._large_bytes = large_bytes
        self._clock = clock
        self._write_path = FasterWritePath() if write_path is None else write_path
        self._supported = _DIRECT is not None and large_bytes > 0

    def write(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """As ``write_at``, for bytes that are not going to be read soon."""
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
    """Write directly.

    Returns:
        None after success; otherwise the error of a direct write that is not possible here.  Then
        any part may have been written, and all bytes have to be written again.
    """
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
    """Open the same file for direct writes, whatever its name is now."""
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
    """Write from ``position`` to ``end``.  Returns an error after a short write; otherwise None."""
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
    """The bytes of several buffers, in order."""

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
    """The aligned buffer of this thread."""
    if _memory.aligned is None:
        # A private map, so that a forked child has a buffer of its own.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        _memory.aligned = memoryview(mmap.mmap(-1, _STEP_BYTES, flags=flags))
    return _memory.aligned
