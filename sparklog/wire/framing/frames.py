"""Bytes in, whole frames out: the four length bytes and nothing else.

Owns: the unfinished frame of one connection.  Must not know sockets or what a frame says.
``get_buffer`` and ``buffer_updated`` have the shape of ``asyncio.BufferedProtocol``.

Limits: a frame is at most ``max_frame_bytes`` long.  A connection receives into memory that it
shares with others (``receive_memory.py``) and holds only the unfinished frame at the end of a
receive: a copy of its bytes when it will fit into the next receive, else a buffer of its own, whose
memory grows with the bytes that arrive.  The buffer goes back as soon as the frame was handled.
"""

from typing import Final

from sparklog.wire.framing.frame_length import LENGTH_BYTES, invalid_length, unpack_length
from sparklog.wire.framing.receive_memory import (
    SCARCE_BYTES,
    SHARED_BYTES,
    SPARE_BYTES_MAX,
    ReceiveMemory,
)

#: Unfinished frames up to this size are copied once, in front of what comes next.
CARRIED_BYTES_MAX: Final = 256 * 1024
#: So many bytes of an unfinished frame are copied however often more of them arrive.  A buffer is a
#: map, of which a process can have only so many.
SMALL_BYTES_MAX: Final = 2 * SCARCE_BYTES


class FrameDecoder:
    """Received bytes -> whole frames.

    ``unfinished_bytes`` is the size, length bytes included, of the frame that has not wholly
    arrived: 0 without one, ``LENGTH_BYTES`` while its size is not known.
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
        #: The buffer of a large frame under way, of which ``_end`` bytes have arrived.
        self._own: memoryview | None = None
        self._end = 0
        #: A buffer with frames that were handed out.
        self.used: memoryview | None = None
        #: Size of the last frame if it was large: the next one probably is, too.
        self._expected = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes of a frame that has not wholly arrived."""
        return len(self._carried) if self._own is None else self._end

    @property
    def capacity_bytes(self) -> int:
        """Size of the memory that this connection holds; of a buffer not all has to be there."""
        buffers = [buffer for buffer in (self._own, self.used) if buffer is not None]
        return len(self._carried) + sum(map(len, buffers))

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where the next bytes go; never empty.  Frames handed out before end their life here."""
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
        the connection is then of no use any more.
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
        """Nobody uses the frames that were handed out any more."""
        if self.used is not None:
            self._memory.give_back(self.used)
            self.used = None

    def close(self) -> None:
        """Let go of all memory; the connection has ended."""
        self.frames_done()
        if self._own is not None:
            self._memory.give_back(self._own)
            self._own = None
        self._carried = b""
        self.unfinished_bytes = self._expected = self._end = 0

    def _after_own(
        self, own: memoryview, start: int, end: int, needed: int, last_bytes: int
    ) -> None:
        """What of a buffer of its own is left after frames up to ``start`` were cut."""
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
        """Keep the bytes of an unfinished frame out of the way of other connections."""
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
