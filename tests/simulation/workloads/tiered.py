"""Tiered topics: their settings, and what goes wrong with the bucket and with its helpers.

Owns: which topics are tiered, and the faults, which end when the run is over.  Must not know how
the bucket is checked.
"""

import asyncio
import random

from sparklog.storage_backends.memory_faults import Operation
from sparklog.types import NO_LEADER_EPOCH
from tests.simulation.bucket import Bucket
from tests.simulation.events import LogId
from tests.simulation.remote_helpers import HelperCalls
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.scene import Scene

#: Longest pauses between faults, and longest faults, in milliseconds of virtual time.
CALM_MS = 2500
TROUBLE_MS = 3000
#: For how long a helper stands still at most: shorter and longer than sessions of brokers.
STILL_MS = (1500, 9000, 9000)
#: For how long leaders are waited for at the end.
SETTLE_MS = 60_000


def settings(chance: random.Random) -> dict[str, str]:
    """The settings of a cluster with tiered topics, by Kafka's names."""
    return {
        "remote.log.manager.task.interval.ms": str(chance.choice((150, 400, 1000))),
        "remote.object.delete.delay.ms": str(chance.choice((0, 1000, 4000))),
        "remote.fetch.max.wait.ms": str(chance.choice((20, 500))),
        "log.retention.check.interval.ms": str(chance.choice((300, 1000))),
    }


def configs(chance: random.Random, *, retained: bool = False) -> dict[str, str]:
    """What a tiered topic has in place of its other settings.  ``retained``: records may go."""
    local = chance.choice(("bytes", "bytes", "ms", "both"))
    found = {
        "remote.storage.enable": "true",
        "segment.bytes": chance.choice(("600", "1500", "1500", "4000")),
        "file.delete.delay.ms": chance.choice(("0", "1000", "60000")),
    }
    if local != "ms":
        found["local.retention.bytes"] = chance.choice(("0", "1000", "2500"))
    if local != "bytes":
        found["local.retention.ms"] = chance.choice(("300", "900"))
    if retained:
        found["retention.bytes"] = chance.choice(("2500", "4000", "8000"))
    return found


async def settle(scene: Scene) -> None:
    """After the healing: until the leaders of tiered partitions have taken their manifests over,
    and their log starts with them.

    Before that a leader that was killed may show a log start from before its last checkpoint.  It
    takes what is above its high watermark at a later look.
    """
    began_ms = scene.now_ms
    while scene.world.bucket is not None and scene.now_ms - began_ms < SETTLE_MS:
        if all(_has_begun(scene, log) for log in scene.kept_logs if scene.is_tiered(log)):
            return
        await asyncio.sleep(0.2)


def _has_begun(scene: Scene, log: LogId) -> bool:
    host = scene.world.brokers.get(scene.leader(log))
    broker = host.broker if host is not None else None
    if broker is None or broker.tiering is None:
        return False
    led = broker.tiering.manager._led.get(tp_of(log))
    if led is None or led.state is None or led.leader_epoch != _epoch(scene, log):
        return False
    return led.partition.log.log_start_offset >= led.state.log_start_offset


def _epoch(scene: Scene, log: LogId) -> int:
    state = scene.state(log)
    return NO_LEADER_EPOCH if state is None else state.leader_epoch


# faults


async def trouble_bucket(scene: Scene, chance: random.Random) -> None:
    """A bucket that is slow, away or loses answers, and helpers that stand still or die."""
    bucket = scene.world.bucket
    assert bucket is not None
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        what = chance.randrange(7)
        if what == 0:
            _slow(scene, bucket, chance)
        elif what == 1:
            take_away(scene)
        elif what in (2, 3):
            _lose_answers(scene, bucket, chance)
        elif what == 4:
            _fail(scene, bucket, chance)
        elif what == 5:
            _kill_helper(scene, bucket, chance)
        else:
            await _hold_helper(scene, bucket, chance)
        await scene.pause(chance, TROUBLE_MS)
        heal(scene)


def take_away(scene: Scene) -> None:
    """The bucket fails every operation until it is healed."""
    if scene.world.bucket is not None:
        scene.world.note("the bucket is away")
        scene.count("lost_buckets")
        scene.world.bucket.disk.faults.fail_next(1_000_000)


def heal(scene: Scene) -> None:
    """The bucket is there, and answers."""
    if scene.world.bucket is not None:
        scene.world.note("the bucket is healed")
        scene.world.bucket.disk.heal()


def _slow(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    bucket.disk.slow_s = chance.choice((0.02, 0.1, 0.6))
    scene.world.note(f"the bucket takes {bucket.disk.slow_s:g} s")
    scene.count("slow_buckets")


def _lose_answers(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    operation: Operation = chance.choice(("put_if_absent", "put_if_absent", "upload", "delete"))
    count = chance.choice((1, 1, 3))
    scene.world.note(f"the bucket loses {count} answers to {operation}")
    scene.count("lost_bucket_answers")
    bucket.disk.faults.fail_next(count, operation, after=True)


def _fail(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    operation: Operation = chance.choice(("put_if_absent", "upload", "delete", "read", "list"))
    count = chance.randint(1, 4)
    scene.world.note(f"the bucket fails {count} x {operation}")
    scene.count("bucket_failures")
    bucket.disk.faults.fail_next(count, operation)


def _kill_helper(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    """Its broker gets another one at the next call."""
    living = [calls for calls in bucket.helpers() if calls.helper is not None]
    if living:
        calls = chance.choice(living)
        scene.world.note(f"the helper of {calls.broker.name} is killed")
        scene.count("helper_kills")
        calls.kill_helper(chance.choice((0.0, 3.0)))


async def _hold_helper(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    """A helper stands still in the middle of a call; at times its broker does too, and is replaced
    meanwhile."""
    calls = await _helper_at_work(scene, bucket, chance)
    if calls is None or calls.helper is None:
        return
    loop = scene.world.loop
    held = [calls.helper.node] + [calls.broker] * (chance.random() < 0.6)
    scene.world.note(f"{' and '.join(node.name for node in held)} stand still")
    scene.count("held_helpers")
    for node in held:
        loop.hold(node)
    await asyncio.sleep(chance.random() * chance.choice(STILL_MS) / 1000)
    scene.world.note(f"{' and '.join(node.name for node in held)} go on")
    for node in held:
        loop.release(node)


async def _helper_at_work(
    scene: Scene, bucket: Bucket, chance: random.Random
) -> HelperCalls | None:
    """One that is called within a second."""
    for _ in range(200):
        at_work = [calls for calls in bucket.helpers() if calls.is_at_work]
        if at_work:
            return chance.choice(at_work)
        await asyncio.sleep(0.005)
    return None
