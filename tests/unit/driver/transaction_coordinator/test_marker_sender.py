"""Markers reach the leaders of partitions, whatever becomes of leaders and requests."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, cast
from unittest.mock import patch
from uuid import UUID

import pytest

from sparklog.client.cluster_client import ClusterClient
from sparklog.driver.transaction_coordinator import marker_sender
from sparklog.driver.transaction_coordinator.marker_sender import MarkerSender
from sparklog.driver.transactions import ProducerIdentity, WriteMarkers
from sparklog.errors import ConnectError, ErrorCode, SparklogError
from sparklog.metadata import (
    ClusterImage,
    PartitionChanged,
    PartitionImage,
    TopicCreated,
    TopicDeleted,
)
from sparklog.types import NO_NODE, TopicPartition
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.support.waiting import until
from tests.unit.service.small_node import image

TOPIC_ID = UUID(int=5)
EPOCH = 9
Written = tuple[str, ProducerIdentity, frozenset[TopicPartition]]


def tps(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("a", number) for number in numbers)


def write(name: str, producer_id: int, *numbers: int, version: int = 2) -> WriteMarkers:
    return WriteMarkers(
        transactional_id=name,
        producer=ProducerIdentity(producer_id, 4),
        committed=True,
        partitions=tps(*numbers),
        client_version=version,
    )


class Rig:
    """A sender, two brokers that lead partitions 0 and 1 of topic ``a``, and what they answer."""

    def __init__(self) -> None:
        self.image = image()
        states = tuple(
            PartitionImage(replicas=(1, 2), isr=(1, 2), leader=leader) for leader in (1, 2, 1)
        )
        self.commit(TopicCreated(topic="a", topic_id=TOPIC_ID, partitions=states))
        self.requests: list[tuple[int, WriteTxnMarkersRequest]] = []
        #: Codes of the coming answers, by partition; an exception in place of an answer.
        self.answers: deque[dict[int, ErrorCode] | Exception] = deque()
        self.written: list[Written] = []
        self.fenced: list[SparklogError] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        #: Brokers whose answers are late.
        self.hold: set[int] = set()
        self.connecting = 0
        self.connected = asyncio.Event()
        self.connected.set()
        self.view = self
        self.nodes = {1: "one", 2: "two"}
        self.sender = MarkerSender(
            cast(ClusterClient, self), lambda: self.image, EPOCH, self.fenced.append
        )

    def commit(self, *records: Any) -> None:
        self.image.replay_commit(self.image.version + 1, list(records))

    def lead(self, number: int, leader: int) -> None:
        state = PartitionImage(replicas=(1, 2), isr=(1, 2), leader=leader, leader_epoch=1)
        self.commit(PartitionChanged(topic="a", partition=number, state=state))

    def write(self, marker: WriteMarkers) -> None:
        self.sender.write(marker, self.on_written)

    def on_written(self, *told: Any) -> None:
        self.written.append(told)

    async def refresh(self, *_: object) -> None:
        """The view is always that of the image."""

    async def connect_node(self, node_id: int, *_: object) -> "Broker":
        self.connecting += 1
        await self.connected.wait()
        return Broker(self, node_id)


class Broker:
    def __init__(self, rig: Rig, node_id: int) -> None:
        self.rig = rig
        self.node_id = node_id

    async def request(self, request: WriteTxnMarkersRequest, **_: object) -> Any:
        self.rig.requests.append((self.node_id, request))
        await self.rig.go_on.wait()
        while self.node_id in self.rig.hold:
            await asyncio.sleep(0.001)
        answer = self.rig.answers.popleft() if self.rig.answers else {}
        if isinstance(answer, Exception):
            raise answer
        return WriteTxnMarkersResponse(
            markers=tuple(
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=tuple(
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=tuple(
                                WritableTxnMarkerPartitionResult(
                                    partition_index=number, error_code=answer.get(number, 0)
                                )
                                for number in topic.partition_indexes
                            ),
                        )
                        for topic in marker.topics
                    ),
                )
                for marker in request.markers
            )
        )


def run(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def within() -> None:
        rig = Rig()
        with patch.object(marker_sender, "_PAUSE_S", 0.001):
            await asyncio.wait_for(story(rig), 20)
        await rig.sender.close()
        assert rig.sender.unsent == 0

    asyncio.run(within())


def asked(request: WriteTxnMarkersRequest) -> dict[int, set[int]]:
    """The partitions of a request by producer."""
    return {
        marker.producer_id: {n for topic in marker.topics for n in topic.partition_indexes}
        for marker in request.markers
    }


def test_the_markers_of_one_tick_share_a_request_per_leader() -> None:
    async def story(rig: Rig) -> None:
        rig.write(write("x", 10, 0, 1, 2))
        rig.write(write("y", 11, 0, version=0))
        await until(lambda: len(rig.written) == 3)
        assert {node: asked(request) for node, request in rig.requests} == {
            1: {10: {0, 2}, 11: {0}},
            2: {10: {1}},
        }
        (first, second) = dict(rig.requests)[1].markers
        assert (first.producer_epoch, first.coordinator_epoch) == (4, EPOCH)
        assert (first.transaction_result, first.transaction_version) == (True, 2)
        assert second.transaction_version == 0
        identity = ProducerIdentity(10, 4)
        assert ("x", identity, tps(0, 2)) in rig.written
        assert ("x", identity, tps(1)) in rig.written

    run(story)


def test_one_request_is_under_way_to_a_leader() -> None:
    async def story(rig: Rig) -> None:
        rig.go_on.clear()
        rig.write(write("x", 10, 0))
        await until(lambda: rig.requests)
        rig.write(write("y", 11, 0))
        rig.write(write("z", 12, 2))
        await asyncio.sleep(0.01)
        assert len(rig.requests) == 1
        rig.go_on.set()
        await until(lambda: len(rig.written) == 3)
        assert asked(rig.requests[1][1]) == {11: {0}, 12: {2}}

    run(story)


def test_a_lost_request_and_a_refusal_are_repeated_at_the_new_leader() -> None:
    async def story(rig: Rig) -> None:
        rig.answers.append(ConnectError("broken"))
        rig.answers.append({0: ErrorCode.NOT_LEADER_OR_FOLLOWER})
        rig.go_on.clear()
        rig.write(write("x", 10, 0))
        await until(lambda: rig.requests)
        rig.lead(0, 2)
        rig.go_on.set()
        await until(lambda: rig.written)
        assert [node for node, _ in rig.requests] == [1, 2, 2]
        assert rig.written == [("x", ProducerIdentity(10, 4), tps(0))]

    run(story)


def test_a_partition_without_leader_waits_for_one() -> None:
    async def story(rig: Rig) -> None:
        rig.lead(0, NO_NODE)
        rig.write(write("x", 10, 0, 1))
        await until(lambda: rig.written)
        assert rig.sender.unsent == 1
        rig.lead(0, 2)
        await until(lambda: len(rig.written) == 2)

    run(story)


def test_a_deleted_partition_needs_no_marker() -> None:
    async def story(rig: Rig) -> None:
        rig.answers.append({0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        rig.go_on.clear()
        rig.write(write("x", 10, 0))
        await until(lambda: rig.requests)
        rig.commit(TopicDeleted(topic="a", topic_id=TOPIC_ID))
        rig.go_on.set()
        await until(lambda: rig.written)
        rig.write(write("y", 11, 1))
        await until(lambda: len(rig.written) == 2)
        assert len(rig.requests) == 1

    run(story)


def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again() -> None:
    async def story(rig: Rig) -> None:
        rig.answers.extend([{0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}] * 3)
        rig.write(write("x", 10, 0))
        await until(lambda: rig.written)
        assert len(rig.requests) == 4

    run(story)


def test_a_later_epoch_of_the_producer_has_ended_the_transaction() -> None:
    async def story(rig: Rig) -> None:
        rig.answers.append({0: ErrorCode.INVALID_PRODUCER_EPOCH})
        rig.write(write("x", 10, 0))
        await until(lambda: rig.written)
        assert len(rig.requests) == 1

    run(story)


def test_a_leader_that_knows_a_later_controller_ends_the_coordinator() -> None:
    async def story(rig: Rig) -> None:
        rig.answers.append({0: ErrorCode.TRANSACTION_COORDINATOR_FENCED})
        rig.write(write("x", 10, 0))
        await until(lambda: rig.fenced)
        assert rig.written == []

    run(story)


def test_forgotten_markers_are_not_sent() -> None:
    async def story(rig: Rig) -> None:
        rig.go_on.clear()
        rig.write(write("x", 10, 0))
        await until(lambda: rig.requests)
        rig.write(write("y", 11, 0))
        rig.sender.forget(rig.on_written)
        rig.write(write("z", 12, 0))
        rig.go_on.set()
        await until(lambda: rig.written)
        assert [asked(request) for _, request in rig.requests] == [{10: {0}}, {12: {0}}]
        assert [name for name, *_ in rig.written] == ["z"]

    run(story)


@pytest.mark.parametrize(
    "answer",
    [{}, {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}, ConnectError("broken")],
    ids=["written", "refused", "lost"],
)
def test_a_forgotten_marker_under_way_is_not_taken_for_one_of_the_next_transaction(
    answer: dict[int, ErrorCode] | Exception,
) -> None:
    """The next transaction of an old client has the same epoch."""

    async def story(rig: Rig) -> None:
        rig.answers.append({})
        rig.answers.append(answer)
        rig.go_on.clear()
        rig.write(write("x", 10, 0, version=0))
        await until(lambda: rig.requests)
        rig.sender.forget(rig.on_written)
        rig.lead(0, 2)
        rig.hold.add(1)
        rig.go_on.set()
        rig.write(write("x", 10, 0, version=0))
        await until(lambda: rig.written)
        rig.hold.clear()
        await until(lambda: not rig.answers)
        await asyncio.sleep(0.02)
        assert [node for node, _ in rig.requests] == [1, 2]
        assert len(rig.written) == 1

    run(story)


def test_markers_that_are_forgotten_while_the_broker_is_connected_are_not_sent() -> None:
    async def story(rig: Rig) -> None:
        rig.connected.clear()
        rig.write(write("x", 10, 0))
        await until(lambda: rig.connecting)
        rig.sender.forget(rig.on_written)
        rig.connected.set()
        rig.write(write("y", 11, 0))
        await until(lambda: rig.written)
        assert [asked(request) for _, request in rig.requests] == [{11: {0}}]

    run(story)


def test_the_image_of_these_stories_has_both_brokers() -> None:
    assert isinstance(image(), ClusterImage)
    assert {broker.broker_id for broker in image().alive_brokers()} >= {1, 2}
