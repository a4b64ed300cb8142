"""A cache on a local disk for reads of objects, by chunks of a fixed size.

Owns: the fetches in progress, the files of chunks, and the counters.  Must not know what the bytes
mean: the caller checks them, and calls ``forget`` if they are damaged.  ``chunk_index`` has the
chunks that are there, ``read_ahead`` decides which ones to fetch before they are asked for.

One process owns the folder of a cache; others may read the files that ``pieces`` names.  ``read``
blocks and may be called from any thread.  Readers of one missing chunk share its fetch.  A fetch
that waits for a background thread is carried out by the first reader that needs it, so readers
never wait for a queue, and may be threads of that pool.

A chunk goes from the store to its file through memory that is used again, and readers read the
file.  The files are not flushed: they are worth nothing after a crash, and the next start removes
them.  A chunk whose file cannot be written is read without being cached; after that, reads fetch
only the bytes that they ask for, and a chunk is tried now and then.  A full disk gets back half of
what the cache has on it, for the log beside it.
"""

import logging
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from operator import add
from typing import Final, NamedTuple, TypeAlias

from sparklog.errors import StorageError
from sparklog.remote_log.chunk_index import CachedChunk, ChunkIndex, ChunkKey
from sparklog.remote_log.read_ahead import ReadAhead
from sparklog.remote_log.read_memory import ReadMemory
from sparklog.storage_backends.base import StorageBackend, shrunk_error

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1024 * 1024
#: Most chunks that are read ahead of one reader.
READ_AHEAD_CHUNKS_MAX: Final = 8
#: Readers whose positions are remembered.
READERS_MAX: Final = 1000
#: Fetches that are queued or in progress in the background.
BACKGROUND_FETCHES_MAX: Final = 64
#: Reads that go past a disk that has failed, before one of them tries to write its chunks.
READS_PAST_DISK: Final = 63
#: The largest reads whose memory is used again; each thread has memory for a few of them.
READ_BYTES_KEPT: Final = 2 * 1024 * 1024

#: Reads (object path, offset) from the store of the objects into the memory, as many bytes as there
#: are and it has room for; returns how many.  It blocks.
ReadInto: TypeAlias = Callable[[str, int, memoryview], int]
#: Carries work out later, in any thread, as ``Executor.submit`` does.
Submit: TypeAlias = Callable[[Callable[[], None]], object]

_FILE_NAME: Final = re.compile(r"[0-9a-f]{16}\.chunk", re.ASCII)


class ChunkCacheCounters(NamedTuple):
    """What a cache has done since it was opened.

    Args:
        hits: chunks of reads that were on the disk.
        misses: chunks of reads that were not; a reader that waits for a fetch is one, too.
        bytes_fetched: from the store of the objects, bytes that were read ahead included.
        evictions: chunks that made room for others.
        write_failures: files of chunks that could not be written, or not be deleted.
        read_failures: files of chunks that could not be read; the chunks were fetched again.
        bytes_used: bytes on the disk now.
    """

    hits: int = 0
    misses: int = 0
    bytes_fetched: int = 0
    evictions: int = 0
    write_failures: int = 0
    read_failures: int = 0
    bytes_used: int = 0

    def added_to(self, earlier: "ChunkCacheCounters") -> "ChunkCacheCounters":
        """What this cache and an earlier one have done together; the earlier one is gone."""
        both = ChunkCacheCounters(*map(add, self, earlier))
        return both._replace(bytes_used=self.bytes_used)


class FilePiece(NamedTuple):
    """``size`` bytes of an object, at ``position`` of a file in the folder of the cache.

    The file may be deleted at any time.  Its name never leads to other bytes.
    """

    name: str
    position: int
    size: int


class _Piece(NamedTuple):
    """The bytes from ``start`` to ``stop`` of a chunk."""

    key: ChunkKey
    start: int
    stop: int


class _Fetch:
    """The fetch of a chunk.  The thread that sets ``begun`` carries it out.

    Each of the ``readers`` that wait for it gets the chunk with a pin of its own, or the bytes of a
    chunk that is not cached.
    """

    __slots__ = ("begun", "found", "key", "object_size", "readers")

    def __init__(self, key: ChunkKey, object_size: int) -> None:
        self.key = key
        self.object_size = object_size
        self.begun = False
        self.readers = 0
        self.found: Future[CachedChunk | bytes] = Future()


