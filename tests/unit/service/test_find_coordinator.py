"""FindCoordinator: the leader of a group's partition, and the topic that is created for it."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage, PartitionImage, TopicCreated
from sparklog.metadata.coordinators import partition_for
from sparklog.service import find_coordinator, internal_topic_creation
from sparklog.transport import Server
from sparklog.wire.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.support.waiting import until
from tests.unit.service.small_node import ask, image, run_node

TOPIC = "__consumer_offsets"
#: Of three partitions, brokers 1 and 2 lead one each, and the third has no leader.
NAMES = [
    next(name for name in map(str, range(99)) if partition_for(name, 3) == n) for n in (0, 1, 2)
]


def create_topic(cluster: ClusterImage, name: str = TOPIC) -> None:
    states = tuple(
        PartitionImage(replicas=(1, 2), isr=(1, 2), leader=leader) for leader in (1, 2, -1)
    )
    created = TopicCreated(topic=name, topic_id=UUID(int=77), partitions=states)
    cluster.replay_commit(cluster.version + 1, [created])


class Creation:
    """``create_internal_topic`` of a test: what it was asked for, and how it answers."""

    def __init__(self, cluster: ClusterImage, error: KafkaError | None = None) -> None:
        self.cluster = cluster
        self.error = error
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, name: str) -> None:
        self.asked.append(name)
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        # The image has the topic a little later.
        asyncio.get_running_loop().call_later(0.02, create_topic, self.cluster, name)


def run(test: Callable[[Server, Creation], Awaitable[None]], *, topic: bool = True) -> None:
    cluster = image()
    if topic:
        create_topic(cluster)
    creation = Creation(cluster)

    async def within(server: Server) -> None:
        await test(server, creation)

    run_node([find_coordinator.handler(lambda: cluster, creation)], within)


def old(key: str, key_type: int = 0) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key=key, key_type=key_type)


def new(*keys: str, key_type: int = 0) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type)


@pytest.mark.parametrize("version", range(4))
def test_one_key(version: int) -> None:
    async def test(server: Server, creation: Creation) -> None:
        message = "NONE" if version >= 1 else None
        first = await ask(server, old(NAMES[0]), version)
        assert first == FindCoordinatorResponse(
            node_id=1, host="host1", port=9001, error_message=message
        )
        second = await ask(server, old(NAMES[1]), version)
        assert (second.node_id, second.host, second.port) == (2, "host2", 9002)
        third = await ask(server, old(NAMES[2]), version)
        assert (third.error_code, third.node_id, third.host, third.port) == (
            ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1,
        )  # fmt: skip
        empty = await ask(server, old(""), version)
        assert empty.node_id == 1
        assert creation.asked == []

    run(test)


@pytest.mark.parametrize("version", range(4, 7))
def test_several_keys(version: int) -> None:
    async def test(server: Server, _: Creation) -> None:
        response = await ask(server, new(*NAMES, NAMES[0]), version)
        first, second, third = response.coordinators
        assert first == Coordinator(
            key=NAMES[0], node_id=1, host="host1", port=9001, error_message=""
        )
        assert (second.key, second.node_id, second.error_code) == (NAMES[1], 2, 0)
        assert (third.key, third.node_id, third.error_code) == (
            NAMES[2], -1, ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )  # fmt: skip
        assert await ask(server, new(), version) == FindCoordinatorResponse()

    run(test)


def test_share_coordinators_and_unknown_types_are_refused() -> None:
    async def test(server: Server, creation: Creation) -> None:
        for key_type in (2, 3, 9):
            (refused,) = (await ask(server, new("k", key_type=key_type), 6)).coordinators
            assert (refused.error_code, refused.node_id) == (ErrorCode.INVALID_REQUEST, -1)
        assert creation.asked == []
        (refused,) = (await ask(server, new("", key_type=1), 6)).coordinators
        assert refused.error_code == ErrorCode.INVALID_REQUEST

    run(test, topic=False)


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_node_0_coordinates_every_transactional_id(version: int) -> None:
    async def test(server: Server, creation: Creation) -> None:
        controller = creation.cluster.controller
        for _ in range(2):
            if version < 4:
                response = await ask(server, old("t", key_type=1), version)
                found = (response.node_id, response.host, response.port, response.error_code)
            else:
                (one,) = (await ask(server, new("t", key_type=1), version)).coordinators
                found = (one.node_id, one.host, one.port, one.error_code)
            assert found == (0, controller.host, controller.port, 0)
        assert creation.asked == ["__transaction_state"]

    run(test)


def test_the_topic_is_created_once_and_the_first_response_waits_for_it() -> None:
    async def test(server: Server, creation: Creation) -> None:
        creation.go_on.clear()
        asking = [asyncio.create_task(ask(server, new(NAMES[0]), 6)) for _ in range(5)]
        asking.append(asyncio.create_task(ask(server, old(NAMES[0]), 3)))
        await until(lambda: len(server.connections) == 6 and creation.asked)
        creation.go_on.set()
        *new_ones, old_one = await asyncio.gather(*asking)
        assert [answer.coordinators[0].node_id for answer in new_ones] == [1] * 5
        assert old_one.node_id == 1
        assert creation.asked == [TOPIC]

    run(test, topic=False)


def test_a_topic_that_cannot_be_created_is_asked_for_again() -> None:
    async def test(server: Server, creation: Creation) -> None:
        creation.error = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few brokers")
        for _ in range(2):
            (refused,) = (await ask(server, new("g"), 6)).coordinators
            assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "too few brokers" in refused.error_message
        creation.error = None
        (found,) = (await ask(server, new(NAMES[0]), 6)).coordinators
        assert found.node_id == 1
        assert creation.asked == [TOPIC] * 3

    run(test, topic=False)


def test_a_topic_that_exists_already_is_waited_for() -> None:
    async def test(server: Server, creation: Creation) -> None:
        creation.error = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)
        asyncio.get_running_loop().call_later(0.1, create_topic, creation.cluster)
        assert (await ask(server, old(NAMES[1]), 0)).node_id == 2

    run(test, topic=False)


def test_the_wait_for_the_topic_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(server: Server, creation: Creation) -> None:
        monkeypatch.setattr(internal_topic_creation, "CREATION_WAIT_S", 0.05)
        creation.go_on.clear()
        for _ in range(2):
            response = await ask(server, old("g"), 3)
            assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert creation.asked == [TOPIC]
        creation.go_on.set()
        await until(lambda: creation.cluster.topic(TOPIC))
        assert (await ask(server, old(NAMES[0]), 3)).node_id == 1

    run(test, topic=False)
