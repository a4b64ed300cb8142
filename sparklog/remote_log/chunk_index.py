"""Which chunks of objects are in the cache, and which of them have to go.

Owns: the files of the chunks by number, their order of use (LRU), pins, and the bytes in use.  Must
not know how a file is written, where objects come from, or threads: the caller holds a lock.

A chunk is reserved before its file is written, and found once that is done.  A pinned chunk is
being read; it is neither evicted nor deleted until its last pin is gone.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

#: After the disk was full, the limit grows by one byte for so many bytes that are added.
_GROWTH_DIVISOR: Final = 8


class ChunkKey(NamedTuple):
    """The chunk with this number, from 0, of an object."""

    object_path: str
    number: int


@dataclass(slots=True, kw_only=True, eq=False)
class CachedChunk:
    """A chunk and the number of its file, which no other chunk had before."""

    key: ChunkKey
    file: int
    size: int
    pins: int = 0


class ChunkIndex:
    """The chunks of a cache that has at most ``bytes_max`` bytes.

    A full disk lowers the limit (``shrink``), and each chunk that is added raises it a little.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        #: The present limit.
        self._limit = bytes_max
        #: Bytes of the chunks that are found, and of ``_unlisted``.
        self.bytes_used = 0
        #: The chunks that are found, least recently used first.
        self._chunks: OrderedDict[ChunkKey, CachedChunk] = OrderedDict()
        #: Reserved chunks, and discarded ones that are pinned.
        self._unlisted: set[CachedChunk] = set()
        self._next_file = 0

    def __contains__(self, key: ChunkKey) -> bool:
        return key in self._chunks

    # -- readers

    def pin(self, key: ChunkKey) -> CachedChunk | None:
        """Find a chunk and keep it until ``unpin``; None if it is not there.  This is its use."""
        chunk = self._chunks.get(key)
        if chunk is not None:
            self._chunks.move_to_end(key)
            chunk.pins += 1
        return chunk

    def get(self, key: ChunkKey) -> CachedChunk | None:
        """Find a chunk; this is no use of it."""
        return self._chunks.get(key)

    def unpin(self, chunk: CachedChunk) -> bool:
        """Take one pin away.  Returns whether the chunk's file must be deleted now."""
        assert chunk.pins > 0, f"{chunk} is not pinned"
        chunk.pins -= 1
        if chunk.pins or chunk not in self._unlisted:
            return False
        self.release(chunk)
        return True

    # -- changes

    def reserve(self, key: ChunkKey, size: int) -> tuple[CachedChunk, Sequence[CachedChunk]] | None:
        """Make room for a chunk that is going to be written.

        Returns:
            The chunk, for ``add`` or ``release``, and the chunks that were evicted for it, whose
            files must be deleted.  None if there is no room: then nothing was evicted.
        """
        assert key not in self._chunks, f"{key} is there"
        evicted = self._victims(size)
        if evicted is None:
            return None
        for victim in evicted:
            del self._chunks[victim.key]
            self.bytes_used -= victim.size
        chunk = CachedChunk(key=key, file=self._next_file, size=size)
        self._next_file += 1
        self._unlisted.add(chunk)
        self.bytes_used += size
        return chunk, evicted

    def add(self, chunk: CachedChunk, pins: int = 0) -> None:
        """Let a reserved chunk be found, as the one used last, with so many readers."""
        self._unlisted.remove(chunk)
        assert chunk.key not in self._chunks, f"{chunk.key} was added twice"
        chunk.pins = pins
        self._chunks[chunk.key] = chunk
        self._limit = min(self.bytes_max, self._limit + chunk.size // _GROWTH_DIVISOR)

    def release(self, chunk: CachedChunk) -> None:
        """Give the room of a reserved chunk back."""
        self._unlisted.remove(chunk)
        self.bytes_used -= chunk.size

    def shrink(self, least: int) -> Sequence[CachedChunk]:
        """Halve the bytes in use, and let the cache have no more, or ``least`` bytes.

        Returns:
            The chunks that were evicted, whose files must be deleted.
        """
        self._limit = min(self.bytes_max, max(self.bytes_used // 2, least))
        evicted = self._oldest(self.bytes_used - self._limit)
        for chunk in evicted:
            self.discard(chunk)
        return evicted

    def discard(self, chunk: CachedChunk) -> bool:
        """Let a chunk not be found any more.  Returns whether its file must be deleted now."""
        if self._chunks.get(chunk.key) is not chunk:
            return False
        del self._chunks[chunk.key]
        if chunk.pins:
            self._unlisted.add(chunk)
            return False
        self.bytes_used -= chunk.size
        return True

    def discard_object(self, object_path: str) -> Sequence[CachedChunk]:
        """Discard the chunks of an object.  Returns those whose files must be deleted now."""
        found = [chunk for key, chunk in self._chunks.items() if key.object_path == object_path]
        return [chunk for chunk in found if self.discard(chunk)]

    def _victims(self, size: int) -> Sequence[CachedChunk] | None:
        """The least recently used chunks that make room for ``size`` bytes."""
        excess = self.bytes_used + size - self._limit
        victims = self._oldest(excess)
        return victims if sum(chunk.size for chunk in victims) >= excess else None

    def _oldest(self, size: int) -> Sequence[CachedChunk]:
        """The least recently used chunks without pins that have ``size`` bytes, or all of them."""
        found: list[CachedChunk] = []
        for chunk in self._chunks.values():
            if size <= 0:
                break
            if not chunk.pins:
                found.append(chunk)
                size -= chunk.size
        return found

    def check_invariants(self) -> None:
        held = [*self._chunks.values(), *self._unlisted]
        assert self.bytes_used == sum(chunk.size for chunk in held)
        assert self.bytes_used <= self.bytes_max
        assert len({chunk.file for chunk in held}) == len(held), "two chunks have one file"
        assert all(key == chunk.key for key, chunk in self._chunks.items())
        assert all(chunk.pins >= 0 for chunk in held)
