"""DataFrame reads of tiered topics through the brokers, without Spark: tasks run in a thread."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import Filter, GreaterThanOrEqual

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.producer import Producer
from sparklog.client.producer_options import ProducerOptions
from sparklog.dataframe.options import Bound, ReadOptions
from sparklog.dataframe.read import PushdownTopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.types import Endpoint, Isolation
from tests.support.batches import TIMESTAMP_MS, batch
from tests.unit.executors.tiering.tiered_rig import TieredRig, run_tiered

TRANSACTIONS = {
    "transaction_state_log_num_partitions": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
}


def options(tiered: TieredRig, **changes: Any) -> ReadOptions:
    given = ReadOptions(
        bootstrap=(Endpoint("127.0.0.1", tiered.rig.control.port),),
        topics=("t",),
        poll_timeout_ms=20_000,
    )
    return replace(given, **changes)


def read(given: ReadOptions, filters: tuple[Filter, ...] = ()) -> list[tuple[int, bytes]]:
    """Offsets and values of a DataFrame.  Blocks."""
    reader = PushdownTopicReader(given, read_schema(include_headers=False))
    reader.pushFilters(list(filters))
    return [
        row
        for partition in reader.partitions()
        for batch_read in reader.read(partition)
        for row in zip(
            batch_read.column("offset").to_pylist(),
            batch_read.column("value").to_pylist(),
            strict=True,
        )
    ]


async def rows(tiered: TieredRig, *filters: Filter, **changes: Any) -> list[tuple[int, bytes]]:
    return await asyncio.to_thread(read, options(tiered, **changes), filters)


async def filled(tiered: TieredRig) -> list[tuple[int, bytes]]:
    """A record for each second, of which less than half are on the disk; all rows."""
    await tiered.start()
    client = await tiered.client()
    for number in range(40):
        value = b"%06d" % number + b"x" * 100
        data = batch(value, timestamp=TIMESTAMP_MS + 1000 * number)
        assert (await client.produce("t", data)).error_code == 0
        tiered.values.append(value)
    await tiered.tier()
    assert tiered.partition.log.local_log_start_offset > 20
    return list(enumerate(tiered.values))


def at(second: float) -> int:
    return TIMESTAMP_MS + int(1000 * second)


def test_a_read_begins_at_the_log_start() -> None:
    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        assert await rows(tiered) == everything
        assert await rows(tiered, min_partitions=7) == everything
        assert await rows(tiered, isolation=Isolation.READ_UNCOMMITTED) == everything

    run_tiered(test)


def test_bounds_by_time_are_found_in_the_bucket() -> None:
    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        for first, end in ((3, 9), (3.5, 33), (0, 1), (35, 39)):
            found = await rows(
                tiered,
                starting=Bound(timestamp_ms=at(first)),
                ending=Bound(timestamp_ms=at(end)),
            )
            assert found == [row for row in everything if first <= row[0] < end]

    run_tiered(test)


def test_a_filter_on_the_timestamp_loses_nothing_in_the_bucket() -> None:
    async def test(tiered: TieredRig) -> None:
        everything = await filled(tiered)
        for second in (4, 20, 38):
            moment = datetime.fromtimestamp(at(second) / 1000, UTC)
            found = await rows(tiered, GreaterThanOrEqual(("timestamp",), moment))
            assert found == everything[second:]

    run_tiered(test)


@pytest.mark.parametrize("isolation", list(Isolation))
def test_transactions_over_both_tiers(isolation: Isolation) -> None:
    """Aborted data is left out wherever its marker is; its transaction spans several segments."""

    async def test(tiered: TieredRig) -> None:
        await tiered.start()
        kept, all_values = await produce_transactions(tiered)
        await tiered.fill(20)  # the last marker is flushed when its segment is sealed
        await tiered.tier()
        assert tiered.partition.log.local_log_start_offset > 70
        found = [value for _, value in await rows(tiered, isolation=isolation)]
        committed = isolation is Isolation.READ_COMMITTED
        assert found == (kept if committed else all_values) + tiered.values

    run_tiered(test, **TRANSACTIONS)


async def produce_transactions(tiered: TieredRig) -> tuple[list[bytes], list[bytes]]:
    """The values of committed transactions, and of all."""
    kept: list[bytes] = []
    values: list[bytes] = []
    async with ClusterClient([Endpoint("127.0.0.1", tiered.rig.control.port)]) as cluster:
        producer = Producer(cluster, ProducerOptions(transactional_id="a", linger_ms=0))
        await producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            mine = [b"%d:%d" % (number, each) + b"x" * 150 for each in range(12)]
            for value in mine:
                await (await producer.send("t", value))
            values += mine
            if number % 2:
                await producer.commit_transaction()
                kept += mine
            else:
                await producer.abort_transaction()
        await producer.close()
    return kept, values
