"""Reads of the bucket with a limit of their rate: what begins, what waits, and what is counted."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from sparklog.byte_quota import BURST_MS
from sparklog.executors.tiering import remote_fetches
from sparklog.executors.tiering.fetch_quota import CHECK_MS, FetchQuota
from sparklog.executors.tiering.metrics import TieringMetrics
from sparklog.executors.tiering.remote_fetches import RemoteFetches
from sparklog.remote_log.chunk_cache import ChunkCacheCounters
from sparklog.remote_log.reading import RemoteRead
from sparklog.types import MAX_INT64, TopicPartition
from tests.simulation.loop import VirtualLoop
from tests.unit.executors.tiering.test_remote_fetches import BATCHES, SIZE, Bucket, Leader

#: A rate at which a read of one batch takes 100 ms.
RATE = 10 * SIZE


class CountingBucket(Bucket):
    """Counts the bytes of its reads as a cache does; ``cached`` offsets cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.cached: set[int] = set()
        self.call_s = 0.0
        self.began_ms: list[int] = []

    async def call(self, method: str, *args: Any, **named: Any) -> list[RemoteRead]:
        loop = asyncio.get_running_loop()
        self.began_ms.append(round(loop.time() * 1000))
        await asyncio.sleep(self.call_s)
        found = await super().call(method, *args, **named)
        size = SIZE * sum(each.first_offset not in self.cached for each in found)
        self.cache = self.cache._replace(bytes_fetched=self.cache.bytes_fetched + size)
        return found


class Case:
    """Clients of the partitions, each of which fetches again when its records have come."""

    def __init__(self, rate: int = RATE, burst_ms: int = BURST_MS) -> None:
        self.loop = asyncio.get_running_loop()
        self.bucket = CountingBucket()
        self.rate = rate
        self.metrics = TieringMetrics()
        self.partitions: list[Any] = []
        self.arrived: dict[TopicPartition, asyncio.Event] = {}
        self.clock_reads = 0
        self.fetches = RemoteFetches(
            self.bucket,
            lambda tp: self.arrived[tp].set(),
            self.metrics,
            open_file=self.bucket.open_file,
            quota=FetchQuota(
                lambda: self.rate,
                burst_ms=burst_ms,
                monotonic_ms=self.now_ms,
                bytes_fetched=lambda: self.bucket.cache.bytes_fetched,
            ),
        )

    def now_ms(self) -> int:
        self.clock_reads += 1
        return int(self.loop.time() * 1000)

    def partition(self, number: int) -> Any:
        while len(self.partitions) <= number:
            partition: Any = Leader(len(BATCHES))
            partition.topic_partition = TopicPartition("t", len(self.partitions))
            self.partitions.append(partition)
            self.arrived[partition.topic_partition] = asyncio.Event()
        return self.partitions[number]

    def try_read(self, number: int, offset: int) -> bytes | None:
        found = self.fetches.read(self.partition(number), offset, 1000, with_aborted=False)
        if found is None:
            return None
        data = found.records.read()
        found.records.release()
        return data

    async def read(self, number: int, offset: int) -> bytes:
        """As a client that waits 500 ms and then asks again."""
        arrived = self.arrived[self.partition(number).topic_partition]
        while True:
            arrived.clear()
            found = self.try_read(number, offset)
            if found is not None:
                return found
            with suppress(TimeoutError):
                await asyncio.wait_for(arrived.wait(), 0.5)

    async def read_all(self, number: int, count: int) -> float:
        """Read the first batches in order.  Returns the time in s at which the last one came."""
        for offset in range(count):
            assert await self.read(number, offset) == BATCHES[offset]
        return self.loop.time()


