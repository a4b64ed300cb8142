"""Remote reads for fetches: what is read ahead, kept, sent from files, and read once more."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.tiering import remote_fetches
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_fetches import SENT_MAX, RemoteFetches
from sparklog.remote_log.chunk_cache import ChunkCacheCounters, FilePiece
from sparklog.remote_log.reading import RemoteRead
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import MAX_INT64, TopicPartition
from sparklog.wire.records.builder import Record, encode_batch

#: Every batch has one record and is a read of its own.
BATCHES = [encode_batch([Record(value=b"%03d" % n)], base_offset=n) for n in range(40)]
SIZE = len(BATCHES[0])


class Bucket:
    """The remote logs; the calls are noted, and what they find is in files of a cache."""

    def __init__(self, *, in_files: bool = True) -> None:
        self.disk = MemoryBackend()
        self.open_file = self.disk.open if in_files else None
        self.cache = ChunkCacheCounters()
        self.calls: list[tuple[int, int, bool]] = []
        #: Offsets whose file is evicted as soon as it was told.
        self.evicted: set[int] = set()

    async def call(self, method: str, *args: Any, **named: Any) -> list[RemoteRead]:
        assert method == "read_several"
        _, offsets, _, count = args
        self.calls.append((offsets.start, count, named["takes_files"]))
        await asyncio.sleep(0)
        return [self._read(each, named["takes_files"]) for each in offsets[:count]]

    def _read(self, offset: int, takes_files: bool) -> RemoteRead:
        if not takes_files:
            return RemoteRead(BATCHES[offset], offset, offset + 1)
        name = f"{offset}.chunk"
        if offset not in self.evicted and not self.disk.exists(name):
            self.disk.append(name, b"before" + BATCHES[offset])
        return RemoteRead(b"", offset, offset + 1, (), (FilePiece(name, 6, SIZE),))

    async def close(self) -> None:
        """Nothing is left."""


class Pairs(Bucket):
    """Every read has two batches."""

    def _read(self, offset: int, takes_files: bool) -> RemoteRead:
        return RemoteRead(BATCHES[offset] + BATCHES[offset + 1], offset, offset + 2)


class Leader:
    """The part of a partition that reads need."""

    topic_id = None
    topic_partition = TopicPartition("t", 0)
    leader_epoch = 5

    def __init__(self, local_start: int) -> None:
        self.log = SimpleNamespace(local_log_start_offset=local_start, generation=0)


class Case:
    def __init__(self, bucket: Bucket, local_start: int = len(BATCHES)) -> None:
        self.bucket = bucket
        self.metrics = TieringMetrics()
        self.partition: Any = Leader(local_start)
        self.fetches = RemoteFetches(
            bucket, lambda tp: None, self.metrics, open_file=bucket.open_file
        )

    async def read(self, offset: int, max_bytes: int = 1000, end_offset: int = MAX_INT64) -> bytes:
        for _ in range(100):
            found = self.fetches.read(
                self.partition, offset, max_bytes, end_offset=end_offset, with_aborted=False
            )
            if found is not None:
                data = found.records.read()
                found.records.release()
                return data
            await asyncio.sleep(0)
        raise AssertionError("the records do not come")

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))  # type: ignore[arg-type]


def test_the_first_read_is_short_and_those_that_follow_share_calls() -> None:
    async def test() -> None:
        case = Case(Bucket())
        assert await case.read(0) == BATCHES[0]
        await case.settle()
        assert case.bucket.calls == [(0, 1, True), *((first, 4, True) for first in (1, 5, 9, 13))]
        for offset in range(1, 20):
            assert await case.read(offset) == BATCHES[offset]
            await case.settle()
        starts = [start for start, _, _ in case.bucket.calls]
        assert starts == [0, *range(1, 33, 4)]
        assert case.metrics.bytes_read == (1 + 4 * 8) * SIZE

    run(test)


def test_without_files_two_reads_are_ahead() -> None:
    async def test() -> None:
        case = Case(Bucket(in_files=False))
        for offset in range(3):
            assert await case.read(offset) == BATCHES[offset]
            await case.settle()
            assert case.bucket.calls == [(n, 1, False) for n in range(offset + 3)]

    run(test)


def test_a_read_is_cut_at_the_end_that_its_reader_may_see() -> None:
    async def test() -> None:
        case = Case(Pairs(in_files=False), local_start=2)
        assert await case.read(0, end_offset=1) == BATCHES[0]
        assert await case.read(0, end_offset=2) == BATCHES[0] + BATCHES[1]
        assert await case.read(0) == BATCHES[0] + BATCHES[1]

    run(test)


def test_what_was_read_before_the_log_was_truncated_is_read_again() -> None:
    """A follower of a leader that was elected unclean may have read what this one removes."""

    async def test() -> None:
        case = Case(Bucket())
        await case.read(7)
        await case.settle()
        calls = len(case.bucket.calls)
        await case.read(7)
        assert len(case.bucket.calls) == calls
        case.partition.log.generation += 1
        assert await case.read(7) == BATCHES[7]
        assert case.bucket.calls[calls] == (7, 1, True)

    run(test)


def test_a_client_that_comes_back_again_and_again_has_the_file_checked() -> None:
    """The file has gone bad since it was read, maybe: its bytes do not pass through the broker."""

    async def test() -> None:
        case = Case(Bucket())
        for _ in range(SENT_MAX):
            assert await case.read(0) == BATCHES[0]
        await case.settle()
        calls = len(case.bucket.calls)
        assert await case.read(0) == BATCHES[0]
        assert case.bucket.calls[calls:] == [(0, 1, True)]

    run(test)


def test_also_a_client_that_is_stuck_in_the_middle_of_a_read() -> None:
    async def test() -> None:
        case = Case(Pairs(in_files=False), local_start=2)
        assert await case.read(0) == BATCHES[0] + BATCHES[1]
        for _ in range(SENT_MAX):
            assert await case.read(1, end_offset=2) == BATCHES[1]
        await case.settle()
        calls = len(case.bucket.calls)
        await case.read(1)
        assert case.bucket.calls[calls:] == [(1, 1, False)]

    run(test)


def test_clients_that_read_on_are_sent_what_is_kept() -> None:
    async def test() -> None:
        case = Case(Bucket())
        for _ in range(3 * SENT_MAX):
            assert await case.read(0) == BATCHES[0]
            assert await case.read(1) == BATCHES[1]
        await case.settle()
        assert [offset for offset, _, _ in case.bucket.calls].count(0) <= 3
        assert case.bucket.calls.count((0, 1, True)) <= 3

    run(test)


@pytest.mark.parametrize("in_files", [True, False])
def test_nothing_is_read_ahead_of_what_is_on_the_disks(in_files: bool) -> None:
    async def test() -> None:
        case = Case(Bucket(in_files=in_files), local_start=2)
        assert await case.read(0) == BATCHES[0]
        assert await case.read(1) == BATCHES[1]
        await case.settle()
        assert max(start for start, _, _ in case.bucket.calls) == 1
        assert case.metrics.reads == 2

    run(test)


def test_what_was_evicted_before_it_was_opened_comes_once_more() -> None:
    async def test() -> None:
        case = Case(Bucket())
        case.bucket.evicted.update((0, 3))
        for offset in range(10):
            assert await case.read(offset) == BATCHES[offset]
        assert (0, 1, False) in case.bucket.calls
        again = [start for start, _, in_files in case.bucket.calls if not in_files]
        assert again[0] == 0
        assert 2 in again, "3 came with 2"

    run(test)


def test_what_was_evicted_afterwards_is_sent() -> None:
    async def test() -> None:
        case = Case(Bucket())
        await case.read(0)
        await case.settle()
        for name in case.bucket.disk.list(""):
            case.bucket.disk.delete(name)
        called = len(case.bucket.calls)
        assert [await case.read(offset) for offset in range(4)] == BATCHES[:4]
        assert len(case.bucket.calls) == called

    run(test)


def test_a_file_that_was_cut_off_is_an_error_and_the_next_fetch_reads_again() -> None:
    async def test() -> None:
        case = Case(Bucket(), local_start=1)
        await case.read(0)
        case.bucket.disk.truncate("0.chunk", 20)
        with pytest.raises(KafkaError, match="cannot be read from the remote_dir") as refusal:
            await case.read(0)
        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        case.bucket.disk.delete("0.chunk")
        assert await case.read(0) == BATCHES[0]

    run(test)


@pytest.mark.parametrize("in_files", [True, False])
def test_few_reads_are_kept(in_files: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_fetches, "KEPT_MAX", 10)
    monkeypatch.setattr(remote_fetches, "KEPT_BYTES_MAX", 5 * SIZE)

    async def test() -> None:
        case = Case(Bucket(in_files=in_files), local_start=30)
        for offset in range(30):
            assert await case.read(offset) == BATCHES[offset]
        first_kept = 30 - (10 if in_files else 5)
        called = len(case.bucket.calls)
        assert await case.read(first_kept) == BATCHES[first_kept]
        assert len(case.bucket.calls) == called
        assert await case.read(first_kept - 1) == BATCHES[first_kept - 1]
        assert len(case.bucket.calls) > called

    run(test)


def test_readers_of_many_partitions_do_not_push_each_other_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_fetches, "KEPT_MAX", 16)

    async def test() -> None:
        case = Case(Bucket())
        partitions = [Leader(len(BATCHES)) for _ in range(8)]
        for offset in range(30):
            for case.partition in partitions:
                assert await case.read(offset) == BATCHES[offset]
        assert case.metrics.reads < 1.5 * 30 * len(partitions)

    run(test)
