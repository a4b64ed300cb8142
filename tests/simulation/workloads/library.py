"""Producers of sparklog's own client library, with producer ids or without.

Owns: what the library promises for a record.  Must not know how it is checked.
"""

import asyncio
import random
from contextlib import suppress

from sparklog.client.producer import Producer
from sparklog.client.producer_batches import Delivered
from sparklog.client.producer_options import ProducerOptions
from sparklog.errors import SparklogError
from tests.simulation.events import LogId, ProduceAcked, ProduceInvoked, ProduceUnknown
from tests.simulation.workloads.scene import Scene, Values

DELIVERY_S = 8.0


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    values = Values(name, chance)
    options = ProducerOptions(
        idempotent=chance.random() < 0.7,
        linger_ms=chance.choice((0, 5, 50)),
        delivery_timeout_s=DELIVERY_S,
        create_topics=False,
    )
    async with await scene.world.cluster_client(name) as cluster:
        producer = Producer(cluster, options)
        watches: set[asyncio.Task[None]] = set()
        while not scene.over:
            log = chance.choice(scene.logs)
            for _ in range(chance.choice((1, 3, 8))):
                watch = asyncio.create_task(_send(scene, producer, log, values, options.idempotent))
                watches.add(watch)
                watch.add_done_callback(watches.discard)
            await scene.pause(chance, 400)
        if watches:
            await asyncio.wait(watches)
        # Every record's own outcome is in the history already.
        with suppress(SparklogError, TimeoutError):
            await producer.close(DELIVERY_S)


async def _send(
    scene: Scene, producer: Producer, log: LogId, values: Values, idempotent: bool
) -> None:
    value, op = values.next(), scene.history.new_op()
    scene.history.record(
        ProduceInvoked(
            op=op,
            log=log,
            producer=values.producer,
            values=(value,),
            idempotent=idempotent,
            resent=True,
            stream=values.producer if idempotent else "",
        )
    )
    try:
        sent = await producer.send(
            log.topic, value, partition=log.partition, timestamp=scene.wall_ms
        )
        delivered: Delivered = await sent
    except SparklogError as error:
        scene.count("unknown_outcomes")
        scene.history.record(ProduceUnknown(op=op, reason=str(error)))
    else:
        scene.count("acked_writes")
        scene.history.record(ProduceAcked(op=op, base_offset=delivered.offset))
