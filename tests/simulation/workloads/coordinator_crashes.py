"""Control planes that end, or are replaced, at one step of a transaction.

Owns: the steps, and how a control plane is caught there.  Must not know what the coordinator makes
of it.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any
from unittest.mock import patch

from sparklog.driver.transaction_coordinator.marker_sender import MarkerSender
from sparklog.driver.transaction_coordinator.transaction_log import TransactionLog
from sparklog.driver.transactions import (
    PREPARED,
    TransactionRecord,
    TransactionState,
    read_transaction_record,
)
from tests.simulation.actors import Killed, current_node
from tests.simulation.workloads.scene import Scene

CALM_MS = 4000
TROUBLE_MS = 2500
#: How long a step is waited for, and how often it is looked for, in seconds.
PATIENCE_S = 3.0
LOOK_S = 0.02


class Step(Enum):
    """Where a control plane is when something happens to it."""

    BEFORE_THE_DECISION = "before a decision is appended"
    AFTER_THE_DECISION = "after a decision is replicated, before it is answered"
    BETWEEN_MARKERS = "between two markers"
    BEFORE_THE_END = "before the end is appended"
    BEFORE_A_BEGIN = "before partitions are added"


_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(slots=True)
class Plan:
    """What is to happen at the next such step; ``is_done``: it has happened."""

    step: Step
    pauses: bool
    is_done: bool = False


async def run(scene: Scene, chance: random.Random) -> None:
    """Catch control planes at steps of transactions."""
    world = scene.world
    while not scene.over:
        await scene.pause(chance, CALM_MS)
        async with scene.controlling:
            if not scene.over and world.control.node is not None:
                await _crash(scene, chance)


async def _crash(scene: Scene, chance: random.Random) -> None:
    world = scene.world
    plan = scene.coordinator_plan = Plan(chance.choice(list(Step)), chance.random() < 0.5)
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if plan.is_done or scene.over:
            break
        await asyncio.sleep(LOOK_S)
    scene.coordinator_plan = None
    if not plan.is_done:
        return
    scene.count("coordinator_crashes")
    await scene.pause(chance, TROUBLE_MS)
    await world.start_control_plane()
    if plan.pauses:
        await scene.pause(chance, TROUBLE_MS)
        world.resume_control_plane()


@contextmanager
def planned(scene: Scene) -> Iterator[None]:
    """Meanwhile control planes come by the steps."""
    real_append, real_take = TransactionLog.append, MarkerSender._take

    async def append(self: TransactionLog, records: Sequence[TransactionRecord]) -> int:
        states = {_state(record) for record in records}
        if states & PREPARED:
            await _come_by(scene, Step.BEFORE_THE_DECISION)
        if states & set(_COMPLETE):
            await _come_by(scene, Step.BEFORE_THE_END)
        if TransactionState.ONGOING in states:
            await _come_by(scene, Step.BEFORE_A_BEGIN)
        offset = await real_append(self, records)
        if states & PREPARED:
            await _come_by(scene, Step.AFTER_THE_DECISION)
        return offset

    def take(self: MarkerSender, markers: Any, codes: Any) -> None:
        real_take(self, markers, codes)
        _meet(scene, Step.BETWEEN_MARKERS)

    with (
        patch.object(TransactionLog, "append", append),
        patch.object(MarkerSender, "_take", take),
    ):
        yield


def _state(record: TransactionRecord) -> TransactionState | None:
    read = read_transaction_record(record)
    return None if read is None or read[1] is None else read[1].state


async def _come_by(scene: Scene, step: Step) -> None:
    if _meet(scene, step):
        await asyncio.sleep(0)  # it stands still here


def _meet(scene: Scene, step: Step) -> bool:
    """Let the plan happen if it is for this step of the present control plane."""
    plan, world = scene.coordinator_plan, scene.world
    if plan is None or plan.is_done or plan.step is not step:
        return False
    if world.control.node is None or current_node() is not world.control.node:
        return False
    plan.is_done = True
    world.note(f"{world.control.name} is {step.value}")
    scene.count(f"crashes {step.value}")
    if plan.pauses:
        world.pause_control_plane()
        return True
    world.control.kill()
    raise Killed
