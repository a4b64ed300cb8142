"""Replicas move between real brokers while clients go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sparklog.errors import ErrorCode
from sparklog.executors.controller_link.connection import ControllerConnection
from sparklog.metadata import PartitionImage
from sparklog.types import Endpoint, ResourceType, TopicPartition
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.protocol.private import DrainBrokersRequest, DrainBrokersResponse, DrainedBroker
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Client, Rig, run

TP = TopicPartition("t", 0)


def state(rig: Rig, partition: int = 0) -> PartitionImage:
    found = rig.control.image.partition(TopicPartition("t", partition))
    assert found is not None
    return found


def at_rest(rig: Rig) -> bool:
    return not any(s.adding or s.removing for _, s in rig.control.image.partitions())


async def move(rig: Rig, replicas: tuple[int, ...] | None, partition: int = 0) -> None:
    """Asked at a broker, which passes it on."""
    part = ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name="t", partitions=(part,)),)
    )
    response = await (await rig.client(min(rig.brokers))).ask(request)
    assert response.error_code == 0, response
    assert response.responses[0].partitions[0].error_code == 0, response


async def drain(rig: Rig, broker_id: int) -> DrainedBroker:
    endpoint = Endpoint("127.0.0.1", rig.control.port)
    link = ControllerConnection(endpoint, rig.control.secret, client_id="t")
    try:
        request = DrainBrokersRequest(broker_ids=(broker_id,))
        (drained,) = (await link.call(request, DrainBrokersResponse, 5)).brokers
        return drained
    finally:
        link.close()


class Producing:
    """Somebody who produces, one record after the other, wherever the leader is."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.acknowledged: list[bytes] = []
        self._clients: dict[int, Client] = {}

    async def run(self) -> None:
        number = 0
        while True:
            number += 1
            value = b"%d" % number
            if await self._produce(value):
                self.acknowledged.append(value)
            await asyncio.sleep(0.002)

    async def _produce(self, value: bytes) -> bool:
        leader = state(self._rig).leader
        if leader not in self._clients:
            self._clients[leader] = await self._rig.client(leader)
        return (await self._clients[leader].produce("t", batch(value))).error_code == 0


@asynccontextmanager
async def producing(rig: Rig) -> AsyncIterator[Producing]:
    producer = Producing(rig)
    task = asyncio.create_task(producer.run())
    try:
        yield producer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def check_all_is_there(rig: Rig, acknowledged: list[bytes]) -> None:
    """Once each, and in their order; what was refused may be there too."""
    client = await rig.client(state(rig).leader)
    values: list[bytes | None] = []
    while acknowledged[-1] not in values:
        code, more = await client.fetch("t", len(values))
        assert code == ErrorCode.NONE
        values += more
    wanted = set(acknowledged)
    assert [value for value in values if value in wanted] == acknowledged


async def four(rig: Rig, *, partitions: int = 1, **configs: str) -> Client:
    for broker_id in (1, 2, 3, 4):
        await rig.start_broker(broker_id)
    client = await rig.client()
    await client.create_topic("t", partitions, replication_factor=2, **configs)
    await until(lambda: all(_leads(rig, number) for number in range(partitions)))
    return client


def _leads(rig: Rig, number: int) -> bool:
    """Whether the leader of a partition knows that it leads two replicas in sync."""
    found = rig.brokers[state(rig, number).leader].replica_manager.get(TopicPartition("t", number))
    return found is not None and found.is_leader and len(state(rig, number).isr) == 2


def test_replicas_move_under_a_producer_and_nothing_is_lost() -> None:
    async def test(rig: Rig) -> None:
        await four(rig, min_insync_replicas="2")
        before = state(rig)
        others = tuple(sorted({1, 2, 3, 4} - set(before.replicas)))
        async with producing(rig) as producer:
            await until(lambda: len(producer.acknowledged) > 20)
            await move(rig, others)
            await until(lambda: at_rest(rig))
            after = len(producer.acknowledged)
            await until(lambda: len(producer.acknowledged) > after + 20)
        assert (state(rig).replicas, set(state(rig).isr)) == (others, set(others))
        assert state(rig).leader in others
        await check_all_is_there(rig, producer.acknowledged)
        await until(
            lambda: all(rig.brokers[b].replica_manager.get(TP) is None for b in before.replicas)
        )

    run(test)


