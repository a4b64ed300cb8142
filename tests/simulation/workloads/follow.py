"""Consumers of sparklog's own client library: they follow some partitions, record by record.

Owns: where a consumer is, and what its records say.  Must not know how they are checked.
"""

import random

from sparklog.client.consumer import ConsumedRecord, Consumer, ConsumerOptions
from sparklog.errors import SparklogError
from sparklog.types import Isolation, TopicPartition
from tests.simulation.events import Consumed, LogId
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import Scene

POLL_S = 1.0
#: A consumer is begun anew after so many polls, sometimes.
POLLS = 20


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    options = ConsumerOptions(
        isolation=chance.choice(list(Isolation)),
        max_wait_ms=200,
        partition_bytes_max=chance.choice((1, 2000, 1 << 20)),
        request_timeout_s=5.0,
    )
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            logs = chance.sample(scene.logs, min(3, len(scene.logs)))
            try:
                async with Consumer(cluster, options) as consumer:
                    await _follow(scene, consumer, name, logs, chance)
            except SparklogError:
                cluster.expire_topics()  # out of range after a loss or a deletion, or nobody there
            await scene.pause(chance, 500)


async def _follow(
    scene: Scene, consumer: Consumer, name: str, logs: list[LogId], chance: random.Random
) -> None:
    by_tp = {tp_of(log): log for log in logs}
    asked = scene.history.position  # records may have been fetched long before a poll gives them
    await consumer.assign(list(by_tp))
    for _ in range(chance.randint(1, POLLS)):
        if scene.over:
            return
        before = {tp: consumer.position(tp) for tp in by_tp}
        taken: dict[TopicPartition, list[ConsumedRecord]] = {}
        for record in await consumer.poll(POLL_S, chance.choice((1, 50, 500))):
            taken.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        for tp, records in taken.items():
            scene.count("reads")
            scene.history.record(
                Consumed(
                    asked=asked,
                    reader=name,
                    log=by_tp[tp],
                    offset=before[tp],
                    records=tuple((record.offset, record.value) for record in records),
                )
            )
