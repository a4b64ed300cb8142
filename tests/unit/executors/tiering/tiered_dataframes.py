"""What the tests of DataFrames of tiered topics share: reads without Spark, and topics to read.

Tasks run in a thread.
"""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import Filter, GreaterThanOrEqual

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.producer import Producer
from sparklog.client.producer_options import ProducerOptions
from sparklog.dataframe.options import ReadOptions
from sparklog.dataframe.read import PushdownTopicReader
from sparklog.dataframe.schema import read_schema
from sparklog.types import Endpoint
from tests.support.batches import TIMESTAMP_MS, batch
from tests.unit.executors.tiering.tiered_rig import TieredRig

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


def after(second: float) -> Filter:
    return GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(at(second) / 1000, UTC))


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