def test_a_move_to_a_broker_that_is_away_goes_on_when_it_returns() -> None:
    async def test(rig: Rig) -> None:
        client = await four(rig)
        before = state(rig)
        away = max({2, 3, 4} - set(before.replicas))
        await rig.stop_broker(away)
        await move(rig, (before.replicas[0], away))
        leader = await rig.client(before.leader)
        assert (await leader.produce("t", batch(b"meanwhile"))).error_code == 0
        assert state(rig).adding == (away,)
        await rig.start_broker(away)
        await until(lambda: at_rest(rig))
        assert set(state(rig).isr) == {before.replicas[0], away}
        del client

    run(test)


def test_a_cancelled_move_leaves_nothing_behind() -> None:
    async def test(rig: Rig) -> None:
        await four(rig)
        before = state(rig)
        away = max({2, 3, 4} - set(before.replicas))
        await rig.stop_broker(away)
        await move(rig, (*before.replicas, away))
        await move(rig, None)
        await rig.start_broker(away)
        assert state(rig).replicas == before.replicas
        version = rig.control.image.version
        await until(lambda: rig.brokers[away].replica_manager.image.version >= version)
        assert rig.brokers[away].replica_manager.get(TP) is None

    run(test)


def test_a_broker_is_drained_stopped_and_forgotten() -> None:
    async def test(rig: Rig) -> None:
        await four(rig, partitions=6, min_insync_replicas="2")
        async with producing(rig) as producer:
            left = (await drain(rig, 4)).partitions_left
            assert left == 3
            while left:
                left = (await drain(rig, 4)).partitions_left
                await asyncio.sleep(0.02)
            await rig.stop_broker(4)
            done = len(producer.acknowledged)
            await until(lambda: len(producer.acknowledged) > done + 5)
        assert all(len(s.isr) == 2 for _, s in rig.control.image.partitions())
        response = await (await rig.client(1)).ask(UnregisterBrokerRequest(broker_id=4))
        assert response.error_code == 0, response
        assert sorted(rig.control.image.brokers) == [1, 2, 3]
        await check_all_is_there(rig, producer.acknowledged)

    run(test)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_move_takes_its_time_and_is_let_go_at_once(side: str) -> None:
    """200 kB at 50 kB/s: 4 seconds but for the burst, and what is overdrawn by one fetch."""

    async def test(rig: Rig) -> None:
        await four(rig, segment_bytes="1000000")
        before = state(rig)
        leader = await rig.client(before.leader)
        for _ in range(20):
            assert (await leader.produce("t", batch(b"x" * 10_000))).error_code == 0
        target = max({1, 2, 3, 4} - set(before.replicas))
        slow = before.leader if side == "leader" else target
        listed = {f"{side}.replication.throttled.replicas": f"0:{slow}"}
        rate = {f"{side}.replication.throttled.rate": "50000"}
        await leader.alter(ResourceType.TOPIC, "t", **listed)
        await leader.alter(ResourceType.BROKER, str(slow), **rate)
        replica_manager = rig.brokers[slow].replica_manager
        await until(lambda: "50000" in str(replica_manager.broker_config))
        leading = rig.brokers[before.leader].replica_manager.get(TP)
        assert leading is not None
        await until(lambda: f"0:{slow}" in str(leading.config))
        await move(rig, (*before.replicas, target))

        def copied() -> int:
            partition = rig.brokers[target].replica_manager.get(TP)
            return partition.log.log_end_offset if partition is not None else 0

        loop = asyncio.get_running_loop()
        begun = loop.time()
        await until(lambda: copied() >= 10)
        assert loop.time() - begun > 0.5
        assert copied() < 20
        # Those that are in sync are not held back: acks=all is as fast as ever.
        assert (await leader.produce("t", batch(b"y"))).error_code == 0
        await leader.alter(ResourceType.BROKER, str(slow), **dict.fromkeys(rate))
        await until(lambda: at_rest(rig))
        assert set(state(rig).isr) == {*before.replicas, target}

    run(test, replica_fetch_max_bytes="10000")
