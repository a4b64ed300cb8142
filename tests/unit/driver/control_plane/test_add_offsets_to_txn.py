"""AddOffsetsToTxn: the partition that a transaction gets, and the topic that is created for it."""

import asyncio
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

from sparklog.driver.control_plane.handlers import add_offsets_to_txn
from sparklog.driver.control_plane.handlers.transactional_requests import TransactionalRequests
from sparklog.driver.transactions import AddPartitions, ProducerIdentity
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, PartitionImage, TopicCreated
from sparklog.metadata.coordinators import partition_for
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.transport import Server
from sparklog.types import TopicPartition
from sparklog.wire.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from tests.unit.service.small_node import ask, image, run_node

PARTITIONS = 3
REQUEST = AddOffsetsToTxnRequest(
    transactional_id="x", producer_id=7, producer_epoch=2, group_id="group"
)


class Node:
    """A transaction coordinator, and the creation of internal topics."""

    def __init__(self) -> None:
        self.image: ClusterImage = image()
        self.created: list[str] = []
        self.refusal: KafkaError | None = None
        self.submitted: list[AddPartitions] = []

    async def create(self, name: str) -> None:
        self.created.append(name)
        if self.refusal is not None:
            raise self.refusal
        state = PartitionImage(replicas=(1,), isr=(1,), leader=1)
        topic = TopicCreated(topic=name, topic_id=UUID(int=77), partitions=(state,) * PARTITIONS)
        self.image.replay_commit(self.image.version + 1, [topic])

    def submit(
        self, _: str, make_request: Callable[[int], AddPartitions]
    ) -> "asyncio.Future[None]":
        self.submitted.append(make_request(1))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def answers(self, count: int = 1, version: int = 3) -> list[int]:
        """The codes of requests that are sent one after the other."""
        transactions = TransactionalRequests(cast(Any, self))
        handler = add_offsets_to_txn.handler(transactions, lambda: self.image, self.create)
        found: list[AddOffsetsToTxnResponse] = []

        async def test(server: Server) -> None:
            for _ in range(count):
                found.append(await ask(server, REQUEST, version))

        run_node([handler], test)
        return [each.error_code for each in found]


def test_the_transaction_gets_the_partition_of_the_group() -> None:
    node = Node()
    assert node.answers(2) == [0, 0]
    assert node.created == [CONSUMER_OFFSETS]
    number = partition_for("group", PARTITIONS)
    assert [(each.producer, each.partitions) for each in node.submitted] == [
        (ProducerIdentity(7, 2), {TopicPartition(CONSUMER_OFFSETS, number)})
    ] * 2


def test_a_topic_that_cannot_be_created_is_asked_for_again() -> None:
    node = Node()
    node.refusal = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few brokers")
    assert node.answers(2) == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    assert (node.created, node.submitted) == ([CONSUMER_OFFSETS] * 2, [])
    node.refusal = None
    assert node.answers() == [0]
