"""Compacted topics: producers of keyed records, and readers that keep the last record of each key.

Owns: the topics and their settings, and how a reader makes its table.  Must not know how a table is
checked.
"""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, field

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.errors import DecodeError, ErrorCode, KafkaError, SparklogError
from sparklog.types import Isolation
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import iter_records
from tests.simulation.compaction_events import Step, TableRead, TimeLookedUp
from tests.simulation.events import FetchDamaged, Fetched, LogId
from tests.simulation.keyed_records import key_of, text_of
from tests.simulation.workloads import idempotent, produce, topics
from tests.simulation.workloads.consume import list_start, still_meant, tp_of
from tests.simulation.workloads.scene import KeyedValues, Scene

TIMEOUT_S = 4.0
#: A table that is read at the end of a run.
LAST_TIMEOUT_S = 60.0
#: Fetches after which a reader leaves a log for a while.
FETCHES_MAX = 40
#: After how long a reader that comes seldom is back.
RETURN_S = (2.5, 5.0)


def settings(chance: random.Random) -> dict[str, str]:
    """The settings of a cluster with compacted topics, by Kafka's names."""
    return {
        "log.cleaner.backoff.ms": str(chance.choice((300, 800))),
        "log.cleaner.dedupe.buffer.size": "1048576",
    }


async def create_topics(scene: Scene, chance: random.Random) -> None:
    """One or two."""
    async with await scene.world.cluster_client("setup") as cluster:
        for number in range(chance.choice((1, 1, 2))):
            factor = 1 if chance.random() < 0.3 else scene.some_factor(chance)
            configs = {
                "cleanup.policy": chance.choice(("compact", "compact", "compact,delete")),
                "segment.bytes": chance.choice(("600", "1500", "4000")),
                "index.interval.bytes": chance.choice(("50", "400")),
                "segment.ms": chance.choice(("700", "604800000")),
                "min.cleanable.dirty.ratio": chance.choice(("0", "0.1", "0.5")),
                "delete.retention.ms": chance.choice(("1500", "3000", "6000")),
                "file.delete.delay.ms": chance.choice(("0", "1000")),
            }
            if chance.random() < 0.2:
                configs["min.compaction.lag.ms"] = "500"
            if "delete" in configs["cleanup.policy"]:
                configs["retention.bytes"] = chance.choice(("5000", "20000"))
            if chance.random() < 0.4:
                configs["flush.messages"] = "1"
            if factor > 1:
                configs["min.insync.replicas"] = chance.choice("122")
            topic = await topics.create(
                scene,
                cluster,
                f"compacted-{number}",
                chance.choice((1, 1, 2)),
                configs,
                chance,
                factor,
            )
            assert topic is not None
            scene.compacted.append(topic)


async def write(scene: Scene, name: str, chance: random.Random) -> None:
    """Without producer ids."""
    await produce.send(scene, name, KeyedValues(name, chance), scene.compacted_logs, chance)


async def write_idempotently(scene: Scene, name: str, chance: random.Random) -> None:
    await idempotent.send(scene, name, KeyedValues(name, chance), scene.compacted_logs, chance)


@dataclass(slots=True)
class Table:
    """What a reader of one log has come to know."""

    asked: int
    began_ms: int
    start: int
    offset: int
    steps: list[Step] = field(default_factory=list)
    last: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)


async def read_tables(scene: Scene, name: str, chance: random.Random) -> None:
    """Keep tables up to date, and begin them anew now and then."""
    tables: dict[LogId, Table] = {}
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(scene.compacted_logs)
            if chance.random() < 0.4:
                tables.pop(log, None)
            await _visit(scene, cluster, name, log, tables, chance)
            await scene.pause(chance, chance.choice((200, 200, 3000)))


async def read_seldom(scene: Scene, name: str, chance: random.Random) -> None:
    """Keep tables, and bring them up to date when the log may have been cleaned twice since."""
    tables: dict[LogId, Table] = {}
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            for log in scene.compacted_logs:
                await _visit(scene, cluster, name, log, tables, chance)
            await asyncio.sleep(chance.uniform(*RETURN_S))


async def read_last(scene: Scene, name: str) -> None:
    """At the end of a run, every log once more."""
    async with await scene.world.cluster_client(name) as cluster:
        for log in scene.compacted_logs:
            with suppress(SparklogError):
                table = await _begin(scene, cluster, log)
                await _catch_up(scene, cluster, name, log, table, None)


