"""Records from the bucket, as they have come and as a fetch sends them.

Owns: where the bytes are, in memory or in files of this host, and where they are cut.  Must not
know who fetched them.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from sparklog.errors import StorageError
from sparklog.remote_log.reading import RemoteRead
from sparklog.storage_backends.base import FileHandle, Region
from sparklog.storage_backends.joined_region import JoinedRegion
from sparklog.types import MAX_INT64, NO_OFFSET
from sparklog.wire.records.batch import BATCH_OVERHEAD, Buffer, batch_size, read_header

#: Bytes that are read from a file at once to find where batches end.
_WINDOW_BYTES: Final = 32 * 1024


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


class Place(Protocol):
    """Where the batches of one read are."""

    @property
    def size(self) -> int: ...

    @property
    def memory_bytes(self) -> int: ...

    def peek(self, start: int, stop: int) -> bytes | memoryview:
        """The bytes; fewer at the end.  Raises StorageError."""

    def region(self, start: int, stop: int) -> Region:
        """Raises StorageError."""


class MemoryPlace:
    """Batches in memory."""

    __slots__ = ("_data", "memory_bytes", "size")

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self.size = self.memory_bytes = len(data)

    def peek(self, start: int, stop: int) -> memoryview:
        return self._data[start:stop]

    def region(self, start: int, stop: int) -> Region:
        return BytesRegion(self._data[start:stop])


class _OpenPiece(NamedTuple):
    """A range of an open file, which begins at ``start`` of the batches."""

    file: FileHandle
    position: int
    start: int
    size: int


class FilesPlace:
    """Batches in pieces of files, which may have been deleted since they were opened."""

    __slots__ = ("_pieces", "memory_bytes", "size")

    def __init__(self, pieces: Sequence[tuple[FileHandle, int, int]]) -> None:
        """``pieces`` are open files, positions and sizes, in the order of the batches."""
        self._pieces: list[_OpenPiece] = []
        self.size = self.memory_bytes = 0
        for file, position, size in pieces:
            self._pieces.append(_OpenPiece(file, position, self.size, size))
            self.size += size

    def peek(self, start: int, stop: int) -> bytes:
        return b"".join([
            file.read(position, size) for file, position, size in self._cut(start, stop)
        ])  # fmt: skip

    def region(self, start: int, stop: int) -> Region:
        regions = [file.region(position, size) for file, position, size in self._cut(start, stop)]
        region = regions[0] if len(regions) == 1 else JoinedRegion(regions)
        if region.size != stop - start:
            region.release()
            raise StorageError(
                f"a file of the cache has {region.size} bytes where {stop - start} are due"
            )
        return region

    def _cut(self, start: int, stop: int) -> list[tuple[FileHandle, int, int]]:
        found = []
        for piece in self._pieces:
            first, last = max(start, piece.start), min(stop, piece.start + piece.size)
            if first < last:
                found.append((piece.file, piece.position + first - piece.start, last - first))
        return found


def find_place(read: RemoteRead, open_file: Callable[[str], FileHandle]) -> Place:
    """Where the batches of a read are.  Raises StorageError for a file that is gone."""
    if not read.pieces:
        return MemoryPlace(read.data)
    return FilesPlace([(open_file(each.name), each.position, each.size) for each in read.pieces])


def whole_batches(
    place: Place, offset: int, max_bytes: int, end_offset: int = MAX_INT64
) -> tuple[int, int, int]:
    """Start and stop of the batches from the one that holds ``offset`` on, and the offset behind.

    They have at most ``max_bytes`` together and end at or below ``end_offset``, but there is at
    least one.  Raises StorageError.
    """
    start, stop, next_offset = NO_OFFSET, 0, NO_OFFSET
    position = 0
    window, window_start = place.peek(0, _WINDOW_BYTES), 0
    while position < place.size:
        if position + BATCH_OVERHEAD > window_start + len(window):
            window, window_start = place.peek(position, position + _WINDOW_BYTES), position
        size = batch_size(window, position - window_start)
        if size is None:
            raise StorageError(f"a batch at byte {position} of {place.size} is cut off")
        header = read_header(window, position - window_start)
        end = position + size
        if header.last_offset >= offset:
            if start == NO_OFFSET:
                start = position
            elif end - start > max_bytes or header.next_offset > end_offset:
                break
            stop, next_offset = end, header.next_offset
        position = end
    return start, stop, next_offset
