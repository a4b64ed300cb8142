"""Moving replicas: what is now, a plan for it, carrying it out, and how far that is.

Owns: the steps and the measure of progress.  Must not know who asks or who shows it.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sparklog.client.admin import Admin
from sparklog.client.replica_plan import Assignment, plan_replicas
from sparklog.errors import ErrorCode, KafkaError, SparklogError
from sparklog.types import CONTROLLER_NODE_ID, TopicPartition

LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    """``bytes_total`` grows when leaders do; a partition that is done counts as copied."""

    partitions_total: int
    partitions_left: int
    bytes_total: int = 0
    bytes_copied: int = 0

    @property
    def done(self) -> bool:
        return not self.partitions_left


#: Is told how far it is, from time to time.
ShowMoves = Callable[[MoveProgress], None]


async def present_replicas(admin: Admin, topics: Collection[str] = ()) -> Assignment:
    """Replicas by partition (of all topics when none is named); of one that is moving, those that
    it is to have."""
    described = await admin.replicas.describe(topics, internal=not topics)
    moving = await admin.replicas.reassignments()
    return {
        tp: tuple(r for r in each.replicas if tp not in moving or r not in moving[tp].removing)
        for tp, each in described.items()
    }


async def plan_even(
    admin: Admin,
    present: Assignment,
    brokers: Collection[int] | None = None,
    replication_factor: int | None = None,
) -> Assignment:
    """What changes when these partitions spread evenly over brokers (None: all that live).

    Raises KafkaError for a broker that is not known and for too few of them.
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
    """Until none of these partitions moves any more."""
    watch = MoveWatch(admin, partitions)
    while not (seen := await watch.look()).done:
        show(seen)
        await asyncio.sleep(LOOK_S)
    show(seen)


class MoveWatch:
    """The reassignment of some partitions; ``look`` from time to time."""

    def __init__(self, admin: Admin, partitions: Collection[TopicPartition]) -> None:
        self._admin = admin
        self._partitions = frozenset(partitions)
        #: Bytes to copy, as last seen, by partition.
        self._sizes: dict[TopicPartition, int] = {}

    async def look(self) -> MoveProgress:
        """Raises KafkaError and ConnectError."""
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
        """Bytes by partition and broker; empty when brokers do not answer, as in a failure."""
        with suppress(SparklogError):
            described = await self._admin.describe_log_dirs()
            return {
                (tp, node): size
                for node, directories in described.items()
                for directory in directories
                for tp, size in directory.sizes.items()
            }
        return {}
