"""The memory that the frame decoders of one event loop share.

Owns: one buffer into which every connection receives, and the buffers of frames that do not fit
into one receive.  Must not know sockets, frames, or how much memory a server may use.

An event loop receives bytes and passes them on in one step.  So one buffer serves all connections,
and an idle connection holds none.  Buffers of large frames are anonymous memory maps: the kernel
supplies their pages as bytes arrive, whatever length was declared, and frees them with the map.
"""

import mmap
from bisect import bisect_left, insort
from typing import Final

#: Bytes of one receive.  A larger buffer is not faster and does not fit into CPU caches.
SHARED_BYTES: Final = 512 * 1024
#: Bytes of one receive of a connection without a claim while memory is short.
SCARCE_BYTES: Final = 4096
#: Largest buffer that is kept for a later frame, and the sum of all kept buffers.
SPARE_BYTES_MAX: Final = 4 * 2**20
SPARES_BYTES_MAX: Final = 8 * 2**20
#: Buffers come in multiples of this, so that frames of similar sizes can use the same ones.
_STEP_BYTES: Final = 64 * 1024


class ReceiveMemory:
    """The shared buffer and the spare buffers; the memory pool of the server sets ``scarce``."""

    __slots__ = ("_spares", "_spares_bytes", "scarce", "shared")

    def __init__(self) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.scarce = False
        self._spares: list[memoryview] = []
        self._spares_bytes = 0

    @property
    def spares_bytes(self) -> int:
        return self._spares_bytes

    def take(self, size: int) -> memoryview:
        """A buffer of at least ``size`` bytes."""
        return self.take_spare(size) or new_buffer(-(-size // _STEP_BYTES) * _STEP_BYTES)

    def take_spare(self, size: int) -> memoryview | None:
        """The smallest spare buffer of at least ``size`` bytes, or None."""
        position = bisect_left(self._spares, size, key=len)
        if position == len(self._spares):
            return None
        spare = self._spares.pop(position)
        self._spares_bytes -= len(spare)
        return spare

    def give_back(self, buffer: memoryview) -> None:
        """Keep a buffer that is not used any more for a later frame, if there is room."""
        size = len(buffer)
        if size <= SPARE_BYTES_MAX and self._spares_bytes + size <= SPARES_BYTES_MAX:
            insort(self._spares, buffer, key=len)
            self._spares_bytes += size

    def drop_spares(self) -> None:
        self._spares.clear()
        self._spares_bytes = 0


def new_buffer(size: int) -> memoryview:
    """A writable buffer whose pages take memory only once they were written to."""
    if not size:
        return memoryview(bytearray())
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
