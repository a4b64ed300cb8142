"""The frame decoder of a client: received bytes -> whole frames, each in memory of its own.

Owns: the receive buffers of one connection.  Must not know sockets or what a frame holds.  A frame
of ``frames.FrameDecoder`` lives until the next receive; this decoder's frames are the caller's own.
Small frames are copied; a large frame is received directly into its own memory.  A frame is at most
``max_frame_bytes`` long.  The memory of a frame above ``SPARE_BYTES_MAX`` grows with the bytes that
arrive, whatever length the server declares, until a frame of that size has arrived.
"""

from typing import Final

from sparklog.wire.framing.frame_length import LENGTH_BYTES, invalid_length, unpack_length
from sparklog.wire.framing.receive_memory import new_buffer

SHARED_BYTES: Final = 64 * 1024
#: Largest memory that is kept for the next large frame after it was given back.
SPARE_BYTES_MAX: Final = 4 * 1024 * 1024


class OwnedFrameDecoder:
    """A buffer for small frames, and an own buffer for an unfinished large frame."""

    __slots__ = (
        "_end",
        "_large",
        "_large_end",
        "_max_frame_bytes",
        "_proved_bytes",
        "_shared",
        "_spare",
    )

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._shared = memoryview(bytearray(SHARED_BYTES))
        self._end = 0
        self._large: memoryview | None = None
        self._large_end = 0
        self._spare = bytearray()
        #: Memory of this size is allocated as declared, because memory that is reused is faster.
        self._proved_bytes = SPARE_BYTES_MAX

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """The buffer for the next receive; never empty."""
        if self._large is not None:
            return self._large[self._large_end :]
        return self._shared[self._end :]

    def buffer_updated(self, byte_count: int) -> list[memoryview]:
        """Whole frames, without their lengths, after ``byte_count`` bytes went into the buffer.

        Raises FrameError when a length is negative or too large.
        """
        if self._large is not None:
            self._large_end += byte_count
            if self._large_end < len(self._large):
                return []
            frame, self._large = self._large, None
            self._proved_bytes = max(self._proved_bytes, len(frame))
            return [frame]
        self._end += byte_count
        return self._cut()

    def give_back(self, frame: memoryview) -> None:
        """Reuse the memory of a frame: neither it nor a view of it is used any more.

        Allocating new memory costs more than receiving into it.
        """
        memory = frame.obj
        if isinstance(memory, bytearray) and len(self._spare) < len(memory) <= SPARE_BYTES_MAX:
            self._spare = memory

    def close(self) -> None:
        """Release all memory; the connection has ended.  Frames that were returned stay valid."""
        self._shared = memoryview(bytearray(LENGTH_BYTES))
        self._end = 0
        self._large = None
        self._spare = bytearray()

    def _cut(self) -> list[memoryview]:
        frames = []
        shared, start, end = self._shared, 0, self._end
        while end - start >= LENGTH_BYTES:
            size = unpack_length(shared, start)[0]
            if not 0 <= size <= self._max_frame_bytes:
                raise invalid_length(size, self._max_frame_bytes)
            frame_start = start + LENGTH_BYTES
            if frame_start + size > end:
                if LENGTH_BYTES + size > SHARED_BYTES:
                    self._begin_large(shared[frame_start:end], size)
                    start = end
                break
            start = frame_start + size
            frames.append(memoryview(bytes(shared[frame_start:start])))
        rest = end - start
        if start and rest:
            shared[:rest] = bytes(shared[start:end])
        self._end = rest
        return frames

    def _begin_large(self, first: memoryview, size: int) -> None:
        if len(self._spare) >= size:
            self._large = memoryview(self._spare)[:size]
            self._spare = bytearray()
        elif size <= self._proved_bytes:
            self._large = memoryview(bytearray(size))
        else:
            self._large = new_buffer(size)
        self._large[: len(first)] = first
        self._large_end = len(first)
