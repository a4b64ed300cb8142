"""Reads through the cache of chunks: what is fetched, kept and counted."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import ChangedFileError, StorageError
from sparklog.remote_log import chunk_cache
from sparklog.remote_log.chunk_cache import ChunkCache, ChunkCacheCounters
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend

CHUNK = 10
SECONDS_MAX = 30


class Objects:
    """A store of objects ``a``, ``b``, ...; notes the ranges that are read."""

    def __init__(self, size: int = 95) -> None:
        self.size = size
        self.reads: list[tuple[str, int, int]] = []
        self.fails = 0
        #: Called before a read, by its thread.
        self.before: Callable[[str, int], None] = lambda path, offset: None

    def data(self, path: str) -> bytes:
        return bytes((ord(path) + 3 * at) % 256 for at in range(self.size))

    def read_into(self, path: str, offset: int, target: memoryview) -> int:
        self.reads.append((path, offset, len(target)))
        self.before(path, offset)
        if self.fails:
            self.fails -= 1
            raise StorageError(f"cannot read {path}")
        found = self.data(path)[offset : offset + len(target)]
        target[: len(found)] = found
        return len(found)


class Fixture:
    """A cache on a memory disk, whose background work waits in ``queue``."""

    def __init__(self, bytes_max: int = 1000, ahead: int = 0, objects: Objects | None = None):
        self.objects = objects or Objects()
        self.disk = MemoryBackend()
        self.queue: list[Callable[[], None]] = []
        self.cache = ChunkCache(
            self.disk,
            self.objects.read_into,
            self.queue.append,
            bytes_max=bytes_max,
            chunk_bytes=CHUNK,
            read_ahead_chunks_max=ahead,
        )

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Read, and check the bytes."""
        data = self.cache.read(path, self.objects.size, offset, size)
        assert data == self.objects.data(path)[offset : offset + size]
        self.cache.check_invariants()
        return data

    def run_background(self) -> None:
        while self.queue:
            self.queue.pop(0)()

    def fetched(self) -> list[int]:
        """The offsets that were fetched since the last call."""
        offsets = [offset for _, offset, _ in self.objects.reads]
        self.objects.reads.clear()
        return offsets


def test_whole_chunks_are_fetched_once() -> None:
    fixture = Fixture()
    for bounds in ((12, 3), (15, 5), (10, 10), (93, 100), (94, 1)):
        fixture.read("a", *bounds)
    assert fixture.objects.reads == [("a", 10, 10), ("a", 90, 5)]
    assert fixture.cache.counters() == ChunkCacheCounters(
        hits=3, misses=2, bytes_fetched=15, bytes_used=15
    )
    assert sum(map(fixture.disk.size, fixture.disk.list(""))) == 15


def test_what_two_caches_have_done_after_each_other() -> None:
    earlier = ChunkCacheCounters(hits=1, misses=2, bytes_fetched=30, evictions=1, bytes_used=100)
    later = ChunkCacheCounters(hits=4, read_failures=1, bytes_used=10)
    assert later.added_to(earlier) == ChunkCacheCounters(
        hits=5, misses=2, bytes_fetched=30, evictions=1, read_failures=1, bytes_used=10
    )


@pytest.mark.parametrize("bounds", [(95, 1), (200, 5), (5, 0), (5, -1)])
def test_an_empty_range_needs_no_fetch(bounds: tuple[int, int]) -> None:
    fixture = Fixture()
    assert (fixture.read("a", *bounds), fixture.objects.reads) == (b"", [])


def test_objects_are_kept_apart() -> None:
    fixture = Fixture()
    assert fixture.read("a", 0, 5) != fixture.read("b", 0, 5)
    assert fixture.objects.reads == [("a", 0, 10), ("b", 0, 10)]


def test_the_chunks_used_least_recently_make_room() -> None:
    fixture = Fixture(bytes_max=30)
    for offset in (0, 10, 20, 0, 30):
        fixture.read("a", offset, 1)
    fixture.fetched()
    for offset in (0, 20, 30, 10):
        fixture.read("a", offset, 1)
    assert fixture.fetched() == [10]
    assert fixture.cache.counters() == ChunkCacheCounters(
        hits=4, misses=5, bytes_fetched=50, evictions=2, bytes_used=30
    )
    assert len(fixture.disk.list("")) == 3