def run(test: Callable[[], Awaitable[None]]) -> None:
    loop = VirtualLoop(Random(1), limit_s=100_000)
    try:
        loop.run_until_complete(test())
    finally:
        loop.close()


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read has one batch here, so that is what a read is expected to take."""
    monkeypatch.setattr(remote_fetches, "READ_BYTES", SIZE)


def test_without_a_limit_nothing_waits_and_no_clock_is_read() -> None:
    async def test() -> None:
        case = Case(MAX_INT64)
        assert await case.read_all(0, 40) == 0
        assert (case.clock_reads, case.metrics.reads_throttled) == (0, 0)
        await case.fetches.close()

    run(test)


@pytest.mark.parametrize("call_s", [0.0, 0.05, 0.15])
def test_a_sequential_reader_gets_the_rate_after_the_burst(call_s: float) -> None:
    async def test() -> None:
        case = Case()
        case.bucket.call_s = call_s
        took_s = await case.read_all(0, 40)
        # 40 batches, of which the first ten are those of the burst.
        assert 2.5 < took_s < 4.2
        assert case.metrics.reads_throttled > 0
        assert case.metrics.read_throttle_ms > 0
        await case.fetches.close()

    run(test)


def test_readers_of_many_partitions_share_the_rate_and_none_starves() -> None:
    async def test() -> None:
        case = Case()
        ended = await asyncio.gather(*[case.read_all(number, 10) for number in range(8)])
        assert 6.5 < max(ended) < 9, "80 batches, of which ten are those of the burst"
        assert min(ended) > 4, "nobody is served before the others"
        await case.fetches.close()

    run(test)


def test_a_slow_reader_below_the_limit_never_waits() -> None:
    async def test() -> None:
        case = Case()
        for offset in range(0, 40, 5):
            await case.read(0, offset)
            await asyncio.sleep(2)
        assert case.metrics.reads_throttled == 0
        await case.fetches.close()

    run(test)


def test_what_the_cache_has_does_not_count() -> None:
    async def test() -> None:
        case = Case()
        case.bucket.cached = set(range(40))
        assert await case.read_all(0, 40) == 0
        await case.fetches.close()

    run(test)


def test_without_a_cache_all_reads_count() -> None:
    quota = FetchQuota(lambda: 1000, monotonic_ms=lambda: 0)
    assert quota.wait_ms() == 0
    quota.begin(500)
    quota.end(500, 3000)
    assert quota.wait_ms() == CHECK_MS


def test_a_batch_above_the_limit_comes_and_what_follows_waits_for_it() -> None:
    async def test() -> None:
        case = Case(rate=SIZE // 10)
        assert await case.read(0, 0) == BATCHES[0]
        assert case.loop.time() == 0
        assert await case.read(1, 0) == BATCHES[0]
        assert 8.5 < case.loop.time() < 10.5
        await case.fetches.close()

    run(test)


def test_a_fetch_is_not_kept_beyond_its_wait_and_finds_its_place_in_the_row_again() -> None:
    async def test() -> None:
        case = Case(rate=SIZE // 2)
        await case.read(0, 0)
        assert case.try_read(1, 0) is None
        await asyncio.sleep(0.1)
        assert case.try_read(2, 0) is None
        assert case.try_read(1, 0) is None, "asked again, and still before the other one"
        second = asyncio.ensure_future(case.read(2, 0))
        await case.read(1, 0)
        assert not second.done()
        await second
        await case.fetches.close()

    run(test)


def test_nothing_is_read_ahead_of_fetches_that_wait_for_the_limit() -> None:
    async def test() -> None:
        case = Case(rate=SIZE)
        await case.read(0, 0)
        await case.read(1, 0)
        await asyncio.sleep(30)
        # 30 s would be enough for many reads ahead: these begin when a client comes back.
        assert len(case.bucket.began_ms) < 4
        await case.fetches.close()

    run(test)


def test_a_limit_is_changed_while_fetches_wait() -> None:
    async def test() -> None:
        case = Case(rate=1)
        await case.read(0, 0)
        waiting = asyncio.ensure_future(case.read(0, 1))
        await asyncio.sleep(20)
        assert not waiting.done()
        case.rate = MAX_INT64
        changed_s = case.loop.time()
        await waiting
        assert case.loop.time() - changed_s <= CHECK_MS / 1000
        case.rate = RATE
        began_s = case.loop.time()
        await case.read_all(1, 30)
        assert case.loop.time() - began_s > 1, "an old debt is forgotten, a new limit holds"
        await case.fetches.close()

    run(test)


def test_the_windows_save_up_what_a_pause_has_left() -> None:
    async def test() -> None:
        case = Case(burst_ms=3000)
        await case.read(0, 0)
        await asyncio.sleep(60)
        began_s = case.loop.time()
        await case.read_all(1, 29)
        assert case.loop.time() - began_s < 0.2
        await case.read_all(2, 10)
        assert case.loop.time() - began_s > 0.5
        await case.fetches.close()

    run(test)


def test_counters_that_stand_still_cost_nothing() -> None:
    """A broker whose process has just begun anew."""
    quota = FetchQuota(lambda: 1000, monotonic_ms=lambda: 0, bytes_fetched=lambda: 5000)
    assert quota.wait_ms() == 0
    quota.begin(10)
    quota.end(10, 10)
    assert quota.wait_ms() == 0


def test_a_closed_broker_has_no_timers_left() -> None:
    async def test() -> None:
        case = Case(rate=1)
        await case.read(0, 0)
        assert case.try_read(0, 1) is None
        await case.fetches.close()
        calls = len(case.bucket.began_ms)
        await asyncio.sleep(1000)
        assert len(case.bucket.began_ms) == calls

    run(test)


def test_a_failed_read_does_not_hold_back_others() -> None:
    async def test() -> None:
        case = Case(rate=SIZE)
        real = case.bucket.call

        async def fail(*_: Any, **__: Any) -> Any:
            raise remote_fetches.StorageError("the bucket is away")

        case.bucket.call = fail  # type: ignore[method-assign]
        with pytest.raises(remote_fetches.KafkaError, match="the bucket is away"):
            await case.read(0, 0)
        case.bucket.call = real  # type: ignore[method-assign]
        await case.read(1, 0)
        assert case.loop.time() == 0
        await case.fetches.close()

    run(test)


def test_counters_begin_at_nothing() -> None:
    assert ChunkCacheCounters().bytes_fetched == 0
    assert {"remote_reads_throttled": 0, "remote_read_throttle_ms": 0}.items() <= (
        TieringMetrics().as_json().items()
    )
