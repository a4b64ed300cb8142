"""The world itself, and a first story end to end: what was acknowledged and flushed is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.hosts import Loss
from tests.simulation.story import tell
from tests.simulation.world import World

SEEDS = range(1, 9)
ROOT = Path(__file__).resolve().parents[2]

#: Prints a trace; run in processes that hash differently.
PRINT_TRACE = """
from tests.simulation.test_world import power_loss
from tests.simulation.story import tell
world, _ = tell(7, power_loss)
print("\\n".join(world.trace))
"""


async def power_loss(world: World) -> None:
    """The broker's machine loses power in the middle of it, and comes back."""
    await world.sleep(world.random.random() * 0.05)
    await world.kill_broker(1, Loss.UNFLUSHED)
    await world.sleep(world.random.random() * 2)
    await world.start_broker(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_and_flushed_survives_a_power_loss(seed: int) -> None:
    world, story = tell(seed, power_loss)
    assert {offset: story.read.get(offset) for offset in story.acked} == story.acked
    assert sorted(story.read) == list(range(len(story.read)))
    assert world.counters["power_losses"] == 1
    assert world.counters["broker_starts"] == 2


def test_the_same_seed_gives_the_same_trace() -> None:
    first, second = (tell(3, power_loss)[0].trace for _ in range(2))
    assert first == second
    assert tell(4, power_loss)[0].trace != first


def test_traces_do_not_depend_on_how_python_hashes() -> None:
    processes = [_print_trace(hash_seed) for hash_seed in ("1", "4711")]
    first, second = (process.communicate(timeout=90)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0]
    assert first == second
    assert "broker-1 loses power" in first


def _print_trace(hash_seed: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PRINT_TRACE],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdout=subprocess.PIPE,
        text=True,
    )
