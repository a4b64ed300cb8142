"""The listener of an application for changes of its assignment.

Owns: the interface.  Must not know when it is called.
"""

from collections.abc import Awaitable
from typing import Any

from sparklog.types import TopicPartition

Partitions = frozenset[TopicPartition]


class RebalanceListener:
    """Called within ``poll``, ``unsubscribe`` and ``close`` when the assignment changes.

    Override what you need (``ConsumerRebalanceListener`` in Kafka).  With ``AsyncConsumer``, the
    methods may also be coroutines.  An exception leaves the ``poll`` that called the method; the
    change of the assignment is carried out nevertheless.
    """

    def on_partitions_revoked(self, partitions: Partitions) -> Awaitable[Any] | None:
        """These partitions go to other members after this call: commit what was processed."""
        return None

    def on_partitions_assigned(self, partitions: Partitions) -> Awaitable[Any] | None:
        """These partitions were added; ``seek`` overrides their committed offsets."""
        return None

    def on_partitions_lost(self, partitions: Partitions) -> Awaitable[Any] | None:
        """Other members may own these partitions already: it is too late to commit."""
        return self.on_partitions_revoked(partitions)
