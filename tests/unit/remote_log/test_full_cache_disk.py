"""A full disk of the cache: no byte is fetched twice for it, and the log beside it gets room."""

import pytest

from sparklog.remote_log.chunk_cache import READS_PAST_DISK, ChunkCache, ChunkCacheCounters
from sparklog.remote_log.parts import PartCache
from sparklog.remote_log.reading import RemoteRead, RemoteReader
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.remote_log.remote_fixtures import FOLDER, RichLog, log_path
from tests.unit.remote_log.test_chunk_cache import Fixture, Objects


def test_reads_fetch_what_they_ask_for_until_the_disk_takes_chunks_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fixture = Fixture()
    fixture.disk.disk.fill_after(5)
    fixture.read("a", 12, 3)
    for _ in range(2):
        for number in range(READS_PAST_DISK):
            fixture.read("a", 20 + number % 3, 4)
        fixture.read("a", 20, 4)  # tries to write its chunk
    past = [("a", 20 + number % 3, 4) for number in range(READS_PAST_DISK)]
    assert fixture.objects.reads == [
        ("a", 10, 10),
        *past,
        ("a", 20, 10),
        *past,
        ("a", 20, 10),
    ]
    counters = fixture.cache.counters()
    assert (counters.write_failures, counters.bytes_used) == (3, 0)
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        "reads of remote segments go on without a part of their cache"
    ]
    fixture.disk.faults.clear()
    for _ in range(READS_PAST_DISK):
        fixture.read("a", 20, 4)
    fixture.fetched()
    for _ in range(3):
        fixture.read("a", 20, 4)
    assert (fixture.fetched(), fixture.cache.counters().bytes_used) == ([20], 10)


def test_what_is_cached_is_read_from_the_disk_that_is_full() -> None:
    fixture = Fixture()
    fixture.disk.disk.fill_after(15)
    fixture.read("a", 0, 10)
    fixture.read("a", 10, 10)
    fixture.fetched()
    fixture.read("a", 0, 10)
    assert fixture.fetched() == []


def test_the_log_beside_a_full_cache_gets_half_of_its_room() -> None:
    fixture = Fixture(bytes_max=200, objects=Objects(size=1000))
    fixture.disk.disk.fill_after(100)
    for offset in range(0, 110, 10):
        fixture.read("a", offset, 10)
    fixture.disk.append("the log", bytes(50))
    assert fixture.cache.counters() == ChunkCacheCounters(
        misses=11, bytes_fetched=110, write_failures=1, evictions=5, bytes_used=50
    )
    fixture.fetched()
    for offset in range(50, 100, 10):
        fixture.read("a", offset, 10)
    assert fixture.fetched() == [], "the chunks that were used last stay"


def test_the_room_that_a_full_disk_got_back_is_taken_slowly() -> None:
    fixture = Fixture(bytes_max=200, objects=Objects(size=10_000))
    fixture.disk.disk.fill_after(100)
    for offset in range(0, 110, 10):
        fixture.read("a", offset, 10)
    fixture.disk.faults.clear()
    sizes = []
    for number in range(READS_PAST_DISK + 300):
        fixture.read("a", 200 + 10 * number, 10)
        sizes.append(fixture.cache.counters().bytes_used)
    assert sizes[READS_PAST_DISK + 5] == 50
    assert sizes == sorted(sizes)
    assert sizes[-1] == 200


def test_a_reader_that_takes_files_fetches_a_segment_once() -> None:
    rich = RichLog()
    for number in range(40):
        rich.put(number, number, size=100)
    copies = rich.copy_all()
    disk = MemoryBackend()
    disk.disk.fill_after(0)
    cache = ChunkCache(
        disk, rich.bucket.read_into, lambda work: None, bytes_max=10**6, chunk_bytes=400
    )
    assert sum(each.log_size for each in copies) > 20 * 400

    def read_range(path: str, offset: int, size: int) -> memoryview:
        return cache.read(path, rich.bucket.size(path), offset, size)

    def read(*, takes_files: bool) -> list[RemoteRead]:
        reader = RemoteReader(read_range, FOLDER, PartCache(), cache.pieces)
        return [
            found
            for each in copies
            for found in reader.reads(
                each,
                each.base_offset,
                300,
                100,
                end_offset=each.next_offset,
                takes_files=takes_files,
            )
        ]

    read(takes_files=True)
    before = cache.counters().bytes_fetched
    found = read(takes_files=True)
    fetched = cache.counters().bytes_fetched - before
    assert b"".join(each.data for each in found) == b"".join(
        rich.bucket.read(log_path(each)) for each in copies
    )
    assert found == read(takes_files=False)
    assert fetched < 1.5 * sum(each.log_size for each in copies)