def test_what_is_larger_than_the_cache_is_read_without_it() -> None:
    fixture = Fixture(bytes_max=9)
    fixture.read("a", 3, 15)
    fixture.read("a", 3, 15)
    assert (fixture.fetched(), fixture.disk.list("")) == ([0, 10] * 2, [])


@given(
    bytes_max=st.sampled_from([0, 10, 25, 60, 1000]),
    ahead=st.integers(0, 4),
    reads=st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 100), st.integers(0, 45)), max_size=25
    ),
    background_every=st.integers(1, 4),
    fault=st.sampled_from(["none", "full", "failing"]),
)
def test_any_read_gives_the_bytes_of_the_object(
    bytes_max: int,
    ahead: int,
    reads: list[tuple[str, int, int]],
    background_every: int,
    fault: str,
) -> None:
    fixture = Fixture(bytes_max, ahead)
    if fault == "full":
        fixture.disk.disk.fill_after(25)
    for number, (path, offset, size) in enumerate(reads):
        if fault == "failing" and number % 3 == 0:
            fixture.disk.faults.fail_next(2)
        fixture.read(path, offset, size)
        if number % background_every == 0:
            fixture.run_background()
    fixture.run_background()
    fixture.cache.check_invariants()
    assert fixture.cache.counters().bytes_used <= bytes_max


# -- the background


def test_the_further_chunks_of_a_read_are_fetched_at_the_same_time() -> None:
    """The reader fetches what the background has not begun, and never fetches anything twice."""
    fixture = Fixture()
    fixture.read("a", 5, 40)
    assert (fixture.fetched(), len(fixture.queue)) == ([0, 10, 20, 30, 40], 4)
    fixture.run_background()
    fixture.read("a", 5, 40)
    assert fixture.fetched() == []

    with ThreadPoolExecutor(2) as pool:
        all_under_way = threading.Barrier(3)
        fixture.objects.before = lambda path, offset: _ignore(all_under_way.wait(SECONDS_MAX))
        parallel = ChunkCache(
            MemoryBackend(),
            fixture.objects.read_into,
            pool.submit,
            bytes_max=100,
            chunk_bytes=CHUNK,
        )
        assert parallel.read("a", 95, 0, 30) == fixture.objects.data("a")[:30]


def test_a_sequential_reader_finds_its_chunks_there() -> None:
    fixture = Fixture(ahead=4, objects=Objects(size=300))
    fetched = []
    for offset in range(0, 300, 5):
        fixture.read("a", offset, 5)
        fixture.run_background()
        fetched.append(fixture.fetched())
    assert [offsets for offsets in fetched if offsets][:4] == [
        [0],
        [10, 20],
        [30, 40],
        [50, 60, 70],
    ]
    assert sorted(chain.from_iterable(fetched)) == list(range(0, 300, 10))
    assert fixture.cache.counters() == ChunkCacheCounters(
        hits=58, misses=2, bytes_fetched=300, bytes_used=300
    )


def test_a_failed_read_ahead_is_no_error_of_a_later_read() -> None:
    fixture = Fixture(ahead=4)
    fixture.read("a", 0, 10)
    fixture.read("a", 10, 10)
    fixture.objects.fails = 1
    fixture.run_background()
    fixture.read("a", 20, 10)
    assert fixture.fetched() == [0, 10, 20, 20]


def test_the_background_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_cache, "BACKGROUND_FETCHES_MAX", 3)
    fixture = Fixture()
    fixture.read("a", 0, 60)
    assert (len(fixture.queue), fixture.fetched()) == (3, [0, 10, 20, 30, 40, 50])
    fixture.read("b", 0, 60)
    assert (len(fixture.queue), fixture.fetched()) == (3, [0, 10, 20, 30, 40, 50])
    fixture.run_background()
    fixture.cache.forget("a")
    fixture.read("a", 0, 60)
    assert len(fixture.queue) == 3


def test_a_small_cache_reads_only_a_little_ahead() -> None:
    fixture = Fixture(bytes_max=90, ahead=8)
    for offset in range(0, 50, 10):
        fixture.read("a", offset, 10)
    assert len(fixture.queue) == 5  # two ahead of the last read
    assert fixture.fetched() == [0, 10, 20, 30, 40]


# -- several readers


