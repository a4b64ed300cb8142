"""A reader that says where it stands, and reads from the replica there (KIP-392).

Owns: what Kafka's consumers do about replicas: they go where a leader sends them, and back to it
when that replica refuses, or now and then.  Must not know how reads are checked.
"""

import random
from dataclasses import dataclass

from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline, check
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.types import NO_NODE
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.fetch import decode_fetch_response, records_view
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from tests.simulation.events import Fetched, LogId
from tests.simulation.workloads.consume import (
    TIMEOUT_S,
    Place,
    list_end,
    list_start,
    read_records,
    still_meant,
    tp_of,
)
from tests.simulation.workloads.scene import Scene

CONSUMER = -1


@dataclass(slots=True, kw_only=True)
class _Spot(Place):
    """``rack``: where the reader stands; ``closest``: the replica that the leader named; -1: the
    leader."""

    rack: str
    closest: int = NO_NODE


async def run(scene: Scene, name: str, chance: random.Random) -> None:
    spots: dict[LogId, _Spot] = {}
    async with await scene.world.cluster_client(name) as cluster:
        while not scene.over:
            log = chance.choice(scene.logs)
            spot = spots.setdefault(log, _Spot(rack=_some_rack(scene, chance)))
            try:
                await _look(scene, cluster, name, log, spot, chance)
            except SparklogError:
                cluster.expire_topics()
            await scene.pause(chance, 200)


def _some_rack(scene: Scene, chance: random.Random) -> str:
    """A broker without a rack stands in that of its host."""
    return chance.choice(list(scene.world.brokers.values())).name


async def _look(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    spot: _Spot,
    chance: random.Random,
) -> None:
    what = chance.random()
    if what < 0.1:
        await list_end(scene, cluster, log)
        return
    if what < 0.2:
        spot.rack, spot.closest = _some_rack(scene, chance), NO_NODE
    elif what < 0.4:
        spot.offset = chance.randint(spot.start, max(spot.start, spot.end))
    for _ in range(4):
        if not await _read(scene, cluster, name, log, spot, chance):
            return


async def _read(
    scene: Scene,
    cluster: ClusterClient,
    name: str,
    log: LogId,
    spot: _Spot,
    chance: random.Random,
) -> bool:
    """One fetch from the spot on; whether it is worth another.  Raises SparklogError."""
    tp, asked, offset, deadline = tp_of(log), scene.history.position, spot.offset, TIMEOUT_S
    await cluster.topic(log.topic, Deadline(deadline))
    led = cluster.view.leader(tp)
    if led is None:
        await cluster.refresh((log.topic,), Deadline(deadline))
        return False
    node = led.leader if spot.closest == NO_NODE else spot.closest
    wanted = FetchPartition(
        partition=log.partition,
        current_leader_epoch=led.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=chance.choice((1, 500, 5000, 1 << 20)),
    )
    request = FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=chance.choice((0, 100)),
        min_bytes=1,
        topics=(FetchTopic(topic=log.topic, topic_id=log.topic_id, partitions=(wanted,)),),
        rack_id=spot.rack,
    )
    try:
        answer = await _fetch(cluster, node, request, name)
    except SparklogError as error:
        if spot.closest != NO_NODE:
            spot.closest = NO_NODE
        elif isinstance(error, KafkaError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
            spot.offset = spot.start = await list_start(cluster, tp)
        raise
    if not still_meant(cluster, log):
        return False
    records = read_records(scene, records_view(answer.records), name, log, offset, asked)
    if records is None:
        return False
    follower = node if node != led.leader else NO_NODE
    scene.count("reads")
    scene.count("follower_reads", follower != NO_NODE and bool(records))
    scene.history.record(
        Fetched(
            asked=asked,
            reader=name,
            log=log,
            offset=offset,
            leader_epoch=led.leader_epoch,
            high_watermark=answer.high_watermark,
            log_start=answer.log_start_offset,
            records=records,
            complete=answer.preferred_read_replica == NO_NODE and not scene.is_tiered(log),
            follower=follower,
        )
    )
    spot.start, spot.end = answer.log_start_offset, answer.high_watermark
    if records:
        spot.offset = records[-1][0] + 1
    if answer.preferred_read_replica != NO_NODE:
        spot.closest = answer.preferred_read_replica
        return True
    return bool(records)


async def _fetch(
    cluster: ClusterClient, node: int, request: FetchRequest, lane: str
) -> PartitionData:
    """One try at one node.  Raises SparklogError."""
    connection = await cluster.connect_node(node, Deadline(TIMEOUT_S), lane)
    version = connection.version_for(FetchRequest)
    correlation_id = connection.next_correlation_id()
    payload = encode_request(request, version, correlation_id, connection.client_id)
    answer = await connection.exchange(FetchRequest.API_KEY, (payload,), timeout_s=TIMEOUT_S)
    answered_id, response = decode_fetch_response(version, answer)
    connection.check_correlation(correlation_id, answered_id)
    check(response.error_code)
    ((part,),) = [topic.partitions for topic in response.responses]
    check(part.error_code)
    return part
