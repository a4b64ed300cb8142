"""Partition directories that vanish from disks, and newest log files that become shorter.

Owns: the faults, while another replica holds what was acknowledged.  Must not know what a broker
makes of them.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from uuid import UUID

from sparklog.executors.log.names import PARTITION_METADATA
from sparklog.executors.log.partition_metadata import encode_partition_metadata
from sparklog.storage_backends.memory_nodes import FileNode, FolderNode
from tests.simulation.checkers.copies import Copies, follow
from tests.simulation.events import LogLost
from tests.simulation.history import NEVER
from tests.simulation.network import DELAY_S
from tests.simulation.workloads.scene import Scene

#: Longest pause between two losses, in milliseconds of virtual time.
CALM_MS = 4000
#: Seconds that a message takes between brokers that are slow to hear of each other, and how long
#: this goes on: a fetch from before the loss arrives after the controller has elected a leader.
LATE_S = (0.5, 3.0)
LATE_FOR_S = 4.0


async def run(scene: Scene, chance: random.Random) -> None:
    """One replica at a time; its broker may be running, or on its way back."""
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        candidates = sorted(_candidates(scene), key=str)
        if scene.over or not candidates:
            await asyncio.sleep(0.2)
            continue
        copies, broker_id = chance.choice(candidates)
        late = chance.random() < 0.4
        with _late_messages(scene, copies, broker_id) if late else nullcontext():
            if late:
                await asyncio.sleep(LATE_S[1])
            if (copies.log, broker_id) in {(c.log, b) for c, b in _candidates(scene)}:
                _hit(scene, copies, broker_id, chance)
            if late:
                await asyncio.sleep(LATE_FOR_S)


def _hit(scene: Scene, copies: Copies, broker_id: int, chance: random.Random) -> None:
    whole = chance.random() < 0.6
    if lose(scene, copies, broker_id, chance, whole=whole):
        scene.count("lost_partition_dirs" if whole else "cut_files")


@contextmanager
def _late_messages(scene: Scene, copies: Copies, broker_id: int) -> Iterator[None]:
    """Meanwhile this broker and the other replicas hear late of each other, the controller hears
    of all of them as fast as ever: the leader gets what a follower asked when it had its log after
    the controller has dealt with the loss."""
    network = scene.world.network
    own, *others = (scene.world.brokers[b].name for b in (broker_id, *copies.state.replicas))
    links = [(own, other) for other in others if other != own]
    for link in links:
        network.slow(*link, *LATE_S)
    scene.count("late_messages")
    try:
        yield
    finally:
        for link in links:
            network.slow(*link, *DELAY_S)


def _candidates(scene: Scene) -> list[tuple[Copies, int]]:
    """In-sync replicas beside which another one has everything, and its broker runs."""
    found: list[tuple[Copies, int]] = []
    for copies in follow(scene.history).values():
        if copies.deleted_at != NEVER or copies.log in scene.moving:
            continue
        # A broker that is no replica any more may still hold a copy, which cannot lead.
        replicas = set(copies.state.replicas) - set(copies.state.removing)
        sound = (copies.holders - copies.damaged) & replicas
        # A drain takes away the replica of its broker before the leader knows that its log is gone.
        staying = sound - scene.draining
        up = {broker_id for broker_id in staying if scene.world.is_up(broker_id)}
        found += [(copies, b) for b in copies.state.isr if up - {b}]
    return found


def is_loss_open(scene: Scene) -> bool:
    """Whether an in-sync replica has lost its log and nothing has come of it yet: who takes another
    replica away meanwhile may take the last copy."""
    return any(
        copies.deleted_at == NEVER and set(copies.state.isr) & copies.lost_in.keys()
        for copies in follow(scene.history).values()
    )


def lose(
    scene: Scene, copies: Copies, broker_id: int, chance: random.Random, *, whole: bool
) -> bool:
    """Behind the back of the broker; the history is told.  Whether there was something to lose."""
    if not _take_away(scene, copies, broker_id, chance, whole=whole):
        return False
    process = scene.world.brokers[broker_id].incarnation
    scene.history.record(
        LogLost(broker=broker_id, log=copies.log, whole=whole, incarnation=process)
    )
    return True


def _take_away(
    scene: Scene, copies: Copies, broker_id: int, chance: random.Random, *, whole: bool
) -> bool:
    found = _directory(scene, copies, broker_id)
    if found is None:
        return False
    home, name, partition_dir = found
    if whole:
        del home.live[name]
        home.durable.pop(name, None)
        return True
    logs = [node for file, node in sorted(partition_dir.live.items()) if file.endswith(".log")]
    if not logs or not isinstance(logs[-1], FileNode) or not logs[-1].data:
        return False
    size = chance.randrange(len(logs[-1].data))
    logs[-1].cut(size)
    del logs[-1].flushed[size:]
    return True


def has_directory(scene: Scene, copies: Copies, broker_id: int) -> bool:
    """Whether a broker has the partition's directory on its disk."""
    return _directory(scene, copies, broker_id) is not None


def _directory(
    scene: Scene, copies: Copies, broker_id: int
) -> tuple[FolderNode, str, FolderNode] | None:
    """The partition's directory, below the broker's and under its name."""
    root = scene.world.brokers[broker_id].disk.backend.disk.root
    home = root.live.get(f"broker-{broker_id}")
    name = f"{copies.log.topic}-{copies.log.partition}"
    partition_dir = home.live.get(name) if isinstance(home, FolderNode) else None
    if not isinstance(home, FolderNode) or not isinstance(partition_dir, FolderNode):
        return None
    if not _belongs_to(partition_dir, copies.log.topic_id):
        return None  # the broker has not heard yet that a former topic of this name was deleted
    return home, name, partition_dir


def _belongs_to(partition_dir: FolderNode, topic_id: UUID) -> bool:
    metadata = partition_dir.live.get(PARTITION_METADATA)
    return isinstance(metadata, FileNode) and metadata.data == encode_partition_metadata(topic_id)
