"""Scaling while all else goes on: brokers are drained, stopped and forgotten, and new ones come.

Owns: the order of steps of ``Cluster.remove_brokers`` and ``Cluster.scale``, an operator who loses
patience, and the end of what he began.  Must not know where replicas go.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline, check
from sparklog.client.replica_moves import plan_even, present_replicas
from sparklog.errors import ConnectError, ErrorCode, KafkaError, SparklogError
from sparklog.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.protocol.private import (
    DrainBrokersRequest,
    DrainedBroker,
    LostBroker,
    ReportLossRequest,
)
from sparklog.wire.protocol.schema import Request
from tests.simulation.events import Drained
from tests.simulation.hosts import Loss
from tests.simulation.workloads.losing import is_loss_open
from tests.simulation.workloads.nemesis import bring_back, stop
from tests.simulation.workloads.scene import Scene

CALM_MS = 1500
LOOK_S = 0.2
CALL_S = 5.0
#: How long an operator waits for a drain, in virtual milliseconds.
PATIENCE_MS = (800, 8000, 8000, 60_000)
#: Virtual time within which what is drained has left after the healing.
DRAIN_MS = 120_000


async def run(scene: Scene, chance: random.Random) -> None:
    """One broker at a time, where others could take its replicas."""
    later = set(scene.later)
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        broker_id = chance.choice([b for b in scene.world.brokers if b not in later])
        if scene.over or is_loss_open(scene) or not await _drain(scene, broker_id, chance):
            continue
        scene.draining.discard(broker_id)
        if not await _forget(scene, broker_id, chance):
            continue
        scene.count("brokers_removed")
        await scene.pause(chance, CALM_MS)
        if chance.random() < 0.5:
            await scene.world.kill_broker(broker_id, Loss.DISK)  # another machine in its place
        await bring_back(scene, broker_id)
        scene.count("brokers_added")
        if chance.random() < 0.7:
            with suppress(SparklogError):
                await _as_member(scene, _rebalance)


async def finish_drains(scene: Scene) -> None:
    """After the last fault: finish the drains, as far as other brokers have room for replicas."""
    for broker_id in sorted(scene.draining):
        began = scene.now_ms
        try:
            left = await _progress(scene, broker_id)
        except KafkaError:
            continue  # as before, so it is not being drained: its replicas have no place to go
        while left.partitions_left > left.partitions_stuck and scene.now_ms - began < DRAIN_MS:
            await asyncio.sleep(LOOK_S)
            left = await _progress(scene, broker_id)
        scene.history.record(
            Drained(
                broker=broker_id,
                took_ms=scene.now_ms - began,
                left=left.partitions_left,
                stuck=left.partitions_stuck,
            )
        )
        scene.count("drains_finished", not left.partitions_left)
        await _progress(scene, broker_id, cancel=True)


async def _drain(scene: Scene, broker_id: int, chance: random.Random) -> bool:
    """Whether it has nothing any more.  Who loses patience, or is refused, takes it back."""
    end = scene.now_ms + chance.choice(PATIENCE_MS)
    while not scene.over:
        scene.draining.add(broker_id)  # perhaps, when the answer is lost
        try:
            if not (await _ask_drain(scene, broker_id)).partitions_left:
                scene.count("drains_finished")
                return True
            refused = False
        except ConnectError:
            refused = False
        except SparklogError:
            refused = True
        if refused or scene.now_ms > end:
            scene.count("drains_refused" if refused else "drains_cancelled")
            with suppress(SparklogError):
                await _ask_drain(scene, broker_id, cancel=True)
                scene.draining.discard(broker_id)
            return False
        await asyncio.sleep(LOOK_S)
    return False


async def _forget(scene: Scene, broker_id: int, chance: random.Random) -> bool:
    """Stop it and unregister it, unless the run is over before."""
    host = scene.world.brokers[broker_id]
    while not scene.over:
        if host.broker is not None:
            await stop(scene, broker_id, chance)
        elif not host.is_supervised:
            with suppress(SparklogError):
                await report_broker_death(scene, broker_id)
                await _ask(scene, UnregisterBrokerRequest(broker_id=broker_id))
                return True
        await asyncio.sleep(LOOK_S)
    return False


async def report_broker_death(scene: Scene, broker_id: int) -> None:
    """As the launcher does for what an executor took with it.  Raises SparklogError."""
    await _ask(scene, ReportLossRequest(brokers=(LostBroker(broker_id=broker_id),)))


async def _progress(scene: Scene, broker_id: int, *, cancel: bool = False) -> DrainedBroker:
    """Asks until there is an answer.  Raises KafkaError (INVALID_REPLICATION_FACTOR)."""
    while True:
        try:
            return await _ask_drain(scene, broker_id, cancel=cancel)
        except SparklogError as error:
            code = error.code if isinstance(error, KafkaError) else None
            if code == ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
        await asyncio.sleep(LOOK_S)


async def _ask_drain(scene: Scene, broker_id: int, *, cancel: bool = False) -> DrainedBroker:
    answer = await _ask(scene, DrainBrokersRequest(broker_ids=(broker_id,), cancel=cancel))
    drained: DrainedBroker = answer.brokers[0]
    return drained


async def _ask(scene: Scene, request: Request) -> Any:
    async def ask(cluster: ClusterClient) -> Any:
        def check_response(answer: Any) -> None:
            check(answer.error_code, answer.error_message)

        return await cluster.ask_controller(request, Deadline(CALL_S), check_response)

    return await _as_member(scene, ask)


async def _rebalance(cluster: ClusterClient) -> None:
    """As ``Cluster.scale`` does for new brokers, without waiting for it."""
    admin = Admin(cluster, timeout_s=CALL_S)
    plan = await plan_even(admin, await present_replicas(admin))
    if plan:
        await admin.replicas.reassign(dict(plan))


async def _as_member(
    scene: Scene, call: Callable[[ClusterClient], Coroutine[Any, Any, Any]]
) -> Any:
    """A process of a member's, with connections of its own."""
    secret = scene.world.control.secret

    async def run() -> Any:
        async with await scene.world.cluster_client("scaler", secret=secret) as cluster:
            return await call(cluster)

    return await scene.world.client("scaler").run(run())
