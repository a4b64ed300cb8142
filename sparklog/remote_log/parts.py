"""The parts of indexes objects, read by range and kept for a while.

Owns: the check of a part against its description, and a bounded cache.  Must not know what a part
means.
"""

from collections.abc import Callable
from typing import Any, Final

from crc32c import crc32c

from sparklog.remote_log.damaged_object import DamagedObjectError
from sparklog.remote_log.remote_segment import PartName, RemoteSegment
from sparklog.wire.records.batch import Buffer

#: Reads (object path, offset, size); fewer bytes at the end of the object.  Raises StorageError.
ReadRange = Callable[[str, int, int], Buffer]

#: Reads (object path, object size, offset, size) of an object whose size is known.
ReadObject = Callable[[str, int, int, int], Buffer]

#: Default of the bytes that are kept.
PART_CACHE_BYTES: Final = 8 * 1024 * 1024

#: Bytes that a kept value takes beside its own.
_OVERHEAD_BYTES: Final = 256

#: The path of the indexes object, and the name of the part or of what was made of the part.
PartKey = tuple[str, str]


class PartCache:
    """The values of parts that were used last, with a limit in bytes.

    Several threads may share a cache: each step is one operation of a dict.  Threads that miss the
    same part at the same time read it twice.
    """

    __slots__ = ("_bytes_max", "_kept")

    def __init__(self, bytes_max: int = PART_CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        #: Values and their sizes, the least recently used first.
        self._kept: dict[PartKey, tuple[Any, int]] = {}

    @property
    def size(self) -> int:
        """Bytes of the kept values, with 256 bytes more for each."""
        return sum(size for _, size in tuple(self._kept.values()))

    def get(self, key: PartKey) -> Any:
        """The value of a part; None if it is not kept."""
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._kept[key] = found
        return found[0]

    def put(self, key: PartKey, value: Any, size: int) -> None:
        """Keep a value of ``size`` bytes, unless it alone exceeds the limit."""
        size += _OVERHEAD_BYTES
        if size > self._bytes_max:
            return
        self._kept[key] = (value, size)
        while self.size > self._bytes_max:
            for oldest in tuple(self._kept)[:1]:
                self._kept.pop(oldest, None)


def read_part(read: ReadRange, path: str, segment: RemoteSegment, name: PartName) -> bytes | None:
    """The bytes of a part of the indexes object ``path``; None if the segment has no such part.

    Raises StorageError, and DamagedObjectError for other bytes than those that were copied.
    """
    part = segment.parts.get(name)
    if part is None:
        return None
    data = bytes(read(path, part.offset, part.size)) if part.size else b""
    if len(data) != part.size:
        reason = f"part {name.value!r} of {part.size} bytes is cut off after {len(data)}"
        raise part_error(path, segment, name, reason)
    found = crc32c(data)
    if found != part.crc:
        reason = f"part {name.value!r} has CRC {part.crc:#010x}, its bytes give {found:#010x}"
        raise part_error(path, segment, name, reason)
    return data


def part_error(
    path: str, segment: RemoteSegment, name: PartName, reason: str
) -> DamagedObjectError:
    """The error for a damaged part, which all offsets of the segment depend on."""
    part = segment.parts.get(name)
    position = 0 if part is None else part.offset
    return DamagedObjectError(path, position, reason, segment.base_offset, segment.next_offset)
