"""Bytes in, whole frames out: the four length bytes and nothing else.

Owns: the receive buffer of one connection.  Must not know sockets or what a frame says.
``get_buffer`` and ``buffer_updated`` have the shape of ``asyncio.BufferedProtocol``.

Limits: a frame is at most ``max_frame_bytes`` long; a declared length is trusted with at most
``TRUSTED_BYTES`` of memory, beyond that the buffer only grows as bytes really arrive.  A peer that
sends faster than it is read gets a buffer of ``BUSY_BYTES``, so that many small frames come with
one receive.  A connection keeps at most ``KEPT_BYTES`` between frames, and more than
``INITIAL_BYTES`` only while it goes on using them.
"""

from struct import Struct
from typing import Final

from sparklog.errors import FrameError

LENGTH_BYTES: Final = 4
#: What an idle connection holds.
INITIAL_BYTES: Final = 64 * 1024
#: More than this at once no longer pays, and the caches are only so large.
BUSY_BYTES: Final = 512 * 1024
TRUSTED_BYTES: Final = 2**20
KEPT_BYTES: Final = 4 * 2**20
#: So many times in a row the buffer may turn out too large before it shrinks.
PATIENCE: Final = 64
_LENGTH: Final = Struct(">i")


def frame_length(size: int) -> bytes:
    """The length bytes in front of a frame of ``size`` bytes."""
    return _LENGTH.pack(size)


class FrameDecoder:
    """A reusable, growing receive buffer that is cut into frames."""

    __slots__ = (
        "_buffer",
        "_busy_bytes",
        "_capacity",
        "_end",
        "_initial_bytes",
        "_max_frame_bytes",
        "_start",
        "_too_large",
    )

    def __init__(self, max_frame_bytes: int, initial_bytes: int = INITIAL_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._initial_bytes = initial_bytes
        self._busy_bytes = initial_bytes * (BUSY_BYTES // INITIAL_BYTES)
        self._buffer = memoryview(bytearray(initial_bytes))
        self._capacity = initial_bytes
        self._start = 0
        self._end = 0
        self._too_large = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has not wholly arrived."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        return self._capacity

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty.  Frames handed out before end their life here."""
        if self._end == self._capacity < self._busy_bytes:
            self._move_to(self._busy_bytes)
        elif self._start == self._end:
            if self._capacity > self._initial_bytes:
                self._shrink()
            self._start = self._end = 0
        else:
            self._make_room()
        return self._buffer[self._end :]

    def buffer_updated(self, byte_count: int) -> list[memoryview]:
        """Whole frames, without their lengths, after ``byte_count`` bytes went into the buffer.

        The views are writable and valid until the next ``get_buffer``.  Raises FrameError when a
        length is negative or too large; the connection is then of no use any more.
        """
        self._end += byte_count
        assert self._end <= self._capacity
        frames = []
        buffer, start, end = self._buffer, self._start, self._end
        while end - start >= LENGTH_BYTES:
            frame_start = start + LENGTH_BYTES
            length = _LENGTH.unpack_from(buffer, start)[0]
            if not 0 <= length <= self._max_frame_bytes:
                raise self._refusal(length)
            frame_end = frame_start + length
            if frame_end > end:
                break
            frames.append(buffer[frame_start:frame_end])
            start = frame_end
        self._start = start
        return frames

    def _checked_length(self, offset: int) -> int:
        length: int = _LENGTH.unpack_from(self._buffer, offset)[0]
        if not 0 <= length <= self._max_frame_bytes:
            raise self._refusal(length)
        return length

    def _refusal(self, length: int) -> FrameError:
        if length < 0:
            return FrameError(f"a frame cannot have {length} bytes")
        return FrameError(f"a frame of {length} bytes exceeds the limit of {self._max_frame_bytes}")

    def _shrink(self) -> None:
        """Gives memory back; ``_end`` says how much of it the last frames took."""
        if self._end > self._capacity // 4:
            self._too_large = 0
        else:
            self._too_large += 1
        if self._capacity > KEPT_BYTES or self._too_large > PATIENCE:
            self._too_large = 0
            self._start = self._end = 0
            self._move_to(self._initial_bytes)

    def _make_room(self) -> None:
        """Moves the unfinished frame to the front, into a larger buffer when it needs one."""
        pending = self._end - self._start
        capacity = self._capacity
        if pending >= LENGTH_BYTES:
            needed = LENGTH_BYTES + self._checked_length(self._start)
            if needed > capacity:
                arrived = 2 * capacity if pending == capacity else capacity
                capacity = min(needed, max(arrived, TRUSTED_BYTES))
        if capacity > self._capacity:
            self._move_to(capacity)
        elif self._start:
            self._buffer[:pending] = self._buffer[self._start : self._end]
            self._start, self._end = 0, pending

    def _move_to(self, capacity: int) -> None:
        pending = self._end - self._start
        grown = memoryview(bytearray(capacity))
        grown[:pending] = self._buffer[self._start : self._end]
        self._buffer, self._capacity = grown, capacity
        self._start, self._end = 0, pending
