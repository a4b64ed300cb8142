"""Long requests are read from bytes of their own: other clients receive into what they came in."""

import asyncio

import pytest

from sparklog.transport import slice_scheduler
from sparklog.wire.framing.receive_memory import ReceiveMemory
from sparklog.wire.protocol.codec import decode_response
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.protocol.produce import encode_produce_request
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, run

PARTITIONS = 300


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other clients send while a long request is worked on."""
    monkeypatch.setattr(slice_scheduler, "TURN_UNITS", 1)


def value(number: int) -> bytes:
    return b"%03d" % number * 200


def produce_to_all(partitions: int) -> ProduceRequest:
    parts = tuple(
        PartitionProduceData(index=number, records=batch(value(number)))
        for number in range(partitions)
    )
    topic = TopicProduceData(name="t", partition_data=parts)
    return ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=(topic,))


def overwrite(memory: ReceiveMemory) -> None:
    """What other clients do when they send: between two turns, this memory belongs to nobody."""
    for buffer in (memory.shared, *memory._spares):
        buffer[:] = b"\xff" * len(buffer)


def test_batches_of_a_long_request_are_appended_as_they_were_sent() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic(PARTITIONS)
        request = encode_produce_request(11, 6, "t", produce_to_all(PARTITIONS))
        producing = asyncio.ensure_future(client.connection.request(request))
        server = rig.brokers[1]._server
        assert server is not None
        await until(lambda: len(server.scheduler) > 0)
        overwrite(server.memory.receive)
        _, response = decode_response(ProduceResponse, 11, await producing)
        [topic] = response.responses
        assert [part.error_code for part in topic.partition_responses] == [0] * PARTITIONS
        for number in range(PARTITIONS):
            assert await client.fetch("t", partition=number) == (0, [value(number)])

    run(test)


def test_names_of_a_long_request_are_read_as_they_were_sent() -> None:
    names = [f"name-{number}" for number in range(15_000)]

    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        wanted = tuple(MetadataRequestTopic(name=name) for name in names)
        asking = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answering = asyncio.ensure_future(client.ask(asking, 9))
        server = rig.brokers[1]._server
        assert server is not None
        await until(lambda: len(server.scheduler) > 0)
        overwrite(server.memory.receive)
        assert [topic.name for topic in (await answering).topics] == names

    run(test)
