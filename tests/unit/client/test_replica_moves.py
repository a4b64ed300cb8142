"""The present replicas, of which two kinds of requests tell, while moves begin and end."""

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.client.replica_admin import Reassignment, ReplicasDescription
from sparklog.client.replica_moves import present_replicas
from sparklog.client.replica_plan import plan_replicas
from sparklog.types import TopicPartition

TP = TopicPartition("t", 0)
AT_1 = Reassignment(replicas=(1,), adding=(), removing=())
MOVING = Reassignment(replicas=(2, 1), adding=(2,), removing=(1,))
AT_2 = Reassignment(replicas=(2,), adding=(), removing=())


class Replicas:
    """One partition, which has the next one of these states at each request."""

    def __init__(self, states: Iterable[Reassignment]) -> None:
        self._states = iter(states)

    async def describe(
        self, names: object, *, internal: bool
    ) -> dict[TopicPartition, ReplicasDescription]:
        del names, internal
        replicas = next(self._states).replicas
        return {TP: ReplicasDescription(leader=1, leader_epoch=0, replicas=replicas, isr=replicas)}

    async def reassignments(self) -> dict[TopicPartition, Reassignment]:
        state = next(self._states)
        return {TP: state} if state.adding or state.removing else {}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((AT_1, AT_1, AT_1), (1,)),
        ((AT_1, AT_1, MOVING), (2,)),
        ((AT_1, MOVING, MOVING), (2,)),
        ((MOVING, MOVING, MOVING), (2,)),
        ((MOVING, MOVING, AT_2), (2,)),
        ((MOVING, AT_2, AT_2), (2,)),
    ],
)
def test_a_partition_keeps_its_number_of_replicas_while_a_move_begins_or_ends(
    states: tuple[Reassignment, ...], expected: tuple[int, ...]
) -> None:
    admin: Any = SimpleNamespace(replicas=Replicas(states))
    present = asyncio.run(present_replicas(admin))
    assert present == {TP: expected}
    assert plan_replicas(present, {2: None}) == ({TP: (2,)} if expected != (2,) else {})
