"""Memory that reads use again, because fresh memory costs more CPU than what is read into it.

Owns: which memory is free.  Must not know what is read.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

#: Pieces of memory that are used in turn: one that is read into, and those that readers still hold.
_PIECES: Final = 3


class ReadMemory:
    """Memory for one read after the other.

    The bytes of a read stay as they are for as long as a view of them is left; after that their
    memory is used again.  Views must be let go of soon: of more than a few, each has fresh memory.

    Args:
        kept_bytes_max: larger pieces are not used again.
        guard: a lock, where several threads read.
    """

    def __init__(
        self, kept_bytes_max: int, guard: AbstractContextManager[Any] | None = None
    ) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._guard = guard or nullcontext()
        #: The piece that was used last is the last one.
        self._pieces: list[bytearray] = []

    def room(self, size: int, kept: memoryview | bytes = b"") -> memoryview:
        """Memory of ``size`` bytes, which begin with ``kept``."""
        with self._guard:
            whole = memoryview(self._piece(size))[:size]
        whole[: len(kept)] = kept
        return whole

    def _piece(self, size: int) -> bytearray:
        """A piece of at least ``size`` bytes; the last one that was used is the likeliest to be in
        the processor's caches."""
        given_up = 0
        for index in reversed(range(len(self._pieces))):
            if _is_free(self._pieces[index]):
                given_up = index
                if len(self._pieces[index]) >= size:
                    self._pieces.append(self._pieces.pop(index))
                    return self._pieces[-1]
        piece = bytearray(size)
        if 0 < size <= self._kept_bytes_max:
            if len(self._pieces) == _PIECES:
                del self._pieces[given_up]
            self._pieces.append(piece)
        return piece


def _is_free(piece: bytearray) -> bool:
    """Whether there are no views of it: with views, the size of a bytearray cannot change."""
    try:
        piece.append(piece.pop())
    except BufferError:
        return False
    return True
