"""Readers: they follow a partition, leap within it, and ask for its end.

Owns: what is written down of an answer.  Must not know how it is checked.
"""

import random
from contextlib import suppress
from dataclasses import dataclass

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.errors import DecodeError, ErrorCode, KafkaError, SparklogError
from sparklog.types import OffsetSpec, TopicPartition
from tests.simulation.events import EndListed, FetchDamaged, Fetched, LogId
from tests.simulation.tier_events import ReadRefused
from tests.simulation.workloads.calls import records_of
from tests.simulation.workloads.scene import Scene

TIMEOUT_S = 4.0


@dataclass(slots=True)
class Place:
    """Where a reader is in a log, and how far it knows the log to reach."""

    offset: int = 0
    start: int = 0
    end: int = 0


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    places: dict[LogId, Place] = {}
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            logs = scene.logs + [log for t in scene.passing.values() for log in t.logs]
            log = chance.choice(logs)
            place = places.setdefault(log, Place())
            try:
                await _look(scene, cluster, name, log, place, chance)
            except SparklogError:
                cluster.expire_topics()
                with suppress(SparklogError):  # from a leader that has just been elected, perhaps
                    await list_end(scene, cluster, log)
            await scene.pause(chance, 200)


async def _look(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    place: Place,
    chance: random.Random,
) -> None:
    what = chance.random()
    if what < 0.2:
        await list_end(scene, cluster, log)
        return
    if what < 0.4:
        place.offset = chance.randint(place.start, max(place.start, place.end))
    for _ in range(3):
        if not await read(scene, cluster, name, log, place, chance):
            return


async def list_end(scene: Scene, cluster: ClusterClient, log: LogId) -> int | None:
    """The latest offset; None when it is another topic's by now.  Raises SparklogError."""
    tp, asked = tp_of(log), scene.history.position
    found = await DataClient(cluster).list_offsets(
        {tp: int(OffsetSpec.LATEST)}, timeout_s=TIMEOUT_S
    )
    if not still_meant(cluster, log):
        return None
    end = found[tp]
    scene.history.record(
        EndListed(asked=asked, log=log, offset=end.offset, leader_epoch=end.leader_epoch)
    )
    return end.offset


async def read(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    place: Place,
    chance: random.Random,
) -> bool:
    """One fetch from the place on; whether there was something.  Raises SparklogError."""
    tp, asked, offset = tp_of(log), scene.history.position, place.offset
    await cluster.topic(log.topic, Deadline(TIMEOUT_S))  # so that it is asked for by its id
    try:
        answer = await DataClient(cluster).fetch(
            tp,
            offset,
            max_bytes=chance.choice((1, 500, 5000, 1 << 20)),
            max_wait_ms=chance.choice((0, 100)),
            timeout_s=TIMEOUT_S,
            lane=name,
        )
    except KafkaError as error:
        if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if scene.is_tiered(log) and still_meant(cluster, log):
                refused = ReadRefused(asked=asked, reader=name, log=log, offset=offset)
                scene.history.record(refused)
            place.offset = place.start = await list_start(cluster, tp)
        raise
    if not still_meant(cluster, log):
        return False
    scene.count("reads")
    records = read_records(scene, answer.records, name, log, offset, asked)
    if records is None:
        return False
    scene.history.record(
        Fetched(
            asked=asked,
            reader=name,
            log=log,
            offset=offset,
            leader_epoch=answer.leader_epoch,
            high_watermark=answer.high_watermark,
            log_start=answer.log_start_offset,
            records=records,
            # A fetch does not wait for the bucket for long.
            complete=not scene.is_tiered(log),
        )
    )
    place.start, place.end = answer.log_start_offset, answer.high_watermark
    if records:
        place.offset = records[-1][0] + 1
    return bool(records)


async def list_start(cluster: ClusterClient, tp: TopicPartition) -> int:
    """The earliest offset.  Raises SparklogError."""
    found = await DataClient(cluster).list_offsets(
        {tp: int(OffsetSpec.EARLIEST)}, timeout_s=TIMEOUT_S
    )
    return found[tp].offset


def read_records(
    scene: Scene, data: memoryview, reader: str, log: LogId, offset: int, asked: int
) -> tuple[tuple[int, bytes | None], ...] | None:
    """The records that were fetched; None when they cannot be read, which is written down."""
    try:
        return tuple(records_of(data))
    except DecodeError as error:
        scene.history.record(
            FetchDamaged(asked=asked, reader=reader, log=log, offset=offset, error=str(error))
        )
        return None


def tp_of(log: LogId) -> TopicPartition:
    return TopicPartition(log.topic, log.partition)


def still_meant(cluster: ClusterClient, log: LogId) -> bool:
    """Whether the client still means this very topic by its name."""
    known = cluster.view.topics.get(log.topic)
    return known is not None and known.topic_id == log.topic_id
