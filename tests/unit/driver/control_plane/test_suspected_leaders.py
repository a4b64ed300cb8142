"""Node 0 suspects a broker whose connection has ended, before its loss is reported."""

import asyncio

import pytest

from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.metadata import MetadataRequest
from sparklog.wire.protocol.private import BrokerHeartbeatRequest
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, run

TOPIC = CreatableTopic(name="flights", num_partitions=2, replication_factor=1)


def test_a_broker_that_hangs_up_is_not_named_as_a_leader_until_it_is_heard_of(
    request: pytest.FixtureRequest,
) -> None:
    async def story(under_test: UnderTest) -> None:
        registered = await under_test.register()
        await under_test.ask(CreateTopicsRequest(topics=(TOPIC,)))
        beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=registered.broker_epoch)
        broker = await under_test.connect(member=True)
        for _ in range(2):
            await broker.request(beat)

        async def leaders() -> set[int]:
            answer = await under_test.ask(MetadataRequest(topics=None))
            assert [node.node_id for node in answer.brokers] == [1, 0]
            return {partition.leader_id for partition in answer.topics[0].partitions}

        assert await leaders() == {1}
        broker.close()
        while await leaders() != {-1}:
            await asyncio.sleep(0.005)
        broker = await under_test.connect(member=True)
        await broker.request(beat)
        assert await leaders() == {1}
        broker.close()

    run(request, story)
