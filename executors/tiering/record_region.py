"""Records from the bucket as a fetch sends them.

Owns: a region of bytes in memory, and where it is cut.  Must not know where the bytes come from.
"""

from sparklog.types import NO_OFFSET
from sparklog.wire.records.batch import iter_batches


class BytesRegion:
    """A ``Region`` of bytes that are in memory."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)

    @property
    def size(self) -> int:
        return len(self._data)

    def descriptor(self) -> tuple[int, int] | None:
        return None

    def view(self) -> memoryview:
        return self._data

    def read(self) -> bytes:
        return bytes(self._data)

    def release(self) -> None:
        """The bytes go with their last reference."""


def whole_batches(data: bytes, offset: int, max_bytes: int) -> tuple[memoryview, int]:
    """The batches from the one that holds ``offset`` on, and the offset behind them.

    They have at most ``max_bytes`` together, but there is at least one.
    """
    start, end, next_offset = NO_OFFSET, 0, NO_OFFSET
    for header, position in iter_batches(data):
        if header.last_offset < offset:
            continue
        if start == NO_OFFSET:
            start = position
        elif position + header.size - start > max_bytes:
            break
        end, next_offset = position + header.size, header.next_offset
    return memoryview(data)[start:end], next_offset
