"""A small story that many tests tell: a topic, a producer, trouble, and everything read back.

Owns: what a client does in it.  Must not know which trouble.
"""

from collections.abc import Awaitable, Callable

from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer, ConsumerOptions
from sparklog.client.data_client import DataClient
from sparklog.client.producer import Producer
from sparklog.client.producer_options import ProducerOptions
from sparklog.errors import SparklogError
from sparklog.types import OffsetSpec, TopicPartition
from tests.simulation.world import World

TOPIC = TopicPartition("flights", 0)
FLUSHED = {"flush.messages": "1"}
Trouble = Callable[[World], Awaitable[None]]


class Story:
    """``acked``: values by offset, as the producer was told; ``read``: what was there at last."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.acked: dict[int, bytes] = {}
        self.refused = 0
        self.read: dict[int, bytes] = {}

    async def create_topic(self, **configs: str) -> None:
        client = await self.world.cluster_client("admin")
        settings = FLUSHED | {name.replace("_", "."): value for name, value in configs.items()}
        await Admin(client).create_topic(TOPIC.topic, 1, configs=settings)
        await client.close()

    async def produce(self, count: int, *, first: int = 0, timeout_s: float = 30.0) -> None:
        """One record after the other, each acknowledged or given up."""
        node = self.world.client("producer")
        await node.run(self._produce(range(first, first + count), timeout_s))

    async def _produce(self, numbers: range, timeout_s: float) -> None:
        client = await self.world.cluster_client("producer")
        options = ProducerOptions(linger_ms=0, delivery_timeout_s=timeout_s)
        async with Producer(client, options) as producer:
            for number in numbers:
                value = f"value {number}".encode()
                try:
                    delivered = await (await producer.send(TOPIC.topic, value, partition=0))
                except SparklogError:
                    self.refused += 1
                else:
                    self.acked[delivered.offset] = value
            await _quietly(producer)
        await client.close()

    async def read_back(self) -> None:
        client = await self.world.cluster_client("consumer")
        await self.world.client("consumer").run(self._read(Consumer(client, ConsumerOptions())))
        await client.close()

    async def _read(self, consumer: Consumer) -> None:
        data_client = DataClient(consumer._cluster)
        end = (await data_client.list_offsets({TOPIC: OffsetSpec.LATEST}))[TOPIC].offset
        await consumer.assign({TOPIC: 0})
        while consumer.position(TOPIC) < end:
            for record in await consumer.poll():
                self.read[record.offset] = record.value or b""
        await consumer.close()


async def _quietly(producer: Producer) -> None:
    """Failures were counted one by one; the last flush need not repeat them."""
    try:
        await producer.flush()
    except SparklogError:
        return


def tell(seed: int, trouble: Trouble, *, records: int = 30, **configs: str) -> tuple[World, Story]:
    """Produce, meanwhile trouble, produce again, read everything."""
    world = World(seed)

    async def main(world: World) -> Story:
        story = Story(world)
        await world.start()
        await story.create_topic(**configs)
        producing = world.loop.create_task(story.produce(records))
        await trouble(world)
        await producing
        await story.produce(3, first=records)
        await story.read_back()
        return story

    return world, world.run(main)
