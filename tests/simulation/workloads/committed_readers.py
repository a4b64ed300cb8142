"""Readers of committed records, which write down what they keep of the topics of transactions.

Owns: what a client drops of a fetched batch, and the reading of whole logs at the end.  Must not
know which transactions there were.
"""

import random

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.deadline import Deadline
from sparklog.client.fetch_api import Fetched
from sparklog.errors import DecodeError, ErrorCode, KafkaError, SparklogError
from sparklog.types import Isolation, OffsetSpec
from sparklog.wire.records.aborted import AbortedFilter
from sparklog.wire.records.batch import iter_batches
from sparklog.wire.records.builder import iter_records
from tests.simulation.events import FetchDamaged, LogId
from tests.simulation.final_state import CommittedLog
from tests.simulation.log_reading import EMPTY_MAX
from tests.simulation.transaction_events import CommittedRead
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import Scene

TIMEOUT_S = 4.0
LAST_TIMEOUT_S = 60.0


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    """Follow the logs; begin at the start again, or behind, now and then."""
    logs = scene.transaction_logs
    places = dict.fromkeys(logs, 0)
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(logs)
            if chance.random() < 0.1:
                places[log] = chance.randint(0, places[log])
            try:
                for _ in range(3):
                    before = places[log]
                    places[log] = await _read(scene, cluster, name, log, before, chance)
                    if places[log] == before:
                        break
            except SparklogError as error:
                cluster.expire_topics()
                if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    places[log] = 0
            await scene.pause(chance, 250)


async def _read(
    scene: Scene, cluster: ClusterClient, name: str, log: LogId, offset: int, chance: random.Random
) -> int:
    """One fetch; the offset behind it.  Raises SparklogError."""
    asked = scene.history.position
    await cluster.topic(log.topic, Deadline(TIMEOUT_S))
    answer = await DataClient(cluster).fetch(
        tp_of(log),
        offset,
        max_bytes=chance.choice((1, 500, 5000, 1 << 20)),
        max_wait_ms=chance.choice((0, 100)),
        isolation=Isolation.READ_COMMITTED,
        timeout_s=TIMEOUT_S,
        lane=name,
    )
    scene.count("committed_reads")
    try:
        records, end = _kept(answer, offset)
    except DecodeError as error:
        scene.history.record(
            FetchDamaged(asked=asked, reader=name, log=log, offset=offset, error=str(error))
        )
        return offset
    scene.history.record(
        CommittedRead(
            asked=asked,
            reader=name,
            log=log,
            offset=offset,
            last_stable_offset=answer.last_stable_offset,
            high_watermark=answer.high_watermark,
            records=records,
        )
    )
    return end


def _kept(answer: Fetched, offset: int) -> tuple[tuple[tuple[int, bytes | None], ...], int]:
    """The records that a client keeps, and the offset behind all batches.  Raises DecodeError."""
    aborted = AbortedFilter(answer.aborted)
    kept: list[tuple[int, bytes | None]] = []
    end = offset
    for header, at in iter_batches(answer.records, partial_tail=True):
        end = max(end, header.next_offset)
        if aborted.drops(answer.records, at, header) or header.is_control:
            continue
        for record in iter_records(answer.records, at, header):
            if record.offset >= offset:
                kept.append((record.offset, record.value))
    return tuple(kept), end


async def read_committed_log(cluster: ClusterClient, log: LogId) -> CommittedLog:
    """All that a reader of committed records gets of a log, up to its end if it can.

    A log that was lost may begin behind the offsets that it had used.
    """
    data_client, tp = DataClient(cluster), tp_of(log)
    records: dict[int, bytes | None] = {}
    end = offset = stable = empty = 0
    damage = ""
    try:
        await cluster.topic(log.topic, Deadline(LAST_TIMEOUT_S))
        for isolation in (Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED):
            found = await data_client.list_offsets(
                {tp: int(OffsetSpec.LATEST)}, isolation=isolation, timeout_s=LAST_TIMEOUT_S
            )
            end, stable = (found[tp].offset, stable) if not isolation else (end, found[tp].offset)
        first = await data_client.list_offsets(
            {tp: int(OffsetSpec.EARLIEST)}, timeout_s=LAST_TIMEOUT_S
        )
        offset = first[tp].offset
        while offset < stable:
            answer = await data_client.fetch(
                tp, offset, isolation=Isolation.READ_COMMITTED, timeout_s=LAST_TIMEOUT_S
            )
            kept, behind = _kept(answer, offset)
            empty = empty + 1 if behind == offset else 0
            if empty >= EMPTY_MAX:
                damage = f"nothing at offset {offset}"
                break
            records.update(kept)
            offset = behind
    except (SparklogError, DecodeError) as error:
        damage = str(error) or repr(error)
    return CommittedLog(end=end, last_stable_offset=stable, records=records, damage=damage)
