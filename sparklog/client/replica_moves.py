"""Watching replicas move: how many partitions, and how many bytes, are left.

Owns: the measure of progress.  Must not know who shows it.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from sparklog.client.admin import Admin
from sparklog.errors import SparklogError
from sparklog.types import TopicPartition


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
