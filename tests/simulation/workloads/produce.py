"""Producers without producer ids: batches sent once, several at a time on one connection.

Some requests have a batch for every partition of a topic, as those of Java's producer may, also for
partitions that somebody else leads.

Owns: what such a client may conclude from an answer.  Must not know how it is checked.
"""

import asyncio
import random

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.connection import Connection
from sparklog.client.deadline import Deadline
from sparklog.errors import ErrorCode
from sparklog.types import Compression
from tests.simulation.events import (
    LogId,
    ProduceAcked,
    ProduceInvoked,
    ProduceRefused,
    ProduceUnknown,
)
from tests.simulation.workloads.calls import (
    NoAnswerError,
    NotSentError,
    connect_leader,
    produce_several,
)
from tests.simulation.workloads.scene import Scene, Values, encoded

#: Codes that are answered before anything is written.
REFUSALS = frozenset(
    {
        *(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH),
        *(ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD),
        *(ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.NOT_ENOUGH_REPLICAS),
    }
)
TIMEOUT_S = 5.0
CODECS = (Compression.NONE, Compression.NONE, Compression.LZ4, Compression.ZSTD)


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    await send(scene, name, Values(name, chance), scene.logs, chance)


async def send(
    scene: Scene, name: str, values: Values, to: list[LogId], chance: random.Random
) -> None:
    """Send to these partitions until the run is over."""
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(to)
            logs = [log]
            if chance.random() < 0.3:
                logs += [other for other in to if other != log and _same_topic(other, log)]
            requests = [
                {each: values.some() for each in logs} for _ in range(chance.choice((1, 2, 4)))
            ]
            await send_together(scene, cluster, log, name, requests, chance)
            await scene.pause(chance, 400)


def _same_topic(one: LogId, other: LogId) -> bool:
    return (one.topic, one.topic_id) == (other.topic, other.topic_id)


async def send_together(
    scene: Scene,
    cluster: ClusterClient,
    log: LogId,
    name: str,
    requests: list[dict[LogId, tuple[bytes, ...]]],
    chance: random.Random,
) -> None:
    """Send requests in a row to the leader of ``log``, without waiting for answers in between."""
    try:
        connection = await connect_leader(cluster, log, Deadline(TIMEOUT_S), name)
    except NotSentError:
        return
    acks, codec = chance.choice((1, -1, -1)), chance.choice(CODECS)
    stream = f"{name} at {scene.history.position}"
    sends = [_send(scene, cluster, stream, values, acks, codec, connection) for values in requests]
    await asyncio.gather(*sends)


async def _send(
    scene: Scene,
    cluster: ClusterClient,
    stream: str,
    values: dict[LogId, tuple[bytes, ...]],
    acks: int,
    codec: Compression,
    connection: Connection,
) -> None:
    history = scene.history
    ops = {log: history.new_op() for log in values}
    for log, op in ops.items():
        history.record(
            ProduceInvoked(
                op=op,
                log=log,
                producer=connection.client_id,
                values=values[log],
                acks=acks,
                stream=stream,
            )
        )
    batches = {
        log: encoded(each, scene.wall_ms, codec, keyed=scene.compacts(log))
        for log, each in values.items()
    }
    try:
        answers = await produce_several(
            batches, acks=acks, timeout_s=TIMEOUT_S, connection=connection
        )
    except NotSentError as error:
        for op in ops.values():
            history.record(ProduceRefused(op=op, code=f"not sent: {error}"))
    except NoAnswerError as error:
        scene.count("unknown_outcomes", len(ops))
        for op in ops.values():
            history.record(ProduceUnknown(op=op, reason=str(error)))
    else:
        if len(ops) > 1:
            scene.count("batches_sent_together", len(ops))
        for log, (code, base_offset) in answers.items():
            record_answer(scene, ops[log], code, base_offset)
    if connection.closed:
        cluster.expire_topics()


def record_answer(scene: Scene, op: int, code: ErrorCode, base_offset: int) -> None:
    """What one answer to a batch that was sent once says."""
    if code == ErrorCode.NONE:
        scene.count("acked_writes")
        scene.history.record(ProduceAcked(op=op, base_offset=base_offset))
    elif code in REFUSALS:
        scene.history.record(ProduceRefused(op=op, code=code.name))
    else:
        scene.count("unknown_outcomes")
        scene.history.record(ProduceUnknown(op=op, reason=code.name))
