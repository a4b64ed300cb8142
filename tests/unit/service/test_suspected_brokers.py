"""A leader whose connections have just ended is not reported to clients for a moment."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from sparklog.client.connection import Connection
from sparklog.errors import ErrorCode
from sparklog.metadata import BrokerImage, BrokerRegistered
from sparklog.service import metadata
from sparklog.service.suspected_brokers import (
    ANSWER_DELAY_MS,
    QUIET_MS,
    SUSPICION_MS_MAX,
    SuspectedBrokers,
)
from sparklog.transport import Server
from sparklog.types import Endpoint
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.unit.service.small_node import HOST, image, run_node


@dataclass
class Clock:
    now_ms: int = 0
    suspected_brokers: SuspectedBrokers = field(init=False)

    def __post_init__(self) -> None:
        self.suspected_brokers = SuspectedBrokers(lambda: self.now_ms)


def broker(epoch: int) -> BrokerImage:
    return BrokerImage(broker_id=1, broker_epoch=epoch)


def test_a_doubt_ends_with_time_a_word_of_the_broker_or_its_new_registration() -> None:
    clock = Clock()
    suspected_brokers = clock.suspected_brokers
    assert not suspected_brokers
    suspected_brokers.connection_lost(1, 5)
    assert suspected_brokers
    assert suspected_brokers.is_suspected(broker(5))
    assert not suspected_brokers.is_suspected(None)
    clock.now_ms += SUSPICION_MS_MAX
    assert suspected_brokers.is_suspected(broker(5))
    clock.now_ms += 1
    assert not suspected_brokers.is_suspected(broker(5))
    assert not suspected_brokers
    suspected_brokers.connection_lost(1, 5)
    suspected_brokers.mark_alive(1)
    assert not suspected_brokers.is_suspected(broker(5))
    suspected_brokers.connection_lost(1, 5)
    assert not suspected_brokers.is_suspected(broker(6))


def test_only_who_asks_again_after_a_while_waits_and_all_that_it_asks_meanwhile() -> None:
    clock, asker = Clock(), {}
    waits = []
    for pause in (0, QUIET_MS - 1, 1, QUIET_MS, 5, ANSWER_DELAY_MS - 5, 1):
        clock.now_ms += pause
        waits.append(clock.suspected_brokers.answer_delay_ms(asker))
    assert waits == [0, 0, 0, ANSWER_DELAY_MS, ANSWER_DELAY_MS - 5, 0, 0]


def leader_of_flights(answer: MetadataResponse) -> tuple[int, int, int]:
    [topic] = answer.topics
    [partition] = topic.partitions
    return partition.error_code, partition.leader_id, partition.leader_epoch


@pytest.mark.parametrize("version", [1, 13])
def test_a_doubted_leader_is_not_named_until_its_new_registration(version: int) -> None:
    clock, whole = Clock(), image()

    async def test(server: Server) -> None:
        connection = await Connection.open(Endpoint(HOST, server.port), timeout_s=30)
        connection.versions[MetadataRequest.API_KEY] = (version, version)

        async def ask() -> tuple[int, int, int]:
            request = MetadataRequest(topics=(MetadataRequestTopic(name="flights"),))
            return leader_of_flights(await connection.request(request))

        epoch = 4 if version >= 7 else -1
        assert await ask() == (ErrorCode.NONE, 1, epoch)
        clock.suspected_brokers.connection_lost(1, 1)
        assert await ask() == (ErrorCode.LEADER_NOT_AVAILABLE, -1, epoch)
        clock.suspected_brokers.connection_lost(2, 2)
        clock.suspected_brokers.mark_alive(1)
        assert await ask() == (ErrorCode.NONE, 1, epoch)
        clock.suspected_brokers.connection_lost(1, 1)
        again = replace(whole.brokers[1], broker_epoch=9)
        whole.replay(BrokerRegistered(broker=again, clean=False))
        assert await ask() == (ErrorCode.NONE, 1, epoch)
        connection.close()

    run_node([metadata.handler(lambda: whole, None, clock.suspected_brokers)], test)


def test_an_answer_that_waited_knows_what_happened_meanwhile() -> None:
    clock, whole = Clock(), image()

    async def test(server: Server) -> None:
        connection = await Connection.open(Endpoint(HOST, server.port), timeout_s=30)
        request = MetadataRequest(topics=(MetadataRequestTopic(name="flights"),))
        first = await connection.request(request)
        clock.now_ms += QUIET_MS
        asking = asyncio.create_task(connection.request(request))
        while not any(each.parked for each in server.connections):
            await asyncio.sleep(0)
        clock.suspected_brokers.connection_lost(1, 1)
        assert leader_of_flights(first) == (ErrorCode.NONE, 1, 4)
        assert leader_of_flights(await asking) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 4)
        connection.close()

    run_node([metadata.handler(lambda: whole, None, clock.suspected_brokers)], test)
