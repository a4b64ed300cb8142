"""The reserve of a log directory: disk space for its checkpoints when the disk is full.

Owns: the file ``.checkpoint-reserve``, its two slots, and which slot counts.  Must not know what
the checkpoints say, or when they are written.

Deletions of segments wait for a checkpoint, and a new file needs free blocks.  Without the reserve
nothing could be deleted on a disk that has none.  The reserve takes its blocks while there are some
and never gives them away: a write replaces bytes in place, so that records cannot take the space
first, and the next write finds the space again.  A write goes to the slot that does not count, so
that a crash leaves the contents of the other one.

Each slot has, big endian, the CRC-32C u32 of everything behind it, a sequence number u64 and the
size u32 of its contents.  These are the checkpoints, each behind a line of its name and its size in
bytes.  The valid slot with the higher sequence number counts.
"""

import logging
import re
import struct
from collections.abc import Mapping
from typing import Final

from crc32c import crc32c

from sparklog.errors import DecodeError, StorageError
from sparklog.storage_backends.base import FileHalf

RESERVE_FILE: Final = ".checkpoint-reserve"

_CRC: Final = struct.Struct(">I")
_HEADER: Final = struct.Struct(">QI")
_LINE: Final = re.compile(rb"([a-z-]{1,64}) (\d{1,9})\n")
#: Slots are multiples of this, so that two slots share no block of the disk.
_BLOCK_BYTES: Final = 4096
#: The bytes of a reserve without contents.  A file system may store zeros as a hole.
_FILLER: Final = b"\xff"

logger = logging.getLogger(__name__)


class CheckpointReserve:
    """The reserve of one log directory.  All calls block.

    A file system that never writes in place (btrfs, ZFS) may refuse a write on a full disk; then
    the reserve does not help.
    """

    def __init__(self, half: FileHalf, log_dir: str) -> None:
        self._half = half
        self._path = f"{log_dir}/{RESERVE_FILE}"
        self._slot_bytes = 0
        self._sequence = 0
        #: The checkpoints in the slot that counts, by name; a checkpoint that has a file does not
        #: count here.
        self.contents: Mapping[str, bytes] = {}

    @property
    def exists(self) -> bool:
        return self._slot_bytes > 0

    @property
    def is_used(self) -> bool:
        """Whether there are contents, be they outdated."""
        return self._sequence > 0

    def load(self) -> None:
        """Read the reserve, if there is one.  Raises StorageError."""
        data = self._half.read_if_there(self._path) or b""
        self._slot_bytes = len(data) // 2
        for slot in (data[: self._slot_bytes], data[self._slot_bytes :]):
            try:
                sequence, contents = decode_slot(slot)
            except DecodeError:
                continue
            if sequence > self._sequence:
                self._sequence, self.contents = sequence, contents

    def make_ready(self, checkpoints: Mapping[str, bytes]) -> None:
        """Make a reserve that is empty and large enough for these checkpoints.

        They must be in their files: the contents of the reserve are dropped.  A reserve that cannot
        be made is tried again with the next call.
        """
        size = len(encode_slot(self._sequence, checkpoints))
        is_large_enough = 4 * size <= 3 * self._slot_bytes  # offsets grow while a disk is full
        if is_large_enough and not self.is_used:
            return
        slot_bytes = -(-2 * size // _BLOCK_BYTES) * _BLOCK_BYTES
        try:
            self._half.put(self._path, _FILLER * (2 * slot_bytes))
        except StorageError as error:
            level = logging.DEBUG if is_large_enough else logging.WARNING
            logger.log(level, "no space is reserved for the checkpoints: %s", error)
            return
        self._slot_bytes, self._sequence, self.contents = slot_bytes, 0, {}

    def write(self, checkpoints: Mapping[str, bytes]) -> bool:
        """Replace the contents, durably.  Returns False, and changes nothing, without room.

        Raises StorageError; then a crash may leave the old contents or the new ones.
        """
        sequence = self._sequence + 1
        slot = encode_slot(sequence, checkpoints)
        if len(slot) > self._slot_bytes:
            return False
        handle = self._half.open(self._path)
        try:
            handle.overwrite(sequence % 2 * self._slot_bytes, slot)
            handle.flush()
        finally:
            handle.close()
        self._sequence, self.contents = sequence, dict(checkpoints)
        return True


def encode_slot(sequence: int, checkpoints: Mapping[str, bytes]) -> bytes:
    contents = b"".join(
        f"{name} {len(data)}\n".encode() + data for name, data in checkpoints.items()
    )
    body = _HEADER.pack(sequence, len(contents)) + contents
    return _CRC.pack(crc32c(body)) + body


def decode_slot(slot: bytes) -> tuple[int, dict[str, bytes]]:
    """The sequence number and the checkpoints.  Raises DecodeError for an empty or torn slot."""
    start = _CRC.size + _HEADER.size
    if len(slot) < start:
        raise DecodeError(f"a slot of {len(slot)} bytes has no header")
    (crc,), (sequence, size) = _CRC.unpack_from(slot), _HEADER.unpack_from(slot, _CRC.size)
    end = start + size
    if len(slot) < end or crc32c(slot[_CRC.size : end]) != crc:
        raise DecodeError("the slot is empty or torn")
    checkpoints: dict[str, bytes] = {}
    while start < end:
        line = _LINE.match(slot, start, end)
        if line is None or line.end() + int(line[2]) > end:
            raise DecodeError(f"no checkpoint is at byte {start} of the slot")
        start = line.end() + int(line[2])
        checkpoints[line[1].decode()] = slot[line.end() : start]
    return sequence, checkpoints
