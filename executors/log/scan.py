"""The scan of a log file that checks every length, offset and checksum.

Owns: the checks of stored batches, and where the sound part of a file ends.  Must not know what
happens to the rest of the file.  Memory is limited to one window, whatever length a batch claims.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from sparklog.executors.log.roll import fits_relative
from sparklog.storage_backends.base import FileHandle
from sparklog.types import MAX_INT64
from sparklog.wire.records.batch import BATCH_OVERHEAD, CRC_START, BatchHeader, read_header
from sparklog.wire.records.stored_batches import header_damage

_WINDOW_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The result of a scan: the file is sound up to ``valid_size``.

    ``damage`` says what is wrong there; None at the end of the file.
    """

    valid_size: int
    next_offset: int
    damage: str | None


def scan_batches(
    handle: FileHandle,
    base_offset: int,
    visit: Callable[[BatchHeader, int], None],
    *,
    gapless_from: int = MAX_INT64,
) -> Scan:
    """Visit header and position of every sound batch, in order, up to the first damaged batch.

    A batch's checksum leaves its offset out.  From ``gapless_from`` on, where nothing but appends
    can have been, a batch that does not follow the one before is damage too.
    """
    window = ScanWindow(handle)
    position, next_offset = 0, base_offset
    while position < window.size:
        header = window.header(position)
        if header is None:
            damage: str | None = f"a batch header is cut off after {window.size - position} bytes"
        else:
            damage = header_damage(header, window.size - position) or _misplaced(
                header, base_offset, next_offset, gapless=next_offset >= gapless_from
            )
            if damage is None:
                damage = window.checksum_damage(header, position)
        if header is None or damage is not None:
            return Scan(valid_size=position, next_offset=next_offset, damage=damage)
        visit(header, position)
        position += header.size
        next_offset = header.next_offset
    return Scan(valid_size=position, next_offset=next_offset, damage=None)


class ScanWindow:
    """A file read forward in large steps."""

    def __init__(self, handle: FileHandle) -> None:
        self.size = handle.size()
        self._handle = handle
        self._start = 0
        self._bytes = b""

    def read(self, position: int, count: int) -> bytes:
        """Read ``count`` bytes, which may exceed a window; fewer at the end of the file."""
        return self._handle.read(position, count)

    def header(self, position: int) -> BatchHeader | None:
        """The header at ``position``; None when the file ends inside the header."""
        head = self.take(position, BATCH_OVERHEAD)
        return read_header(head) if len(head) == BATCH_OVERHEAD else None

    def checksum_damage(self, header: BatchHeader, position: int) -> str | None:
        """The damage in the checksum of a whole batch; None for a right checksum."""
        at, end, computed = position + CRC_START, position + header.size, 0
        while at < end:
            part = self.take(at, min(end - at, _WINDOW_BYTES))
            if not part:
                return f"the file ends before byte {end}"
            computed = crc32c(part, computed)
            at += len(part)
        if computed == header.crc:
            return None
        return f"CRC is {header.crc:#010x}, the bytes give {computed:#010x}"

    def take(self, position: int, count: int) -> memoryview:
        """Read ``count`` bytes, at most a window; fewer at the end of the file."""
        index = position - self._start
        if not 0 <= index <= len(self._bytes) - count:
            self._bytes = self._handle.read(position, _WINDOW_BYTES)
            self._start, index = position, 0
        return memoryview(self._bytes)[index : index + count]


def _misplaced(
    header: BatchHeader, base_offset: int, next_offset: int, *, gapless: bool
) -> str | None:
    if header.base_offset < next_offset:
        return f"base offset is {header.base_offset} where {next_offset} or more must follow"
    if gapless and header.base_offset > next_offset:
        return f"base offset is {header.base_offset} where {next_offset} must follow"
    if not fits_relative(base_offset, header.last_offset):
        return f"last offset {header.last_offset} is too far from the segment's {base_offset}"
    return None
