"""Tiered topics with unclean elections: new leaders lack what the bucket has.

Owns: how that is brought about.  Must not know what a new leader does with the manifest.

A replica is away while the others copy segments above its log end.  Then the others are killed, and
it leads.  Some leaders write before they reach the bucket, and take the manifest over with a log
that is as long as the segments.  Often another replica comes back alone, after the new leader has
copied too: it lacks what that leader has written.  Of some of these the files begin inside of a
segment of the manifest.  Such a replica was away before, and so has fetched much at once and rolled
a segment where no other replica has.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

from sparklog.client.admin import Admin
from sparklog.client.cluster_client import ClusterClient
from sparklog.client.deadline import Deadline
from sparklog.errors import SparklogError
from sparklog.executors.partition import Partition
from sparklog.types import NO_NODE
from tests.simulation.events import LogId
from tests.simulation.workloads import settings, tiered
from tests.simulation.workloads.consume import tp_of
from tests.simulation.workloads.nemesis import bring_back
from tests.simulation.workloads.produce import send_together
from tests.simulation.workloads.scaling import report_broker_death
from tests.simulation.workloads.scene import Scene, Topic, Values

NAME = "unclean"
#: Longest pause between two elections, in milliseconds of virtual time.
CALM_MS = 2500
#: For how long a leader, or a copy, is waited for at most, in seconds.
PATIENCE_S = 4.0
#: Seconds between two looks, and two writes.
LOOK_S = 0.05
#: For how long the bucket may be away from an election on, in seconds.
AWAY_S = 1.5
#: How often it is away, how often one of the other replicas leads next, and how often that is one
#: whose files begin inside of a segment.
AWAY_SHARE = 0.4
AGAIN_SHARE = 0.7
RETURNS_SHARE = 0.7
#: Settings with which no segment leaves the disk, and several batches fit into each.
SEGMENTS_THAT_STAY: Mapping[str, str] = {
    "segment.bytes": "4000",
    "local.retention.bytes": "1000000",
    "local.retention.ms": "604800000",
}
#: For how long a segment is filled, in seconds.
ROLL_S = 0.3
#: The size of a segment that rolls before much that is fetched at once.
SMALL_BYTES = "600"


async def run(scene: Scene, chance: random.Random) -> None:
    """One partition after the other, until the run is over."""
    topics = [
        topic
        for topic in scene.topics
        if topic.unclean and topic.replication_factor > 1 and scene.is_tiered(topic.logs[0])
    ]
    if not topics:
        return
    values = Values(NAME, chance)
    async with await scene.world.cluster_client(NAME) as cluster:
        while not scene.over:
            await scene.pause(chance, CALM_MS)
            topic = chance.choice(topics)
            await _Story(scene, chance, cluster, values, topic, chance.choice(topic.logs)).run()


class _Story:
    """One partition, of which a replica leads that was away."""

    def __init__(
        self,
        scene: Scene,
        chance: random.Random,
        cluster: ClusterClient,
        values: Values,
        topic: Topic,
        log: LogId,
    ) -> None:
        self._scene = scene
        self._chance = chance
        self._cluster = cluster
        self._values = values
        self._topic = topic
        self._log = log

    async def run(self) -> None:
        scene, chance, state = self._scene, self._chance, self._scene.state(self._log)
        if scene.over or state is None or state.leader == NO_NODE or len(state.replicas) < 2:
            return
        followers = [each for each in state.replicas if each != state.leader]
        behind, *others = chance.sample(followers, len(followers))
        returning = others[0] if others and chance.random() < RETURNS_SHARE else NO_NODE
        left_at = await self._leave(returning, behind) if returning != NO_NODE else 0
        end = self._log_end(behind)
        await self._kill([behind])
        await self._write_until(lambda: self._copied_by_leader() > end)
        if returning != NO_NODE:
            await self._bring_back_at(returning, left_at)
        if chance.random() < AWAY_SHARE:
            tiered.take_away(scene)
        await self._kill(each for each in state.replicas if each != behind)
        await bring_back(scene, behind)
        await self._write_until(lambda: scene.leader(self._log) == behind)
        await self._write_until(lambda: False, chance.random() * AWAY_S)
        tiered.heal(scene)
        await self._write_until(lambda: self._copied_by_leader() > end)
        if returning != NO_NODE or chance.random() < AGAIN_SHARE:
            await self._kill([behind])
        order = chance.sample(state.replicas, len(state.replicas))
        for each in sorted(order, key=lambda broker_id: broker_id != returning):
            await bring_back(scene, each)
        if returning != NO_NODE:
            configs = self._topic.configs
            await self._alter({name: configs.get(name) for name in SEGMENTS_THAT_STAY})

    async def _leave(self, broker_id: int, behind: int) -> int:
        """End a replica in the middle of a segment; return where its log ends.

        The replica that stays ``behind`` has some more of this segment.
        """
        await self._alter(SEGMENTS_THAT_STAY)
        await self._write_until(lambda: False, ROLL_S)
        end = self._log_end(broker_id)
        await self._kill([broker_id])
        await self._write_until(lambda: self._log_end(behind) > end)
        return end

    async def _bring_back_at(self, broker_id: int, offset: int) -> None:
        """Have the files of a replica begin where its log has ended, inside of a segment.

        What it fetches at once does not fit into its last segment, so it rolls one at ``offset``.
        """
        await self._alter({"segment.bytes": SMALL_BYTES})
        await bring_back(self._scene, broker_id)

        def files_size() -> int:
            log = replica.log if (replica := self._replica(broker_id)) is not None else None
            if log is None or log.tiered_end_offset <= offset:
                return 0
            return sum(each.size for each in log.segments if each.base_offset >= offset)

        await self._until(lambda: files_size() > 0)
        await self._alter({"local.retention.bytes": f"{files_size()}"})
        await self._until(lambda: self._local_start(broker_id) >= offset)
        await self._alter({"segment.bytes": SEGMENTS_THAT_STAY["segment.bytes"]})

    async def _kill(self, brokers: Iterable[int]) -> None:
        for broker_id in brokers:
            if self._scene.world.is_up(broker_id):
                await self._scene.world.kill_broker(broker_id)
                self._scene.count("crashes")
            with suppress(SparklogError):
                await report_broker_death(self._scene, broker_id)

    async def _alter(self, configs: Mapping[str, str | None]) -> None:
        admin = Admin(self._cluster, timeout_s=PATIENCE_S)
        for name, value in configs.items():
            await settings.change(self._scene, admin, self._topic, name, value)

    async def _write(self) -> None:
        requests = [{self._log: self._values.some()} for _ in range(2)]
        with suppress(SparklogError):
            # Another leader may have been elected.
            await self._cluster.refresh((self._topic.name,), Deadline(PATIENCE_S))
            await send_together(self._scene, self._cluster, self._log, NAME, requests, self._chance)

    async def _write_until(
        self, reached: Callable[[], bool], patience_s: float = PATIENCE_S
    ) -> None:
        await self._until(reached, patience_s, meanwhile=self._write)

    async def _until(
        self,
        reached: Callable[[], bool],
        patience_s: float = PATIENCE_S,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Until then, or until patience or the run is over."""
        scene, deadline_s = self._scene, self._scene.world.loop.time() + patience_s
        while not scene.over and not reached() and scene.world.loop.time() < deadline_s:
            if meanwhile is not None:
                await meanwhile()
            await asyncio.sleep(LOOK_S)

    def _copied_by_leader(self) -> int:
        """Up to where the leader has copied its log; 0 as long as it has not looked."""
        led = self._replica(self._scene.leader(self._log))
        return led.log.tiered_end_offset if led is not None and led.is_leader else 0

    def _log_end(self, broker_id: int) -> int:
        """0 of a broker that does not serve."""
        replica = self._replica(broker_id)
        return replica.log.log_end_offset if replica is not None else 0

    def _local_start(self, broker_id: int) -> int:
        """0 of a broker that does not serve."""
        replica = self._replica(broker_id)
        return replica.log.local_log_start_offset if replica is not None else 0

    def _replica(self, broker_id: int) -> Partition | None:
        host = self._scene.world.brokers.get(broker_id)
        broker = host.broker if host is not None else None
        return broker.replica_manager.get(tp_of(self._log)) if broker is not None else None
