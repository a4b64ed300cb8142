"""Tiered topics: their settings, and what goes wrong with the bucket and with its helpers.

Owns: which topics are tiered, and the faults, which end when the run is over.  Must not know how
the bucket is checked.
"""

import asyncio
import random

from tests.simulation.bucket import Bucket
from tests.simulation.workloads.scene import Scene

#: Longest pauses between faults, and longest faults, in milliseconds of virtual time.
CALM_MS = 2500
TROUBLE_MS = 3000
#: How often a helper stands still while other faults go on, and for how long at most.
STILL_MS = 6000


def settings(chance: random.Random) -> dict[str, str]:
    """The settings of a cluster with tiered topics, by Kafka's names."""
    return {
        "remote.log.manager.task.interval.ms": str(chance.choice((150, 400, 1000))),
        "remote.object.delete.delay.ms": str(chance.choice((0, 1000, 4000))),
        "remote.fetch.max.wait.ms": str(chance.choice((20, 500))),
        "log.retention.check.interval.ms": str(chance.choice((300, 1000))),
    }


def configs(chance: random.Random) -> dict[str, str]:
    """What a tiered topic has in place of its other settings."""
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
    return found


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
            _away(scene, bucket)
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


def heal(scene: Scene) -> None:
    """The bucket is there, and answers."""
    if scene.world.bucket is not None:
        scene.world.note("the bucket is healed")
        scene.world.bucket.disk.heal()


def _slow(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    bucket.disk.slow_s = chance.choice((0.02, 0.1, 0.6))
    scene.world.note(f"the bucket takes {bucket.disk.slow_s:g} s")
    scene.count("slow_buckets")


def _away(scene: Scene, bucket: Bucket) -> None:
    scene.world.note("the bucket is away")
    scene.count("lost_buckets")
    bucket.disk.faults.fail_next(1_000_000)


def _lose_answers(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    operation = chance.choice(("put_if_absent", "put_if_absent", "upload", "delete"))
    count = chance.choice((1, 1, 3))
    scene.world.note(f"the bucket loses {count} answers to {operation}")
    scene.count("lost_bucket_answers")
    bucket.disk.faults.fail_next(count, operation, after=True)


def _fail(scene: Scene, bucket: Bucket, chance: random.Random) -> None:
    operation = chance.choice(("put_if_absent", "upload", "delete", "read", "list"))
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
    """A helper stands still; at times its broker does too, and is replaced meanwhile."""
    living = [calls for calls in bucket.helpers() if calls.helper is not None]
    if not living:
        return
    calls = chance.choice(living)
    assert calls.helper is not None
    loop = scene.world.loop
    held = [calls.helper.node] + [calls.broker] * (chance.random() < 0.5)
    scene.world.note(f"{' and '.join(node.name for node in held)} stand still")
    scene.count("held_helpers")
    for node in held:
        loop.hold(node)
    await asyncio.sleep(chance.random() * STILL_MS / 1000)
    scene.world.note(f"{' and '.join(node.name for node in held)} go on")
    for node in held:
        loop.release(node)
