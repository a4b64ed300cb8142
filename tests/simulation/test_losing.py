"""The fault that takes logs away: which directory of a disk it hits."""

import random
from uuid import UUID

import pytest

from sparklog.executors.log.names import PARTITION_METADATA
from sparklog.executors.log.partition_metadata import encode_partition_metadata
from tests.simulation.checkers.copies import follow
from tests.simulation.events import LogLost
from tests.simulation.history import History
from tests.simulation.partition_story import LOG, TOPIC_ID, created
from tests.simulation.workloads import losing
from tests.simulation.workloads.scene import Scene
from tests.simulation.world import World

LOG_FILE = "broker-1/t-0/00000000000000000000.log"
DATA = b"whatever is in a log"
SEEDS = range(6)


def hit(seed: int, topic_id: UUID | None) -> tuple[bytes | None, list[LogLost]]:
    """What is left of the log in the partition's directory, which belongs to a topic id, or says
    nothing of it; and what the history says."""
    world = World(seed, brokers=1)

    async def lose(world: World) -> tuple[bytes | None, list[LogLost]]:
        backend = world.brokers[1].disk.backend
        if topic_id is not None:
            metadata = encode_partition_metadata(topic_id)
            backend.put(f"broker-1/t-0/{PARTITION_METADATA}", metadata)
        backend.put(LOG_FILE, DATA)
        scene = Scene(world=world, history=History(world.now_ms))
        losing._hit(scene, follow(History.of(created()))[LOG], 1, random.Random(seed))
        left = backend.read(LOG_FILE) if backend.exists(LOG_FILE) else None
        return left, [event for _, event in scene.history.each(LogLost)]

    return world.run(lose)


@pytest.mark.parametrize("topic_id", [UUID(int=2), None])
def test_a_directory_that_is_not_known_to_be_of_this_topic_stays_whole(
    topic_id: UUID | None,
) -> None:
    """A broker that has not heard of the deletion holds the former topic of the same name."""
    for seed in SEEDS:
        assert hit(seed, topic_id) == (DATA, [])


def test_a_directory_of_the_topic_vanishes_or_its_file_is_cut() -> None:
    kinds = set()
    for seed in SEEDS:
        left, [lost] = hit(seed, TOPIC_ID)
        assert (lost.broker, lost.log) == (1, LOG)
        assert left is None if lost.whole else left is not None and len(left) < len(DATA)
        kinds.add(lost.whole)
    assert kinds == {False, True}
