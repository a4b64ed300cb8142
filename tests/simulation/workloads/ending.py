"""The end of a run: everything is healed, every partition is tried, and once more all is lost.

Owns: what a whole cluster is, and how it is tried.  Must not know what the checkers make of it.
"""

import asyncio
import random
from contextlib import suppress
from itertools import cycle

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.data_client import DataClient
from sparklog.client.replica_admin import ReplicaAdmin
from sparklog.errors import SparklogError
from sparklog.types import ElectionType
from tests.simulation.checkers.copies import follow
from tests.simulation.events import (
    Healed,
    InSync,
    LogId,
    Probed,
    ProduceAcked,
    ProduceInvoked,
    ProduceUnknown,
    UncleanElectionAsked,
)
from tests.simulation.hosts import Loss
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.nemesis import bring_back
from tests.simulation.workloads.scene import Scene, encoded

#: Virtual time after which a partition that does not work is given up.
PROBE_TIMEOUT_S = 120.0
OPERATOR_TIMEOUT_S = 5.0


async def heal(scene: Scene) -> None:
    """All is well again: a partition that went offline is brought back by a restart."""
    world = scene.world
    world.heal_network()
    world.control.disk.heal()
    world.resume_control_plane()
    if world.control.node is None:
        await world.start_control_plane()
    for broker_id, host in world.brokers.items():
        world.heal_disk(broker_id)
        await bring_back(scene, broker_id)
        if host.broker is not None and host.broker.replica_manager.offline:
            scene.count("offline_partitions")
            await world.kill_broker(broker_id)
            await bring_back(scene, broker_id)
    await world.client("operator").run(revive(scene, "operator"))
    scene.history.record(Healed())


async def revive(scene: Scene, name: str) -> None:
    """What only an operator can: give up the records of a partition of which no disk is left."""
    async with await scene.world.cluster_client(name) as cluster:
        for log in scene.kept_logs:
            # A broker accepts one loss for each time that it is told of the partition anew.
            accepted = cycle(("", str(tp_of(log))))
            while is_gone(scene, log) and not _is_led(scene, log):
                await ask_unclean(scene, cluster, log)
                await _accept_loss(scene, cluster, log, next(accepted))
                await asyncio.sleep(1)


async def ask_unclean(scene: Scene, cluster: ClusterClient, log: LogId) -> None:
    """Ask once for a leader that may lack records."""
    scene.history.record(UncleanElectionAsked(log=log))
    with suppress(SparklogError):
        await ReplicaAdmin(cluster, timeout_s=OPERATOR_TIMEOUT_S).elect_leaders(
            [tp_of(log)], ElectionType.UNCLEAN
        )


async def _accept_loss(scene: Scene, cluster: ClusterClient, log: LogId, accepted: str) -> None:
    """Let the only replica go on with an empty log: without it no replica is left to be elected."""
    replicas = follow(scene.history)[log].state.replicas
    if len(replicas) == 1:
        with suppress(SparklogError):
            await Admin(cluster, timeout_s=OPERATOR_TIMEOUT_S).alter_broker_configs(
                replicas[0], {"lost.logs.accept": accepted}
            )


def is_gone(scene: Scene, log: LogId) -> bool:
    """Whether no replica has anything left that it could lead with."""
    copies = follow(scene.history)[log]
    cut = copies.failed & copies.lost_spans.keys()
    return copies.holders <= copies.emptied | cut


def _is_led(scene: Scene, log: LogId) -> bool:
    """Whether a replica leads.  It may go on behind the bucket, alone, and nobody has more."""
    host = scene.world.brokers.get(scene.leader(log))
    broker = host.broker if host is not None else None
    led = broker.replica_manager.get(tp_of(log)) if broker is not None else None
    return led is not None and led.is_leader


async def probe(scene: Scene, name: str) -> None:
    """One record into every partition, and out of it again."""
    async with await scene.world.cluster_client(name) as cluster:
        for log in scene.logs + scene.compacted_logs:
            began = scene.now_ms
            try:
                await _probe(scene, cluster, log, name)
                error = ""
            except SparklogError as problem:
                error = str(problem) or repr(problem)
            scene.history.record(Probed(log=log, took_ms=scene.now_ms - began, error=error))


async def _probe(scene: Scene, cluster: ClusterClient, log: LogId, name: str) -> None:
    op = scene.history.new_op()
    keyed = scene.compacts(log)
    value = f"probe={name}/{op}".encode() if keyed else f"{name}/{op}".encode()
    scene.history.record(
        ProduceInvoked(op=op, log=log, producer=name, values=(value,), resent=True)
    )
    data_client, tp = DataClient(cluster), tp_of(log)
    try:
        batch = encoded((value,), scene.wall_ms, keyed=keyed)
        produced = await data_client.produce(tp, [batch], timeout_s=PROBE_TIMEOUT_S)
    except SparklogError as error:
        scene.history.record(ProduceUnknown(op=op, reason=str(error)))
        raise
    scene.history.record(ProduceAcked(op=op, base_offset=produced.base_offset))
    await data_client.fetch(tp, produced.base_offset, timeout_s=PROBE_TIMEOUT_S)


async def await_in_sync(scene: Scene) -> None:
    """Until every partition has a leader, and all of its replicas are in sync."""
    began = scene.now_ms
    missing = dict(scene.missing_in_sync())
    while any(missing.values()) and not scene.stuck:
        await asyncio.sleep(0.2)
        missing = dict(scene.missing_in_sync())
        scene.stuck = scene.now_ms - began > PROBE_TIMEOUT_S * 1000
    took_ms = scene.now_ms - began
    for log, brokers in missing.items():
        scene.history.record(InSync(log=log, took_ms=took_ms, missing=brokers))


async def last_crash(scene: Scene, chance: random.Random) -> None:
    """Once more, so that every run ends on what was really written: one broker after the other,
    or all at once."""
    together = chance.random() < 0.3
    for broker_id in chance.sample(list(scene.world.brokers), len(scene.world.brokers)):
        if chance.random() < 0.3:
            scene.stopping.add(broker_id)
            await scene.world.stop_broker(broker_id)
            scene.stopping.discard(broker_id)
        else:
            loss = Loss.UNFLUSHED if chance.random() < 0.7 else Loss.NOTHING
            await scene.world.kill_broker(broker_id, loss)
            scene.count("crashes")
        if not together:
            await bring_back(scene, broker_id)
            await await_in_sync(scene)
    for broker_id in scene.world.brokers:
        await bring_back(scene, broker_id)
    await await_in_sync(scene)
