"""Idempotent producers: up to five batches under way, sent again until their fate is known.

Owns: what such a client does when an answer does not come.  Must not know how it is checked.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.producer_sequences import ProducerIdentity
from sparklog.errors import ErrorCode, SparklogError
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
    produce_once,
)
from tests.simulation.workloads.produce import REFUSALS
from tests.simulation.workloads.scene import Scene, Values, encoded

TIMEOUT_S = 3.0
IN_FLIGHT_MAX = 5
ATTEMPTS_MAX = 12


@dataclass(slots=True)
class _Batch:
    """``maybe_there``: at least one attempt may have written it."""

    op: int
    data: bytes
    maybe_there: bool = False


@dataclass(slots=True)
class Sequence:
    """Where a producer is in one log."""

    identity: ProducerIdentity
    next: int = 0


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    await send(scene, name, Values(name, chance), scene.logs, chance)


async def send(
    scene: Scene, name: str, values: Values, to: list[LogId], chance: random.Random
) -> None:
    """Send to these partitions until the run is over."""
    sequences: dict[LogId, Sequence] = {}
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(to)
            try:
                sequence = sequences.get(log)
                if sequence is None:
                    identity = await DataClient(cluster).init_producer_id(timeout_s=TIMEOUT_S)
                    sequence = sequences[log] = Sequence(identity)
            except SparklogError:
                continue
            count = chance.randint(1, IN_FLIGHT_MAX)
            batches = [begin(scene, log, name, values.some(), sequence) for _ in range(count)]
            acknowledged = await send_until_known(scene, cluster, log, name, batches, chance)
            if not acknowledged:
                del sequences[log]
            await scene.pause(chance, 400)
            if acknowledged and chance.random() < 0.2:
                await _send_again(cluster, log, name, batches)


def begin(
    scene: Scene,
    log: LogId,
    name: str,
    values: tuple[bytes, ...],
    sequence: Sequence,
    *,
    transactional: bool = False,
) -> _Batch:
    op = scene.history.new_op()
    scene.history.record(
        ProduceInvoked(op=op, log=log, producer=name, values=values, idempotent=True, resent=True)
    )
    data = encoded(
        values,
        scene.wall_ms,
        producer_id=sequence.identity.producer_id,
        producer_epoch=sequence.identity.producer_epoch,
        base_sequence=sequence.next,
        keyed=scene.compacts(log),
        transactional=transactional,
    )
    sequence.next += len(values)
    return _Batch(op, data)


async def send_until_known(
    scene: Scene,
    cluster: ClusterClient,
    log: LogId,
    name: str,
    batches: list[_Batch],
    chance: random.Random,
) -> bool:
    """Whether all were acknowledged; else the producer id must not be used again."""
    pending = batches
    for _ in range(ATTEMPTS_MAX):
        try:
            connection = await connect_leader(cluster, log, Deadline(TIMEOUT_S), name)
        except NotSentError:
            await scene.pause(chance, 1000)
            continue
        attempts = [
            produce_once(log, b.data, acks=-1, timeout_s=TIMEOUT_S, connection=connection)
            for b in pending
        ]
        answers = await asyncio.gather(*attempts, return_exceptions=True)
        pending = [
            batch
            for batch, answer in zip(pending, answers, strict=True)
            if not _take_answer(scene, batch, answer)
        ]
        if not pending:
            return True
        cluster.expire_topics()
        await scene.pause(chance, 1000)
    for batch in pending:
        if batch.maybe_there:
            scene.history.record(ProduceUnknown(op=batch.op, reason="given up"))
        else:
            scene.history.record(ProduceRefused(op=batch.op, code="given up"))
    return False


async def _send_again(cluster: ClusterClient, log: LogId, name: str, batches: list[_Batch]) -> None:
    """As a network does that gives a request twice: whatever is answered, nothing is to change."""
    with suppress(NotSentError, NoAnswerError):
        connection = await connect_leader(cluster, log, Deadline(TIMEOUT_S), name)
        for batch in batches:
            await produce_once(log, batch.data, acks=-1, timeout_s=TIMEOUT_S, connection=connection)


def _take_answer(
    scene: Scene, batch: _Batch, answer: tuple[ErrorCode, int] | BaseException
) -> bool:
    """Take the answer to a batch; return whether the batch is known to be in the log."""
    if isinstance(answer, NotSentError):
        return False
    if isinstance(answer, NoAnswerError):
        scene.count("unknown_outcomes")
        batch.maybe_there = True
        return False
    if isinstance(answer, BaseException):
        raise answer
    code, base_offset = answer
    if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        base_offset = -1
    elif code != ErrorCode.NONE:
        batch.maybe_there |= code not in REFUSALS
        return False
    scene.count("acked_writes")
    scene.history.record(ProduceAcked(op=batch.op, base_offset=base_offset))
    return True