async def _visit(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    tables: dict[LogId, Table],
    chance: random.Random,
) -> None:
    """Bring the table of one log up to date, as far as the cluster lets it."""
    try:
        if log not in tables:
            tables[log] = await _begin(scene, cluster, log)
        await _catch_up(scene, cluster, name, log, tables[log], chance)
        if chance.random() < 0.2:
            await _look_up_time(scene, cluster, log, chance)
    except SparklogError as error:
        cluster.expire_topics()
        if isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            tables.pop(log, None)


async def _begin(scene: Scene, cluster: ClusterClient, log: LogId) -> Table:
    asked, began_ms = scene.history.position, scene.now_ms
    await cluster.topic(log.topic, Deadline(TIMEOUT_S))
    start = await list_start(cluster, tp_of(log))
    return Table(asked, began_ms, start, start)


async def _catch_up(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    table: Table,
    chance: random.Random | None,
) -> None:
    """Read up to the last stable offset.  Raises SparklogError."""
    for _ in range(FETCHES_MAX if chance is not None else 100_000):
        if await _fetch(scene, cluster, name, log, table, chance):
            scene.count("tables_read")
            scene.history.record(
                TableRead(
                    reader=name,
                    log=log,
                    asked=table.asked,
                    began_ms=table.began_ms,
                    start=table.start,
                    end=table.offset,
                    steps=tuple(table.steps),
                    table=tuple(sorted(table.last.values())),
                )
            )
            return
        if chance is not None and chance.random() < 0.1:
            await scene.pause(chance, 1500)


async def _fetch(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    table: Table,
    chance: random.Random | None,
) -> bool:
    """One fetch; return whether the table is complete.  Raises SparklogError."""
    tp, asked, offset = tp_of(log), scene.history.position, table.offset
    await cluster.topic(log.topic, Deadline(TIMEOUT_S))
    answer = await DataClient(cluster).fetch(
        tp,
        offset,
        max_bytes=chance.choice((1, 500, 5000, 1 << 20)) if chance is not None else 1 << 20,
        max_wait_ms=chance.choice((0, 100)) if chance is not None else 0,
        timeout_s=TIMEOUT_S if chance is not None else LAST_TIMEOUT_S,
        isolation=Isolation.READ_COMMITTED,
        lane=name,
    )
    if not still_meant(cluster, log):
        return False
    scene.count("reads")
    aborted, found = AbortedFilter(answer.aborted), []
    records: list[tuple[int, bytes | None]] = []
    try:
        for header, at in iter_batches(answer.records, partial_tail=True):
            table.offset = max(table.offset, header.next_offset)
            dropped = aborted.drops(answer.records, at, header)
            if header.is_control:
                continue
            for record in iter_records(answer.records, at, header):
                records.append((record.offset, text_of(record)))
                if not dropped and record.offset >= offset:
                    found.append(records[-1])
    except DecodeError as error:
        scene.history.record(
            FetchDamaged(asked=asked, reader=name, log=log, offset=offset, error=str(error))
        )
        return False
    for place, text in found:
        assert text is not None
        table.last[key_of(text)] = (place, text)
    table.steps.append(Step(table.offset, scene.now_ms))
    scene.history.record(
        Fetched(
            asked=asked,
            reader=name,
            log=log,
            offset=offset,
            leader_epoch=answer.leader_epoch,
            high_watermark=answer.high_watermark,
            log_start=answer.log_start_offset,
            records=tuple(records),
            complete=not answer.records and answer.last_stable_offset == answer.high_watermark,
        )
    )
    return table.offset >= answer.last_stable_offset


async def _look_up_time(
    scene: Scene, cluster: ClusterClient, log: LogId, chance: random.Random
) -> None:
    asked, timestamp = scene.history.position, scene.wall_ms - chance.randint(0, 8000)
    found = await DataClient(cluster).list_offsets({tp_of(log): timestamp}, timeout_s=TIMEOUT_S)
    if still_meant(cluster, log):
        answer = found[tp_of(log)]
        scene.count("times_looked_up")
        scene.history.record(
            TimeLookedUp(
                asked=asked,
                log=log,
                timestamp=timestamp,
                offset=answer.offset,
                found_timestamp=answer.timestamp,
            )
        )
