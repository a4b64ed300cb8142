"""Stories with every fault that a world knows; what was acknowledged is still there."""

import pytest

from sparklog.errors import SparklogError
from tests.simulation.hosts import Loss
from tests.simulation.story import tell
from tests.simulation.world import World

SEEDS = range(3)


async def kill(world: World) -> None:
    await world.sleep(world.random.random() * 0.05)
    await world.kill_broker(1)
    await world.sleep(world.random.random())
    await world.start_broker(1)


async def stop_cleanly(world: World) -> None:
    await world.sleep(world.random.random() * 0.05)
    await world.stop_broker(1)
    await world.start_broker(1)


async def kill_inside_an_operation(world: World) -> None:
    for _ in range(5):
        loses = world.random.choice((Loss.NOTHING, Loss.UNFLUSHED))
        world.kill_broker_after(1, world.random.randint(1, 40), loses)
        await world.sleep(1)
        if world.is_up(1):  # it had less to do
            await world.kill_broker(1)
        await world.start_broker(1)


async def pause(world: World) -> None:
    await world.sleep(world.random.random() * 0.05)
    world.pause_broker(1)
    await world.sleep(world.random.random() * 25)
    world.resume_broker(1)


async def kill_the_control_plane(world: World) -> None:
    await world.kill_control_plane()
    await world.sleep(world.random.random() * 12)
    await world.start_control_plane()


async def replace_the_control_plane(world: World) -> None:
    world.pause_control_plane()
    await world.start_control_plane()
    await world.sleep(world.random.random() * 30)
    world.resume_control_plane()
    await world.sleep(150)  # until the replaced one looks at the journal


async def cut_the_broker_off(world: World) -> None:
    world.partition_network("control", "broker-1")
    await world.sleep(world.random.random() * 20)
    world.heal_network()


async def cut_the_producer_off(world: World) -> None:
    world.partition_network("client-producer", "broker-1", one_way=world.random.random() < 0.5)
    await world.sleep(world.random.random() * 20)
    world.heal_network()


async def reset(world: World) -> None:
    for _ in range(5):
        await world.sleep(0.01)
        world.reset_connections("client-producer", "broker-1")


async def slow_network(world: World) -> None:
    world.slow_network("client-producer", "broker-1")
    await world.sleep(10)
    world.heal_network()


async def slow_disk(world: World) -> None:
    world.slow_disk(1)
    await world.sleep(10)
    world.heal_disk(1)


async def full_disk(world: World) -> None:
    world.full_disk(1, after_bytes=500)
    await world.sleep(10)
    world.heal_disk(1)


async def failing_flush(world: World) -> None:
    world.fail_disk(1, operation="flush", under=".log")
    await world.sleep(5)
    await world.kill_broker(1)  # what it could not flush, it does not trust until it starts again
    await world.start_broker(1)


async def lost_answers_of_the_journal(world: World) -> None:
    world.fail_disk("control", 1, "put_if_absent", after=True)
    await world.kill_broker(1)
    await world.start_broker(1)


async def set_clocks(world: World) -> None:
    for milliseconds in (3_600_000, -7_200_000):
        world.shift_clock("broker-1", milliseconds)
        world.shift_clock("control", -milliseconds)
        await world.sleep(1)


TROUBLES = (
    kill,
    stop_cleanly,
    kill_inside_an_operation,
    pause,
    kill_the_control_plane,
    replace_the_control_plane,
    cut_the_broker_off,
    cut_the_producer_off,
    reset,
    slow_network,
    slow_disk,
    full_disk,
    failing_flush,
    lost_answers_of_the_journal,
    set_clocks,
)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_what_was_acknowledged_is_read_back(trouble, seed: int) -> None:  # type: ignore[no-untyped-def]
    _, story = tell(seed, trouble)
    assert {offset: story.read.get(offset) for offset in story.acked} == story.acked
    assert sorted(story.read) == list(range(len(story.read)))
    assert len(set(story.read.values())) == len(story.read)  # nothing twice
    assert len(story.acked) >= 3  # whatever happened, it works afterwards


def test_a_replaced_controller_ends() -> None:
    world, _ = tell(1, replace_the_control_plane)
    assert world.counters["controllers_replaced"] == 1
    (line,) = [line for line in world.trace if "the replaced control ended" in line]
    assert "another controller" in line or "was written by a controller of epoch" in line


def test_what_was_not_flushed_may_be_lost() -> None:
    """The other half of a promised flush: without it, a power loss costs records."""

    async def power_loss(world: World) -> None:
        await world.sleep(0.2)
        await world.kill_broker(1, Loss.UNFLUSHED)
        await world.start_broker(1)

    lost = 0
    for seed in range(6):
        world, story = tell(seed, power_loss, flush_messages="1000000")
        lost += sum(story.read.get(offset) != value for offset, value in story.acked.items())
        assert world.counters["power_losses"] == 1
    assert lost > 0


def test_a_broker_that_cannot_start_is_an_error() -> None:
    world = World(1, settings={"broker.session.timeout.ms": "no number"})

    async def main(world: World) -> None:
        await world.start()

    with pytest.raises(SparklogError, match=r"broker\.session\.timeout\.ms"):
        world.run(main)
