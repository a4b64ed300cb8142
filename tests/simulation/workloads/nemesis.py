"""What goes wrong: processes, disks, the network (``cuts``) and the controller, a task for each.

Owns: the faults, and their end at the latest when the run is over.  Must not know what clients do.
A broker's end is written into the history when it happens, whoever caused it.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from sparklog.errors import SparklogError
from tests.simulation.checkers.copies import follow
from tests.simulation.events import BrokerDied, BrokerStopped
from tests.simulation.history import NEVER
from tests.simulation.hosts import BrokerHost, Loss
from tests.simulation.workloads import moves
from tests.simulation.workloads.cuts import network
from tests.simulation.workloads.scene import Scene
from tests.simulation.workloads.torn import garble_unflushed

#: Longest pauses between faults, and longest faults, in milliseconds of virtual time.
CALM_MS = 3000
TROUBLE_MS = 2500
START_TIMEOUT_S = 30.0

End = Callable[[Scene, int, random.Random], Coroutine[Any, Any, None]]
Fault = Callable[[Scene, random.Random], Coroutine[Any, Any, None]]


def watch_brokers(scene: Scene, chance: random.Random) -> None:
    """Write down the end of every broker process, and what a power loss leaves torn."""
    for broker_id, host in scene.world.brokers.items():
        _watch(scene, broker_id, host, chance)


def _watch(scene: Scene, broker_id: int, host: BrokerHost, chance: random.Random) -> None:
    @contextmanager
    def around_end(loss: Loss) -> Iterator[None]:
        if broker_id in scene.stopping and loss is Loss.NOTHING:
            scene.history.record(BrokerStopped(broker=broker_id))
        else:
            scene.history.record(
                BrokerDied(
                    broker=broker_id,
                    power_lost=loss is Loss.UNFLUSHED,
                    disk_lost=loss is Loss.DISK,
                    incarnation=host.incarnation,
                )
            )
        torn = loss is Loss.UNFLUSHED
        with garble_unflushed(host.disk.backend.disk, chance) if torn else nullcontext():
            yield

    host.around_end = around_end


# brokers


async def brokers(scene: Scene, chance: random.Random) -> None:
    """Kill, stop and pause brokers, mostly one at a time, and bring them back."""
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        up = [broker_id for broker_id in scene.world.brokers if scene.world.is_up(broker_id)]
        if scene.over or not up:
            continue
        if chance.random() < 0.2:
            await _hit(scene, chance.choice(_worth_losing(scene, up)), _lose_disk, chance)
            continue
        count = min(chance.choice((1, 1, 1, 2, 5)), len(up))
        victims = chance.sample(up, count)
        await asyncio.gather(*(_hit(scene, v, chance.choice(_ENDS), chance) for v in victims))


def _worth_losing(scene: Scene, brokers: list[int]) -> list[int]:
    """Those that stay eligible when they go, or all."""
    there = [copies for copies in follow(scene.history).values() if copies.deleted_at == NEVER]
    shrinking = [c.state.isr for c in there if len(c.state.isr) == c.state.required_isr(c.min_isr)]
    found = [b for b in brokers if any(b in isr for isr in shrinking if len(isr) > 1)]
    return found or brokers


async def _hit(scene: Scene, broker_id: int, end: End, chance: random.Random) -> None:
    await end(scene, broker_id, chance)
    await scene.pause(chance, TROUBLE_MS)
    host = scene.world.brokers[broker_id]
    if host.node is None and not host.is_supervised and chance.random() < 0.2:
        await scene.world.kill_broker(broker_id, Loss.UNFLUSHED)  # now its machine too
    await bring_back(scene, broker_id)


async def _kill(scene: Scene, broker_id: int, chance: random.Random) -> None:
    await scene.world.kill_broker(broker_id)
    scene.count("crashes")


async def _lose_power(scene: Scene, broker_id: int, chance: random.Random) -> None:
    await scene.world.kill_broker(broker_id, Loss.UNFLUSHED)
    scene.count("crashes")


async def _lose_power_at_work(scene: Scene, broker_id: int, chance: random.Random) -> None:
    """In the middle of something that it does on the disk."""
    kind = chance.choice(("", "", "flush", "flush_folder", "writev"))
    operations = chance.choice((1, 5, 30))
    loss = Loss.UNFLUSHED if chance.random() < 0.8 else Loss.NOTHING
    scene.world.kill_broker_after(broker_id, operations, loss, kind=kind)
    for _ in range(20):
        if not scene.world.is_up(broker_id):
            break
        await asyncio.sleep(0.1)
    else:
        await scene.world.kill_broker(broker_id, loss)
    scene.count("crashes")


async def _lose_disk(scene: Scene, broker_id: int, chance: random.Random) -> None:
    """Mostly not when nobody else holds a partition of its: that is offline for good."""
    there = [copies for copies in follow(scene.history).values() if copies.deleted_at == NEVER]
    is_last = any(copies.holders - copies.damaged == {broker_id} for copies in there)
    if is_last and chance.random() < 0.9:
        await _lose_power(scene, broker_id, chance)
        return
    await scene.world.kill_broker(broker_id, Loss.DISK)
    scene.count("crashes")


async def stop(scene: Scene, broker_id: int, chance: random.Random) -> None:
    """Cleanly, unless it takes too long, or its machine loses power meanwhile."""
    scene.stopping.add(broker_id)
    stopping = asyncio.ensure_future(scene.world.stop_broker(broker_id))
    await asyncio.wait([stopping], timeout=START_TIMEOUT_S)
    scene.stopping.discard(broker_id)
    if not stopping.done():
        await scene.world.kill_broker(broker_id)
        await asyncio.wait([stopping])
    scene.count("stops", not stopping.cancelled())


async def _pause(scene: Scene, broker_id: int, chance: random.Random) -> None:
    host = scene.world.brokers[broker_id]
    paused = host.node
    scene.world.pause_broker(broker_id)
    await scene.pause(chance, 4 * TROUBLE_MS)
    if host.node is paused:  # else its machine lost power meanwhile
        scene.world.resume_broker(broker_id)


_ENDS = (
    *(_kill, _kill, _lose_power, _lose_power_at_work, _lose_power_at_work, _lose_power_at_work),
    *(stop, stop, _pause),
)


async def growth(scene: Scene, chance: random.Random) -> None:
    """Brokers that were not there from the beginning."""
    for broker_id in scene.later:
        await scene.pause(chance, 3 * CALM_MS)
        if not scene.over:
            await bring_back(scene, broker_id)
            scene.count("brokers_added")


async def bring_back(scene: Scene, broker_id: int) -> None:
    """Start it until it serves; a full disk may keep it from that for a while."""
    host = scene.world.brokers[broker_id]
    while not scene.world.is_up(broker_id):
        if not host.is_supervised:
            serves = asyncio.ensure_future(host.launch())
            with suppress(SparklogError, TimeoutError):
                await asyncio.wait_for(serves, START_TIMEOUT_S)
        await asyncio.sleep(0.5)


# disks


async def disks(scene: Scene, chance: random.Random) -> None:
    """Slow and full disks, and operations that fail."""
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        broker_id = chance.choice(list(scene.world.brokers))
        faults = scene.world.brokers[broker_id].disk.faults
        what = chance.randrange(5)
        if what == 0:
            scene.world.slow_disk(broker_id, chance.choice((0.005, 0.05)))
        elif what == 1:
            scene.world.full_disk(broker_id, chance.choice((0, 500, 5000)))
        elif what == 2:
            faults.fail_next(1, "flush", under=".log")
            scene.count("failed_flushes")
            await scene.pause(chance, TROUBLE_MS)
            if chance.random() < 0.5 and scene.world.brokers[broker_id].node is not None:
                await _lose_power(scene, broker_id, chance)
                await bring_back(scene, broker_id)
        elif what == 3:
            faults.fail_next(chance.randint(1, 3), "writev")
            scene.count("failed_writes")
        else:
            operation = chance.choice(("put", "flush_folder", "open", "delete", "truncate", "map"))
            faults.fail_next(1, operation)
            scene.count("failed_operations")
        await scene.pause(chance, TROUBLE_MS)
        scene.world.heal_disk(broker_id)


# the controller


async def controller(scene: Scene, chance: random.Random) -> None:
    """Controllers that are killed, replaced while they stand still, or whose journal fails."""
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        async with scene.controlling:
            await _trouble_controller(scene, chance)


async def _trouble_controller(scene: Scene, chance: random.Random) -> None:
    world = scene.world
    what = chance.randrange(5)
    if world.control.node is None:
        await asyncio.sleep(0.5)
    elif what == 0:
        await world.kill_control_plane()
        await scene.pause(chance, TROUBLE_MS)
        await world.start_control_plane()
    elif what in (1, 2):
        await _replace(scene, chance)
    elif what == 3:
        world.control.disk.faults.fail_next(
            chance.choice((1, 1, 2)), "put_if_absent", after=chance.random() < 0.7
        )
        scene.count("journal_faults")
    else:
        world.control.disk.fill(chance.choice((0, 1000)))
        await scene.pause(chance, TROUBLE_MS)
        world.control.disk.heal()
        scene.count("journal_faults")


async def _replace(scene: Scene, chance: random.Random) -> None:
    """A second controller on the same journal while the first stands still, then both."""
    world = scene.world
    world.pause_control_plane()
    await scene.pause(chance, TROUBLE_MS)
    if chance.random() < 0.7:
        await world.start_control_plane()
        await scene.pause(chance, TROUBLE_MS)
    world.resume_control_plane()


NEMESES: dict[str, Fault] = {
    "brokers": brokers,
    "disks": disks,
    "network": network,
    "controller": controller,
    "moves": moves.run,
}
