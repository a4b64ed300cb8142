"""The frame decoder of a server: received bytes -> whole frames in shared memory.

Owns: the unfinished frame of one connection.  Must not know sockets or what a frame holds.
``get_buffer`` and ``buffer_updated`` have the signatures of ``asyncio.BufferedProtocol``.

Limits: a frame is at most ``max_frame_bytes`` long.  All connections receive into shared memory
(``receive_memory.py``).  Between receives, a connection holds only its unfinished frame: a copy of
the bytes if the frame will fit into the next receive, else a buffer of its own, whose memory grows
with the bytes that arrive.  The buffer is given back as soon as the frame was handled.
"""

from typing import Final

from sparklog.wire.framing.frame_length import LENGTH_BYTES, invalid_length, unpack_length
from sparklog.wire.framing.receive_memory import (
    SCARCE_BYTES,
    SHARED_BYTES,
    SPARE_BYTES_MAX,
    ReceiveMemory,
)

#: Unfinished frames up to this size are copied once, to the front of the next receive.
CARRIED_BYTES_MAX: Final = 256 * 1024
#: Up to this size, the bytes of an unfinished frame are copied at every receive.  The alternative,
#: a buffer, is a memory map, and their number per process is limited.
SMALL_BYTES_MAX: Final = 2 * SCARCE_BYTES


class FrameDecoder:
    """Received bytes -> whole frames.

    ``unfinished_bytes`` is the size of the unfinished frame, length bytes included.  It is 0
    without such a frame, and ``LENGTH_BYTES`` while the length is not known.
    """

    __slots__ = (
        "_carried",
        "_end",
        "_expected",
        "_max_frame_bytes",
        "_memory",
        "_own",
        "unfinished_bytes",
        "used",
    )

    def __init__(self, max_frame_bytes: int, memory: ReceiveMemory | None = None) -> None:
        self.unfinished_bytes = 0
        self._max_frame_bytes = max_frame_bytes
        self._memory = memory or ReceiveMemory()
        self._carried = b""
        #: The buffer of an unfinished large frame, of which ``_end`` bytes have arrived.
        self._own: memoryview | None = None
        self._end = 0
        #: The buffer of the frames that were returned last, if it is not the shared one.
        self.used: memoryview | None = None
        #: Size of the last frame if it was large, because the next frame is probably large too.
        self._expected = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of the unfinished frame that have arrived."""
        return len(self._carried) if self._own is None else self._end

    @property
    def capacity_bytes(self) -> int:
        """Size of the buffers that this connection holds; not all of it is backed by memory."""
        buffers = [buffer for buffer in (self._own, self.used) if buffer is not None]
        return len(self._carried) + sum(map(len, buffers))

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """The buffer for the next receive; never empty.  Invalidates the frames returned before."""
        if self.used is not None:
            self.frames_done()
        if self._own is not None:
            return self._own[self._end : self.unfinished_bytes or self._expected]
        memory, carried = self._memory, len(self._carried)
        if carried:
            memory.shared[:carried] = self._carried
        elif self._expected and not memory.scarce:
            self._own = memory.take_spare(self._expected)
            if self._own is not None:
                self._end = 0
                return self._own[: self._expected]
        if memory.scarce:
            return memory.shared[carried : carried + SCARCE_BYTES]
        return memory.shared[carried:]

    def buffer_updated(self, byte_count: int) -> list[memoryview]:
        """Whole frames, without their lengths, after ``byte_count`` bytes went into the buffer.

        The views are writable and valid until ``frames_done`` or the next ``get_buffer`` of any
        decoder with the same memory.  Raises FrameError when a length is negative or too large;
        the connection must be closed then.
        """
        own = self._own
        if own is None:
            buffer, end = self._memory.shared, len(self._carried) + byte_count
        else:
            buffer, end = own, self._end + byte_count
        assert end <= len(buffer)
        frames = []
        start = needed = last_bytes = 0
        while end - start >= LENGTH_BYTES:
            frame_start = start + LENGTH_BYTES
            length = unpack_length(buffer, start)[0]
            if not 0 <= length <= self._max_frame_bytes:
                raise invalid_length(length, self._max_frame_bytes)
            frame_end = frame_start + length
            if frame_end > end:
                needed = LENGTH_BYTES + length
                break
            frames.append(buffer[frame_start:frame_end])
            last_bytes = frame_end - start
            start = frame_end
        if own is not None:
            self._after_own(own, start, end, needed, last_bytes)
        elif start == end:
            self._carried = b""
            self.unfinished_bytes = 0
        else:
            self._stash(buffer[start:end], needed or LENGTH_BYTES, again=not start)
        return frames

    def frames_done(self) -> None:
        """The frames that were returned are not used any more."""
        if self.used is not None:
            self._memory.give_back(self.used)
            self.used = None

    def close(self) -> None:
        """Release all memory; the connection has ended."""
        self.frames_done()
        if self._own is not None:
            self._memory.give_back(self._own)
            self._own = None
        self._carried = b""
        self.unfinished_bytes = self._expected = self._end = 0

    def _after_own(
        self, own: memoryview, start: int, end: int, needed: int, last_bytes: int
    ) -> None:
        """Keep the rest of an own buffer after the frames up to ``start`` were returned."""
        if start:
            large = CARRIED_BYTES_MAX < last_bytes <= SPARE_BYTES_MAX
            self._expected = last_bytes if large else 0
            self.used, self._own = own, None
            self.unfinished_bytes = 0
        if start == end:
            return
        if not start and needed and needed <= len(own):
            self._end, self.unfinished_bytes = end, needed
            return
        if not start:
            self._own = None
        self._stash(own[start:end], needed or LENGTH_BYTES, again=False)
        if not start:
            self._memory.give_back(own)

    def _stash(self, rest: memoryview, needed: int, *, again: bool) -> None:
        """Copy the bytes of an unfinished frame out of the shared memory."""
        again = again and len(self._carried) >= LENGTH_BYTES
        self.unfinished_bytes = needed
        if len(rest) <= SMALL_BYTES_MAX or (needed <= CARRIED_BYTES_MAX and not again):
            self._carried = bytes(rest)
            return
        self._carried = b""
        self._own = self._memory.take(needed)
        self._end = len(rest)
        self._own[: self._end] = rest


assert SMALL_BYTES_MAX < CARRIED_BYTES_MAX < SHARED_BYTES