class ChunkCache:
    """The cache in the folder ``store``, whose chunk files of earlier runs are removed.

    Args:
        store: the folder; nothing else may be in it that is named as a chunk file is.
        read_into: reads a range of an object.
        submit: carries out fetches in the background, as long as there are readers.
        bytes_max: most bytes of chunk files.
        chunk_bytes: size of a chunk in bytes; the last one of an object is shorter.
        read_ahead_chunks_max: most chunks that are read ahead of one reader; 0 disables it.

    Raises:
        StorageError: an old file cannot be removed.
    """

    def __init__(
        self,
        store: StorageBackend,
        read_into: ReadInto,
        submit: Submit,
        *,
        bytes_max: int,
        chunk_bytes: int = CHUNK_BYTES,
        read_ahead_chunks_max: int = READ_AHEAD_CHUNKS_MAX,
    ) -> None:
        assert chunk_bytes > 0
        self._store = store
        self._read_into = read_into
        self._submit = submit
        self._chunk_bytes = chunk_bytes
        self._guard = threading.Lock()
        self._index = ChunkIndex(bytes_max)
        # The chunks ahead of a few readers must not evict each other.
        ahead_max = min(read_ahead_chunks_max, bytes_max // chunk_bytes // 4)
        self._read_ahead = ReadAhead(ahead_max, READERS_MAX)
        self._fetches: dict[ChunkKey, _Fetch] = {}
        self._background_fetches = 0
        self._counts: Counter[str] = Counter()
        self._disk_takes_chunks = True
        #: The next reads that go past the disk.
        self._reads_past_disk = 0
        #: Free memory for fetches; there is as much as there were fetches at the same time.
        self._buffers: list[bytearray] = []
        self._of_thread = threading.local()
        self._name_prefix = secrets.token_hex(4)
        store.delete_many(name for name in store.list("") if _FILE_NAME.fullmatch(name))

    def read(self, object_path: str, object_size: int, offset: int, size: int) -> memoryview:
        """Up to ``size`` bytes of an object at ``offset``; fewer only at its end.

        They are in memory that is used again by later reads of the thread, once no view of them is
        left.

        Args:
            object_size: the size of the object in bytes, which never changes.

        Raises:
            ChangedFileError: the object is shorter.
            StorageError: it cannot be read.  Readers that wait for the same bytes get this error.
        """
        with self._guard:
            goes_past = self._reads_past_disk > 0
            self._reads_past_disk -= goes_past
        if goes_past:
            return self.read_once(object_path, object_size, offset, size)
        return self._read(object_path, object_size, offset, size, reads_on=True)

    def _read(
        self, object_path: str, object_size: int, offset: int, size: int, *, reads_on: bool
    ) -> memoryview:
        """``reads_on``: whether the reader is going to read what follows."""
        end = min(offset + size, object_size)
        if end <= offset:
            return memoryview(b"")
        pieces = self._pieces(object_path, offset, end)
        keys = [piece.key for piece in pieces]
        found = self._memory().room(end - offset)
        filled = 0
        sources, planned = self._find_sources(keys, object_size, reads_on=reads_on)
        try:
            for fetch in planned:
                self._submit(partial(self._carry_out_in_background, fetch))
            for piece in pieces:
                target = found[filled : filled + piece.stop - piece.start]
                filled += self._read_piece(piece, sources.pop(piece.key), object_size, target)
        finally:
            self._abandon(sources.values())
        return found[:filled]

    def read_once(self, object_path: str, object_size: int, offset: int, size: int) -> memoryview:
        """As ``read``, for bytes that nobody reads on from: what is not cached is not going to be,
        and no more than these bytes are fetched."""
        if self.pieces(object_path, offset, min(size, object_size - offset)):
            return self._read(object_path, object_size, offset, size, reads_on=False)
        data = self._memory().room(max(0, min(size, object_size - offset)))
        return data[: self._fetch_into(object_path, offset, data)] if data else data

    def pieces(self, object_path: str, offset: int, size: int) -> Sequence[FilePiece]:
        """Where ``size`` bytes of an object are in the files of the cache; nothing if not all of
        them are cached."""
        pieces = self._pieces(object_path, offset, offset + size)
        with self._guard:
            chunks = [self._index.get(piece.key) for piece in pieces]
        return [
            FilePiece(self._file_name(chunk), piece.start, piece.stop - piece.start)
            for piece, chunk in zip(pieces, chunks, strict=True)
            if chunk is not None and None not in chunks
        ]

    def forget(self, object_path: str) -> None:
        """Remove the chunks of an object that was deleted, or whose bytes here are damaged.

        A chunk whose fetch is in progress may be cached afterwards.
        """
        with self._guard:
            discarded = self._index.discard_object(object_path)
        self._delete(discarded)

    def counters(self) -> ChunkCacheCounters:
        with self._guard:
            return ChunkCacheCounters(**self._counts, bytes_used=self._index.bytes_used)

    def check_invariants(self) -> None:
        with self._guard:
            self._index.check_invariants()

    # -- one read

    def _pieces(self, object_path: str, offset: int, end: int) -> list[_Piece]:
        pieces: list[_Piece] = []
        while offset < end:
            number, start = divmod(offset, self._chunk_bytes)
            stop = min(self._chunk_bytes, start + end - offset)
            pieces.append(_Piece(ChunkKey(object_path, number), start, stop))
            offset += stop - start
        return pieces

    def _find_sources(
        self, keys: Sequence[ChunkKey], object_size: int, *, reads_on: bool
    ) -> tuple[dict[ChunkKey, CachedChunk | _Fetch], list[_Fetch]]:
        """Where the chunks of a read come from: a pinned chunk, or a fetch for a further reader.

        All missing chunks but the first are fetched in the background, and so are chunks ahead of
        a sequential reader, as far as the background has room.

        Returns:
            The sources, and the fetches to begin in the background.
        """
        planned: list[_Fetch] = []
        with self._guard:
            hits = sum(key in self._index for key in keys)
            self._count(hits=hits, misses=len(keys) - hits)
            ahead = self._keys_ahead(keys, object_size) if reads_on else ()
            for key in (*keys[1:], *ahead):
                if self._background_fetches == BACKGROUND_FETCHES_MAX:
                    break
                if key not in self._fetches and key not in self._index:
                    fetch = self._fetches[key] = _Fetch(key, object_size)
                    self._background_fetches += 1
                    planned.append(fetch)
            sources = {key: self._find_source(key, object_size) for key in keys}
        return sources, planned

    def _find_source(self, key: ChunkKey, object_size: int) -> CachedChunk | _Fetch:
        chunk = self._index.pin(key)
        if chunk is not None:
            return chunk
        fetch = self._fetches.setdefault(key, _Fetch(key, object_size))
        fetch.readers += 1
        return fetch

    def _keys_ahead(self, keys: Sequence[ChunkKey], object_size: int) -> Iterator[ChunkKey]:
        count = -(-object_size // self._chunk_bytes)
        object_path, first = keys[0]
        ahead = self._read_ahead.plan(object_path, first, keys[-1].number, count)
        if self._disk_takes_chunks:  # otherwise they would be fetched twice
            yield from (ChunkKey(object_path, number) for number in ahead)

    def _read_piece(
        self, piece: _Piece, source: CachedChunk | _Fetch, object_size: int, target: memoryview
    ) -> int:
        """Read a part of a chunk; what files do not give comes from the store."""
        if self._read_source(piece, source, target):
            return len(target)
        with self._guard:
            source = self._find_source(piece.key, object_size)
        if self._read_source(piece, source, target):
            return len(target)
        start = piece.key.number * self._chunk_bytes + piece.start
        return self._fetch_into(piece.key.object_path, start, target)

    def _read_source(self, piece: _Piece, source: CachedChunk | _Fetch, target: memoryview) -> bool:
        """Read from a chunk, and unpin it; False if its file is damaged."""
        found = self._fetched(source) if isinstance(source, _Fetch) else source
        if isinstance(found, bytes):
            data = found[piece.start : piece.stop]
            target[: len(data)] = data
            return len(data) == len(target)
        try:
            return self._read_file(found, piece.start, target)
        finally:
            self._unpin([found])

    def _fetched(self, fetch: _Fetch) -> CachedChunk | bytes:
        """Wait for a fetch, or carry it out."""
        with self._guard:
            begun, fetch.begun = fetch.begun, True
        if not begun:
            self._carry_out(fetch)
        return fetch.found.result()

    def _abandon(self, sources: Iterable[CachedChunk | _Fetch]) -> None:
        """Give up the sources that a failed read has not used."""
        pinned = []
        with self._guard:
            for source in sources:
                if isinstance(source, CachedChunk):
                    pinned.append(source)
                elif self._fetches.get(source.key) is source:
                    source.readers -= 1
                elif source.found.exception() is None:
                    found = source.found.result()
                    pinned += [found] if isinstance(found, CachedChunk) else []
        self._unpin(pinned)

    def _read_file(self, chunk: CachedChunk, start: int, target: memoryview) -> bool:
        """Read from the file of a pinned chunk; False if the file is damaged."""
        try:
            count = self._store.read_into(self._file_name(chunk), start, target)
        except StorageError as error:
            log.info("a cached chunk is fetched again: %s", error)
            count = 0
        if count == len(target):
            return True
        with self._guard:
            self._count(read_failures=1)
            must_delete = self._index.discard(chunk)
        assert not must_delete, "the chunk was not pinned"
        return False

    def _unpin(self, chunks: Iterable[CachedChunk]) -> None:
        with self._guard:
            discarded = [chunk for chunk in chunks if self._index.unpin(chunk)]
        self._delete(discarded)

    def _memory(self) -> ReadMemory:
        """The calling thread's memory for what is read."""
        memory: ReadMemory | None = getattr(self._of_thread, "memory", None)
        if memory is None:
            memory = self._of_thread.memory = ReadMemory(READ_BYTES_KEPT)
        return memory

    # -- fetches

    def _carry_out_in_background(self, fetch: _Fetch) -> None:
        with self._guard:
            begun, fetch.begun = fetch.begun, True
        try:
            if not begun:
                self._carry_out(fetch)
        finally:
            with self._guard:
                self._background_fetches -= 1

    def _carry_out(self, fetch: _Fetch) -> None:
        """Fetch a chunk, cache it, and give it to all readers."""
        buffer: bytearray | None = None
        try:
            buffer = self._take_buffer()
            data = self._fetch(fetch, memoryview(buffer))
            chunk = self._save(fetch.key, data)
            # Readers of what is not cached get a copy: the memory is used again.
            found = bytes(data) if chunk is None else chunk
        except BaseException as error:
            self._end(fetch, None)  # a reader that tries again begins another fetch
            fetch.found.set_exception(error)
        else:
            self._end(fetch, chunk)
            fetch.found.set_result(found)
        finally:
            if buffer is not None:
                with self._guard:
                    self._buffers.append(buffer)

    def _take_buffer(self) -> bytearray:
        with self._guard:
            return self._buffers.pop() if self._buffers else bytearray(self._chunk_bytes)

    def _fetch(self, fetch: _Fetch, memory: memoryview) -> memoryview:
        start = fetch.key.number * self._chunk_bytes
        size = min(self._chunk_bytes, fetch.object_size - start)
        count = self._fetch_into(fetch.key.object_path, start, memory[:size])
        if count < size:
            raise shrunk_error(fetch.key.object_path, start + count, fetch.object_size)
        return memory[:size]

    def _fetch_into(self, object_path: str, offset: int, memory: memoryview) -> int:
        """Read from the store, which counts."""
        count = self._read_into(object_path, offset, memory)
        with self._guard:
            self._count(bytes_fetched=count)
        return count

    def _end(self, fetch: _Fetch, chunk: CachedChunk | None) -> None:
        """End a fetch; its readers have pins of its chunk from now on, if it was written."""
        with self._guard:
            self._fetches.pop(fetch.key, None)
            if chunk is not None:
                self._index.add(chunk, pins=fetch.readers)

    # -- files

    def _save(self, key: ChunkKey, data: memoryview) -> CachedChunk | None:
        """Write the file of a chunk, unless all others are being read and there is no room."""
        with self._guard:
            reserved = self._index.reserve(key, len(data))
            if reserved is None:
                return None
            chunk, evicted = reserved
            self._count(evictions=len(evicted))
        self._delete(evicted)
        written = is_full = False
        try:
            self._store.append(self._file_name(chunk), data)
            written = True
        except StorageError as error:
            self._report(error)
            is_full = error.is_full
        finally:
            with self._guard:
                self._disk_takes_chunks = written
                self._reads_past_disk = 0 if written else READS_PAST_DISK
                if not written:
                    self._index.release(chunk)
                evicted = self._index.shrink(self._chunk_bytes) if is_full else ()
                self._count(evictions=len(evicted))
        self._delete(evicted)
        return chunk if written else None

    def _delete(self, chunks: Iterable[CachedChunk]) -> None:
        for chunk in chunks:
            try:
                self._store.delete(self._file_name(chunk))
            except StorageError as error:
                self._report(error)

    def _report(self, error: StorageError) -> None:
        """Count a failure of the cache's disk, and log the first one since it has worked."""
        with self._guard:
            self._count(write_failures=1)
            first, self._disk_takes_chunks = self._disk_takes_chunks, False
        if first:
            log.warning("reads of remote segments go on without a part of their cache: %s", error)

    def _count(self, **more: int) -> None:
        self._counts.update(more)

    def _file_name(self, chunk: CachedChunk) -> str:
        return f"{self._name_prefix}{chunk.file:08x}.chunk"