class WatchedFuture(Future[bytes]):
    """Tells that a reader waits for it, or is about to."""

    waiting = threading.Event()

    def result(self, timeout: float | None = None) -> bytes:
        self.waiting.set()
        return super().result(timeout)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as a reader waits for a fetch."""
    monkeypatch.setattr(WatchedFuture, "waiting", threading.Event())
    monkeypatch.setattr(chunk_cache, "Future", WatchedFuture)
    return WatchedFuture.waiting


def two_reads(fixture: Fixture, waiting: threading.Event) -> list[Future[bytes]]:
    """Two readers of one chunk; the second one comes while the first one fetches it."""
    begun = threading.Event()

    def hold(path: str, offset: int) -> None:
        begun.set()
        assert waiting.wait(SECONDS_MAX), "no reader waits for the fetch"

    fixture.objects.before = hold
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(fixture.cache.read, "a", fixture.objects.size, 0, 5)
        assert begun.wait(SECONDS_MAX)
        second = pool.submit(fixture.cache.read, "a", fixture.objects.size, 5, 5)
    return [first, second]


def test_two_readers_of_a_missing_chunk_share_its_fetch(waiting: threading.Event) -> None:
    fixture = Fixture()
    reads = two_reads(fixture, waiting)
    data = fixture.objects.data("a")
    assert [read.result() for read in reads] == [data[:5], data[5:10]]
    assert fixture.fetched() == [0]
    assert fixture.cache.counters() == ChunkCacheCounters(misses=2, bytes_fetched=10, bytes_used=10)


def test_both_readers_get_the_error_of_a_fetch_and_the_next_one_fetches_again(
    waiting: threading.Event,
) -> None:
    fixture = Fixture()
    fixture.objects.fails = 1
    errors = [str(read.exception()) for read in two_reads(fixture, waiting)]
    assert errors == ["cannot read a"] * 2
    assert (fixture.fetched(), fixture.disk.list("")) == ([0], [])
    fixture.read("a", 0, 10)
    assert (fixture.fetched(), len(fixture.disk.list(""))) == ([0], 1)


def test_a_chunk_that_is_being_read_is_not_evicted() -> None:
    fixture = Fixture(bytes_max=20)
    fixture.read("a", 0, 10)
    reading, go_on = threading.Event(), threading.Event()

    def hold(operation: str, path: str) -> None:
        if operation == "read" and not reading.is_set():
            reading.set()
            assert go_on.wait(SECONDS_MAX)

    fixture.disk.faults.slow = hold
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(fixture.cache.read, "a", fixture.objects.size, 0, 10)
        assert reading.wait(SECONDS_MAX)
        fixture.read("a", 10, 10)
        fixture.read("a", 20, 10)  # evicts the chunk at 10, though that at 0 is older
        go_on.set()
        assert slow.result() == fixture.objects.data("a")[:10]
    fixture.fetched()
    fixture.read("a", 0, 10)
    fixture.read("a", 20, 10)
    assert fixture.fetched() == []
    fixture.read("a", 10, 10)
    assert fixture.fetched() == [10]


def test_many_threads_read_right_bytes(tmp_path: Path) -> None:
    objects = Objects(size=2000)
    with ThreadPoolExecutor(4) as background, ThreadPoolExecutor(8) as readers:
        cache = ChunkCache(
            LocalBackend(tmp_path),
            objects.read_into,
            background.submit,
            bytes_max=300,
            chunk_bytes=CHUNK,
        )
        ranges = [("abc"[n % 3], (n * 37) % 2000, 1 + n % 60) for n in range(600)]
        found = list(readers.map(lambda each: cache.read(each[0], 2000, *each[1:]), ranges))
    expected = {path: objects.data(path) for path in "abc"}
    assert found == [expected[path][at : at + size] for path, at, size in ranges]
    cache.check_invariants()
    counters = cache.counters()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert (counters.write_failures, counters.read_failures, sum(sizes)) == (
        0,
        0,
        counters.bytes_used,
    )


# -- files that others read


def test_where_the_bytes_of_an_object_are() -> None:
    fixture = Fixture(bytes_max=30)
    fixture.read("a", 5, 20)
    pieces = fixture.cache.pieces("a", 5, 18)
    assert [(each.position, each.size) for each in pieces] == [(5, 5), (0, 10), (0, 3)]
    found = b"".join(fixture.disk.read(*each) for each in pieces)
    assert found == fixture.objects.data("a")[5:23]
    assert fixture.cache.pieces("a", 25, 10) == []  # the second half is not there
    assert fixture.cache.pieces("b", 5, 18) == []


def test_a_lookup_fetches_no_chunk_and_uses_those_that_are_there() -> None:
    fixture = Fixture()
    data, size = fixture.objects.data("a"), fixture.objects.size
    for bounds in ((12, 20), (90, 10), (95, 5), (12, 0)):
        found = fixture.cache.read_once("a", size, *bounds)
        assert found == data[bounds[0] : sum(bounds)]
    assert fixture.objects.reads == [("a", 12, 20), ("a", 90, 5)]
    fixture.read("a", 10, 20)
    fixture.run_background()
    fixture.objects.reads.clear()
    assert fixture.cache.read_once("a", size, 12, 15) == data[12:27]
    assert (fixture.objects.reads, fixture.queue) == ([], [])
    assert fixture.cache.counters().bytes_fetched == 25 + 20


def test_a_name_never_leads_to_other_bytes() -> None:
    """Not even after a new start, which removes the files."""
    fixture = Fixture(bytes_max=10)
    names = set()
    for offset in (0, 10, 0):
        fixture.read("a", offset, 10)
        names.update(fixture.disk.list(""))
    again = ChunkCache(
        fixture.disk, fixture.objects.read_into, _run, bytes_max=10, chunk_bytes=CHUNK
    )
    assert fixture.disk.list("") == []
    again.read("a", 95, 10, 10)
    names.update(fixture.disk.list(""))
    assert len(names) == 4


# -- failures


def test_an_object_that_is_shorter_than_known_is_not_cached() -> None:
    fixture = Fixture()
    with pytest.raises(ChangedFileError, match="a has 95 bytes where 120 were written"):
        fixture.cache.read("a", 120, 85, 10)
    assert fixture.cache.counters() == ChunkCacheCounters(misses=2, bytes_fetched=15, bytes_used=10)


def test_a_file_that_cannot_be_read_is_fetched_again() -> None:
    fixture = Fixture()
    fixture.read("a", 0, 10)
    fixture.disk.faults.fail_next(1, "read")
    fixture.read("a", 0, 10)
    [name] = fixture.disk.list("")
    fixture.disk.truncate(name, 4)
    fixture.read("a", 0, 10)
    fixture.read("a", 0, 10)
    assert fixture.fetched() == [0] * 3
    assert fixture.cache.counters() == ChunkCacheCounters(
        hits=3, misses=1, bytes_fetched=30, read_failures=2, bytes_used=10
    )
    assert len(fixture.disk.list("")) == 1


def test_files_that_can_never_be_read_are_read_past() -> None:
    fixture = Fixture()
    fixture.read("a", 0, 10)
    fixture.disk.faults.fail_next(2, "read")
    fixture.read("a", 3, 5)
    assert fixture.objects.reads == [("a", 0, 10), ("a", 0, 10), ("a", 3, 5)]
    assert fixture.cache.counters() == ChunkCacheCounters(
        hits=1, misses=1, bytes_fetched=25, read_failures=2
    )


def test_a_file_that_cannot_be_deleted_is_counted() -> None:
    fixture = Fixture(bytes_max=10)
    fixture.read("a", 0, 10)
    fixture.disk.faults.fail_next(1, "delete")
    fixture.read("a", 10, 10)
    assert fixture.cache.counters() == ChunkCacheCounters(
        misses=2, bytes_fetched=20, evictions=1, write_failures=1, bytes_used=10
    )


def test_a_forgotten_object_is_fetched_again() -> None:
    fixture = Fixture()
    for path in ("a", "b"):
        fixture.read(path, 0, 20)
    fixture.cache.forget("a")
    assert len(fixture.disk.list("")) == 2
    fixture.objects.reads.clear()
    for path in ("a", "b"):
        fixture.read(path, 0, 20)
    assert fixture.objects.reads == [("a", 0, 10), ("a", 10, 10)]


def test_only_the_chunk_files_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    def opened() -> ChunkCache:
        objects = Objects()
        return ChunkCache(
            LocalBackend(tmp_path), objects.read_into, _run, bytes_max=99, chunk_bytes=10
        )

    (tmp_path / "notes").write_text("of somebody else")
    opened().read("a", 95, 0, 30)
    assert len(list(tmp_path.iterdir())) == 4
    again = opened()
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
    assert again.read("a", 95, 0, 10) == Objects().data("a")[:10]


def _run(work: Callable[[], None]) -> None:
    work()


def _ignore(_: object) -> None:
    pass
