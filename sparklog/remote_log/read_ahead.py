"""Read-ahead: the chunks of an object that a sequential reader is going to ask for.

Owns: the recognition of sequential readers by the chunks that they read, and the number of chunks
to read ahead of each.  Must not know what is cached, or how a chunk is fetched.

A read has no name of its reader.  So a read continues an earlier one if it begins in the last chunk
of that read or in the next chunk.  A fetch of a broker begins in the chunk where the one before it
has found its last whole batch, which is one of these two.
"""

from collections import OrderedDict
from dataclasses import dataclass

from sparklog.remote_log.chunk_index import ChunkKey


@dataclass(slots=True)
class _Reader:
    #: The number of chunks to read ahead of the reader.
    window: int = 0


class ReadAhead:
    """The sequential readers of all objects.

    Args:
        chunks_max: how far to read ahead of one reader, in chunks; 0 disables it.
        readers_max: readers that are remembered; the one that has read longest ago is forgotten.
    """

    def __init__(self, chunks_max: int, readers_max: int) -> None:
        self._chunks_max = chunks_max
        self._readers_max = readers_max
        #: The readers by the last chunk that they have read, least recent first.
        self._readers: OrderedDict[ChunkKey, _Reader] = OrderedDict()

    def plan(self, object_path: str, first: int, last: int, count: int) -> range:
        """The chunks to fetch ahead of a reader that reads the chunks ``first`` to ``last``.

        The number of chunks is 0 for a new reader.  It becomes 1, and then doubles, each time that
        the reader proceeds to a later chunk.

        Args:
            count: the number of chunks of the object.
        """
        key = ChunkKey(object_path, last)
        reader = self._readers.pop(ChunkKey(object_path, first), None)
        stays = reader is not None and first == last
        reader = reader or self._readers.pop(ChunkKey(object_path, first - 1), None)
        if reader is None:
            reader = _Reader()
        elif not stays:
            reader.window = min(max(1, 2 * reader.window), self._chunks_max)
        self._readers.pop(key, None)  # another reader that has come as far
        self._readers[key] = reader
        if len(self._readers) > self._readers_max:
            self._readers.popitem(last=False)
        return range(last + 1, min(last + 1 + reader.window, count))
