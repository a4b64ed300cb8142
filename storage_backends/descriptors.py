"""File descriptors: their lifetime, and complete reads and writes at a position.

Owns: the closing of descriptors, and the handling of short reads and writes.  Must not know paths.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from sparklog.storage_backends.base import Buffer

_IOV_MAX = os.sysconf("SC_IOV_MAX")
#: Most bytes that are written with one call.  For larger writes the page cache uses larger blocks
#: of memory, which a virtual machine returns to its host once they are free.  Getting them again
#: took 25 us per 16 KB, where this takes 4.5 us.
_STEP_BYTES = 64 * 1024


class Descriptor:
    """A file descriptor that is closed when nothing refers to this object any more."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.number)


def write_at(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write all buffers at ``position`` and return their size in bytes.

    After an OSError any prefix of the bytes may be written.
    """
    total = sum(map(len, buffers))
    if len(buffers) == 1 and total > _STEP_BYTES:
        _write_large(descriptor, memoryview(buffers[0]), position)
        return total
    written = 0
    for group in _groups(buffers) if total > _STEP_BYTES else (buffers,):
        size = sum(map(len, group))
        step = (
            os.pwritev(descriptor, group, position + written) if 0 < len(group) <= _IOV_MAX else 0
        )
        if step < size:
            _write_rest(descriptor, group, position + written, step, size)
        written += size
    return total


def _write_large(descriptor: int, buffer: memoryview, position: int) -> None:
    """Write one buffer in steps."""
    for start in range(0, len(buffer), _STEP_BYTES):
        part = buffer[start : start + _STEP_BYTES]
        step = os.pwritev(descriptor, (part,), position + start)
        if step < len(part):
            _write_rest(descriptor, (part,), position + start, step, len(part))


def _groups(buffers: Sequence[Buffer]) -> Iterator[list[Buffer]]:
    """The buffers in groups of at most ``_STEP_BYTES``; larger buffers are split."""
    group: list[Buffer] = []
    size = 0
    for buffer in buffers:
        if size + len(buffer) <= _STEP_BYTES:
            group.append(buffer)
            size += len(buffer)
            continue
        if group:
            yield group
        view = memoryview(buffer)
        while len(view) > _STEP_BYTES:
            yield [view[:_STEP_BYTES]]
            view = view[_STEP_BYTES:]
        group, size = [view], len(view)
    if group:
        yield group


def _write_rest(
    descriptor: int, buffers: Sequence[Buffer], position: int, written: int, total: int
) -> None:
    """Finish a short write; each round makes progress or raises."""
    rest = [memoryview(buffer) for buffer in buffers]
    rest.reverse()
    _drop(rest, written)
    while written < total:
        step = os.pwritev(descriptor, list(islice(reversed(rest), _IOV_MAX)), position + written)
        if not step:
            raise OSError(errno.EIO, "a write made no progress")
        _drop(rest, step)
        written += step


def _drop(rest: list[memoryview], size: int) -> None:
    """Remove ``size`` bytes from the front, and empty buffers; the list is reversed."""
    while rest and size >= len(rest[-1]):
        size -= len(rest.pop())
    if size:
        rest[-1] = rest[-1][size:]


def read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Read up to ``size`` bytes; fewer only at the end of the file."""
    if size <= 0:
        return b""
    data = os.pread(descriptor, size, offset)
    if not data or len(data) == size:
        return data
    parts = [data]
    size -= len(data)
    while size > 0:
        offset += len(data)
        data = os.pread(descriptor, size, offset)
        if not data:
            break
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def read_into(descriptor: int, offset: int, target: memoryview) -> int:
    """Fill ``target`` as far as the file goes; the number of bytes."""
    filled = 0
    while filled < len(target):
        count = os.preadv(descriptor, [target[filled:]], offset + filled)
        if not count:
            break
        filled += count
    return filled
