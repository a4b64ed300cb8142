"""The fetcher of a range, beside a leader that answers as a test scripts it."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.client.blocking_data_client import BlockingDataClient
from sparklog.client.fetch_api import Fetched
from sparklog.dataframe.corrupt_batches import CorruptBatches
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.read.plan import OffsetRange
from sparklog.dataframe.read.range_fetcher import RangeFetcher
from sparklog.errors import CorruptBatchError
from sparklog.types import Endpoint, TopicPartition
from tests.support.batches import batch

TP = TopicPartition("t", 0)


class ScriptedClient:
    """A ``BlockingDataClient`` whose fetches are answered at once by ``answer``."""

    timeout_s = 1.0

    def __init__(self, answer: Callable[[int], Fetched]) -> None:
        self._answer = answer
        self.fetched_at: list[int] = []
        self.data_client = SimpleNamespace(fetch=lambda _tp, offset, **_: offset)
        self.cluster = SimpleNamespace(view=SimpleNamespace(topics={}))

    def submit(self, offset: int) -> "Future[Fetched]":
        self.fetched_at.append(offset)
        found: Future[Fetched] = Future()
        found.set_result(self._answer(offset))
        return found

    def result(self, pending: "Future[Fetched]") -> Fetched:
        return pending.result()


def answered(offset: int, high_watermark: int) -> Fetched:
    """The batch of one record at an offset."""
    return Fetched(
        records=memoryview(batch(b"%d" % offset, base_offset=offset)),
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=0,
    )


def fetcher(client: Any, end: int) -> RangeFetcher:
    item = OffsetRange(topic_partition=TP, start=0, end=end)
    options = ReadOptions(topics=("t",), bootstrap=(Endpoint("127.0.0.1", 1),))
    return RangeFetcher(
        cast(BlockingDataClient, client), item, options, CorruptBatches(TP, 0, end, fail=True)
    )


def test_records_above_a_high_watermark_that_was_read_before_them_are_no_damage() -> None:
    """Apache Kafka's leader reads its high watermark first; the record may follow in between."""

    def race(offset: int) -> Fetched:
        return answered(offset, 1 if client.fetched_at.count(1) < 2 else 2)

    client = ScriptedClient(race)
    assert [start for start, _ in fetcher(client, 2)] == [0, 1]
    assert client.fetched_at == [0, 1, 1]


def test_a_batch_that_stays_above_the_high_watermark_is_damaged() -> None:
    client = ScriptedClient(lambda offset: answered(offset, 1))
    found = fetcher(client, 2)
    with pytest.raises(CorruptBatchError, match="next offset is 2; the log is readable up to 1"):
        list(found)
    assert client.fetched_at == [0, 1, 1]
