"""aiokafka: asyncio, with record codecs in Cython."""

import asyncio
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.clients.rows import PARTITIONS, Place, Row

SECONDS_MAX = 60.0


class AioKafka:
    name = "aiokafka"
    empties = True
    null_headers = True
    timestamps = True

    def listing(self, bootstrap: str) -> tuple[set[int], dict[str, int]]:
        return asyncio.run(_listing(bootstrap))

    def write(self, bootstrap: str, topic: str, codec: str, rows: Sequence[Row]) -> list[Place]:
        return asyncio.run(_write(bootstrap, topic, codec, rows))

    def read(
        self, bootstrap: str, topic: str, count: int, timestamp: int | None = None
    ) -> list[Row]:
        return asyncio.run(_read(bootstrap, topic, count, timestamp))


async def _listing(bootstrap: str) -> tuple[set[int], dict[str, int]]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        cluster = await admin.describe_cluster()
        topics = await admin.describe_topics()
    finally:
        await admin.close()
    nodes = {broker["node_id"] for broker in cluster["brokers"]}
    return nodes, {topic["topic"]: len(topic["partitions"]) for topic in topics}


async def _write(bootstrap: str, topic: str, codec: str, rows: Sequence[Row]) -> list[Place]:
    async with (
        asyncio.timeout(SECONDS_MAX),
        AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
        ) as producer,
    ):
        sent = [
            await producer.send(
                topic,
                row.value,
                row.key,
                partition=row.partition,
                timestamp_ms=row.timestamp,
                headers=list(row.headers),
            )
            for row in rows
        ]
        answers = await asyncio.gather(*sent)
    return [(a.partition, a.offset) for a in answers]


async def _read(bootstrap: str, topic: str, count: int, timestamp: int | None) -> list[Row]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=100)
    rows: list[Row] = []
    async with asyncio.timeout(SECONDS_MAX), consumer:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        if timestamp is None:
            await consumer.seek_to_beginning()
        else:
            found = await consumer.offsets_for_times(dict.fromkeys(partitions, timestamp))
            for partition in partitions:
                consumer.seek(partition, found[partition].offset)
        while len(rows) < count:
            found = await consumer.getmany(timeout_ms=200, max_records=count - len(rows))
            rows += [
                Row(m.partition, m.offset, m.timestamp, m.key, m.value, tuple(m.headers))
                for messages in found.values()
                for m in messages
            ]
    return rows
