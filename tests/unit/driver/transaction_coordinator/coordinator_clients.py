"""Requests of clients to one partition of the transaction coordinator.

Owns: their ids and their common fields.  Must not know what a test expects.
"""

import asyncio
from itertools import count
from typing import Any

from sparklog.driver.transaction_coordinator.partition_coordinator import PartitionCoordinator
from sparklog.driver.transactions import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerIdentity,
)
from sparklog.types import TopicPartition


class CoordinatorClients:
    """Old clients on one connection, for a rig that has a ``partition``."""

    partition: PartitionCoordinator

    def __init__(self) -> None:
        self._request_ids = count()

    def init(self, name: str) -> "asyncio.Future[Any]":
        request = InitProducerId(
            request_id=next(self._request_ids), transactional_id=name, timeout_ms=60_000
        )
        return self.partition.submit(request)

    def add_partitions(
        self, name: str, producer: ProducerIdentity, partitions: frozenset[TopicPartition]
    ) -> "asyncio.Future[Any]":
        request = AddPartitions(
            request_id=next(self._request_ids),
            transactional_id=name,
            producer=producer,
            partitions=partitions,
            connection=0,
            client_version=0,
        )
        return self.partition.submit(request)

    def commit(self, name: str, producer: ProducerIdentity) -> "asyncio.Future[Any]":
        request = EndTransaction(
            request_id=next(self._request_ids),
            transactional_id=name,
            producer=producer,
            committed=True,
            connection=0,
            client_version=0,
        )
        return self.partition.submit(request)
