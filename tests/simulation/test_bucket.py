"""The bucket and the helpers of brokers: what outlives a broker, and what does not."""

import random

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.remote_log.service import LeaderLog, RemotePartition
from sparklog.storage_backends.registry import open_backend
from sparklog.types import NO_OFFSET
from tests.simulation.actors import Node
from tests.simulation.partition_story import TOPIC_ID
from tests.simulation.remote_helpers import HelperCalls
from tests.simulation.world import World

PARTITION = RemotePartition(TOPIC_ID, 0)
LOG = LeaderLog(log_start_offset=0, local_log_start_offset=0, log_end_offset=0, leader_epochs=())
OWNER = b'{"cluster_id": "c"}'
EMPTY = (0, NO_OFFSET, 0, 0, 0)
BEGIN = ("begin_leadership", PARTITION, 0, "a", LOG, 0)


class Brokers:
    """Processes that have nothing but their helpers, in the bucket of their cluster."""

    def __init__(self, world: World) -> None:
        assert world.bucket is not None
        self.world = world
        self.bucket = world.bucket
        node = world.new_node("control-plane", "driver")
        node.context.run(open_backend(self.bucket.url).put, names.CLUSTER_FILE, OWNER)

    def start(self, host: str) -> tuple[Node, HelperCalls]:
        node = self.world.new_node(host, host)
        calls = node.context.run(
            self.bucket._open, self.bucket.url, cluster_id="c", data_dir="memory://x"
        )
        return node, calls


def manifest_commits(world: World) -> int:
    assert world.bucket is not None
    return sum("/manifest/" in path for path in world.bucket.objects())


@pytest.mark.parametrize("seed", range(5))
def test_a_call_is_answered_and_the_bucket_survives_the_broker(seed: int) -> None:
    async def main(world: World) -> None:
        brokers = Brokers(world)
        node, calls = brokers.start("broker-1")
        assert await calls.call(*BEGIN) == EMPTY
        brokers.bucket.broker_ended(node, power_lost=True)
        assert manifest_commits(world) == 2
        _, other = brokers.start("broker-2")
        state = await other.call("begin_leadership", PARTITION, 1, "b", LOG, 0)
        assert state == EMPTY
        assert manifest_commits(world) == 3

    World(seed, with_bucket=True).run(main)


def late_effects(seed: int, outlives_s: float) -> tuple[int, int]:
    """Commits in the bucket when a helper in the middle of a call is killed, and later."""
    counts: list[int] = []

    async def main(world: World) -> None:
        brokers = Brokers(world)
        brokers.bucket.disk.slow_s = 0.05
        node, calls = brokers.start("broker-1")
        asking = node.spawn(world.loop, calls.call(*BEGIN))
        await world.sleep(random.Random(seed).random())
        calls.kill_helper(outlives_s)
        counts.append(manifest_commits(world))
        await world.sleep(30)
        counts.append(manifest_commits(world))
        if asking.exception() is not None:
            assert isinstance(asking.exception(), StorageError)

    World(seed, with_bucket=True).run(main)
    return counts[0], counts[1]


def test_a_helper_that_is_left_over_takes_effect_later_and_a_dead_one_never() -> None:
    dead = [late_effects(seed, 0.0) for seed in range(30)]
    assert all(before == after for before, after in dead)
    left_over = [late_effects(seed, 20.0) for seed in range(30)]
    assert any(before < after for before, after in left_over)
    assert {after for _, after in left_over} <= {0, 2}


def test_a_new_helper_is_started_after_the_end_of_one_and_none_after_a_close() -> None:
    async def main(world: World) -> None:
        _, calls = Brokers(world).start("broker-1")
        await calls.call("segments_between", PARTITION, 0, 1)
        calls.kill_helper()
        assert await calls.call("segments_between", PARTITION, 0, 1) == []
        assert world.counters["helper_starts"] == 2
        await calls.close()
        with pytest.raises(StorageError, match="the broker is stopping"):
            await calls.call("segments_between", PARTITION, 0, 1)

    World(1, with_bucket=True).run(main)


def test_what_happens_in_the_bucket_is_told_once_it_has_happened() -> None:
    told: list[tuple[str, str]] = []

    async def main(world: World) -> None:
        brokers = Brokers(world)
        brokers.bucket.watch = lambda operation, path: told.append((operation, path))
        _, calls = brokers.start("broker-1")
        brokers.bucket.disk.faults.fail_next(1, "put_if_absent", after=True)
        await calls.call(*BEGIN)
        folder = names.manifest_folder(*PARTITION)
        commits = [f"{folder}/{number:020d}.json" for number in (1, 2)]
        assert told == [("put_if_absent", path) for path in commits]

    World(1, with_bucket=True).run(main)
