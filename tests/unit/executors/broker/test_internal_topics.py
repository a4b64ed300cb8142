"""Clients may neither write to internal topics nor delete their records."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.handlers import delete_records, produce
from sparklog.metadata.topic_names import CONSUMER_OFFSETS, INTERNAL_TOPICS
from sparklog.service.dispatch import Dispatcher
from sparklog.transport import ClientConnection, connect, serve
from sparklog.types import Endpoint
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from sparklog.wire.protocol.produce import encode_produce_request
from tests.support.batches import batch
from tests.unit.executors.broker.broker_rig import produce_request
from tests.unit.executors.coordinator.replica_rig import ReplicaRig, led

INVALID_TOPIC = int(ErrorCode.INVALID_TOPIC_EXCEPTION)


class Node:
    """Produce and DeleteRecords over a loopback socket."""

    def __init__(self, replicas: ReplicaRig, client: ClientConnection) -> None:
        self.replicas = replicas
        self._client = client

    async def produce(
        self, topic: str | UUID, *, client_id: str = "t", acks: int = -1
    ) -> PartitionProduceResponse:
        version = 13 if isinstance(topic, UUID) else 11
        request = produce_request(topic, batch(b"a"), 0, acks)
        payload = encode_produce_request(version, 1, client_id, request)
        _, response = decode_response(ProduceResponse, version, await self._client.request(payload))
        ((result,),) = [each.partition_responses for each in response.responses]
        return result

    async def delete(self, topic: str) -> tuple[int, int]:
        """Error code and low watermark."""
        part = DeleteRecordsPartition(partition_index=0, offset=0)
        request = DeleteRecordsRequest(
            topics=(DeleteRecordsTopic(name=topic, partitions=(part,)),), timeout_ms=1000
        )
        answer = await self._client.request([encode_request(request, 2, 1, "t")])
        _, response = decode_response(DeleteRecordsResponse, 2, answer)
        ((result,),) = [each.partitions for each in response.topics]
        return result.error_code, result.low_watermark


def run(test: Callable[[Node], Awaitable[None]]) -> None:
    async def main() -> None:
        with ReplicaRig.open() as replicas:
            manager = replicas.replica_manager
            dispatcher = Dispatcher([produce.handler(manager), delete_records.handler(manager)])
            server = await serve("127.0.0.1", 0, dispatcher)
            client = await connect(Endpoint("127.0.0.1", server.port), 20)
            try:
                await test(Node(replicas, client))
            finally:
                client.close()
                await server.close(1.0)
                await manager.close()

    asyncio.run(main())


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_a_client_may_not_write_to_an_internal_topic(topic: str) -> None:
    async def test(node: Node) -> None:
        await node.replicas.create(topic, led())
        await node.replicas.create("t", led())
        topic_id = node.replicas.image.topics[topic].topic_id
        for name in (topic, topic, topic_id, topic_id):  # repeated requests are no way around it
            result = await node.produce(name)
            assert (result.error_code, result.base_offset) == (INVALID_TOPIC, -1)
        assert node.replicas.partition(topic).log.log_end_offset == 0
        assert (await node.produce("t")).error_code == 0

    run(test)


def test_no_client_id_opens_an_internal_topic() -> None:
    """Kafka lets ``__admin_client`` write, a name that anybody can take."""

    async def test(node: Node) -> None:
        await node.replicas.create(CONSUMER_OFFSETS, led())
        refused = await node.produce(CONSUMER_OFFSETS, client_id="__admin_client")
        assert refused.error_code == INVALID_TOPIC

    run(test)


def test_records_of_an_internal_topic_are_not_deleted() -> None:
    async def test(node: Node) -> None:
        await node.replicas.create(CONSUMER_OFFSETS, led())
        await node.replicas.create("t", led())
        assert await node.delete(CONSUMER_OFFSETS) == (INVALID_TOPIC, -1)
        assert await node.delete("t") == (0, 0)

    run(test)
