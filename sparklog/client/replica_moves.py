"""Moving replicas: the current assignment, a plan, its execution, and the progress.

Owns: the steps and the measure of progress.  Must not know the caller, nor how progress is shown.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparklog.client.admin import Admin
from sparklog.client.replica_admin import Reassignment
from sparklog.client.replica_plan import Assignment, plan_replicas
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.types import CONTROLLER_NODE_ID, TopicPartition

LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    """The progress of moves.

    ``bytes_total`` grows with the logs of leaders; a finished partition counts as copied.
    """

    partitions_total: int
    partitions_left: int
    bytes_total: int = 0
    bytes_copied: int = 0

    @property
    def done(self) -> bool:
        return not self.partitions_left


#: Called with the progress from time to time.
ShowMoves = Callable[[MoveProgress], None]


async def present_replicas(admin: Admin, topics: Collection[str] = ()) -> Assignment:
    """Replicas by partition (of all topics if none is named); of a partition that moves, the target
    replicas.

    A move may begin or end between two requests.  So the moves are asked for before and after the
    replicas, and tell their targets themselves.
    """
    moving = await admin.replicas.reassignments()
    described = await admin.replicas.describe(topics, internal=not topics)
    moving |= await admin.replicas.reassignments()
    return {
        tp: _target(moving[tp]) if tp in moving else tuple(each.replicas)
        for tp, each in described.items()
    }


def _target(moving: Reassignment) -> tuple[int, ...]:
    return tuple(each for each in moving.replicas if each not in moving.removing)


async def plan_even(
    admin: Admin,
    present: Assignment,
    brokers: Collection[int] | None = None,
    replication_factor: int | None = None,
) -> Assignment:
    """The changes that spread these partitions evenly over brokers (None: all live brokers).

    Raises KafkaError for an unknown broker and for too few brokers.
    """
    nodes = {node.node_id: node for node in (await admin.describe_cluster()).nodes}
    nodes.pop(CONTROLLER_NODE_ID, None)
    chosen = [i for i, node in nodes.items() if not node.fenced] if brokers is None else brokers
    for broker_id in chosen:
        if broker_id not in nodes:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
    racks = {i: nodes[i].rack or nodes[i].endpoint.host for i in chosen}
    return plan_replicas(present, racks, replication_factor)


async def await_moves(
    admin: Admin, partitions: Collection[TopicPartition], show: ShowMoves
) -> None:
    """Wait until none of these partitions moves any more."""
    watch = MoveWatch(admin, partitions)
    while not (seen := await watch.look()).done:
        show(seen)
        await asyncio.sleep(LOOK_S)
    show(seen)


class MoveWatch:
    """Watches the reassignment of some partitions; the caller calls ``look`` from time to time."""

    def __init__(self, admin: Admin, partitions: Collection[TopicPartition]) -> None:
        self._admin = admin
        self._partitions = frozenset(partitions)
        #: Bytes to copy by partition, as of the last look.
        self._sizes: dict[TopicPartition, int] = {}

    async def look(self) -> MoveProgress:
        """The progress now.  Raises KafkaError and ConnectError."""
        moving = {
            tp: each
            for tp, each in (await self._admin.replicas.reassignments()).items()
            if tp in self._partitions
        }
        copied = 0
        sizes = await self._log_sizes() if moving else {}
        for tp, each in moving.items():
            whole = max((sizes.get((tp, broker), 0) for broker in each.replicas), default=0)
            self._sizes[tp] = whole * len(each.adding)
            copied += sum(min(sizes.get((tp, broker), 0), whole) for broker in each.adding)
        copied += sum(size for tp, size in self._sizes.items() if tp not in moving)
        return MoveProgress(
            partitions_total=len(self._partitions),
            partitions_left=len(moving),
            bytes_total=sum(self._sizes.values()),
            bytes_copied=copied,
        )

    async def _log_sizes(self) -> dict[tuple[TopicPartition, int], int]:
        """Bytes by partition and broker; empty when brokers do not respond."""
        with suppress(SparklogError):
            described = await self._admin.describe_log_dirs()
            return {
                (tp, node): size
                for node, directories in described.items()
                for directory in directories
                for tp, size in directory.sizes.items()
            }
        return {}
