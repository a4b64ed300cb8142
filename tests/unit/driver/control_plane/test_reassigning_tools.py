"""The view of tools during a reassignment, at node 0 and at a broker that forwards requests."""

from typing import Any

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from sparklog.wire.protocol.private import ForwardRequestRequest
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, run


def move(number: int, replicas: tuple[int, ...] | None) -> AlterPartitionReassignmentsRequest:
    part = ReassignablePartition(partition_index=number, replicas=replicas)
    topic = ReassignableTopic(name="a", partitions=(part,))
    return AlterPartitionReassignmentsRequest(topics=(topic,))


def asked(*topics: tuple[str, tuple[int, ...]]) -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(
        topics=tuple(
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics
        )
    )


def moving(*numbers: int) -> ListPartitionReassignmentsResponse:
    """The response while partitions of ``a`` move from broker 1 to broker 2."""
    parts = tuple(
        OngoingPartitionReassignment(
            partition_index=number, replicas=(2, 1), adding_replicas=(2,), removing_replicas=(1,)
        )
        for number in numbers
    )
    topics = (OngoingTopicReassignment(name="a", partitions=parts),) if parts else ()
    return ListPartitionReassignmentsResponse(topics=topics)


async def begin(under_test: UnderTest) -> None:
    """Begin to move partitions 0 and 2 of ``a``."""
    await under_test.register(1)
    topic = CreatableTopic(name="a", num_partitions=3, replication_factor=1)
    await under_test.ask(CreateTopicsRequest(topics=(topic,)))
    await under_test.register(2)
    for number in (0, 2):
        answer = await under_test.ask(move(number, (2,)))
        part = ReassignablePartitionResponse(partition_index=number)
        assert answer.responses == (ReassignableTopicResponse(name="a", partitions=(part,)),)


def test_moves_are_listed_all_or_those_asked_for(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        await begin(under_test)
        for question, answer in (
            (ListPartitionReassignmentsRequest(topics=None), moving(0, 2)),
            (asked(("a", (2, 1)), ("nobody", (0,))), moving(2)),
            (asked(("a", (1,)), ("a", (0, 9))), moving(0)),
            (asked(), moving()),
        ):
            assert await under_test.ask(question) == answer
        cancelled = await under_test.ask(move(0, None))
        assert cancelled.responses[0].partitions[0].error_code == ErrorCode.NONE
        again = await under_test.ask(move(0, None))
        code = again.responses[0].partitions[0].error_code
        assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await under_test.ask(ListPartitionReassignmentsRequest(topics=None)) == moving(2)

    run(request, story)


def test_brokers_pass_both_requests_on(request: pytest.FixtureRequest) -> None:
    async def forwarded(under_test: UnderTest, inner: Any, version: int) -> Any:
        frame = encode_request(inner, version, 7, "tool")
        outer = await under_test.tell(ForwardRequestRequest(api_version=version, request=frame))
        kind = ListPartitionReassignmentsResponse
        return decode_response(kind, version, outer.response)[1] if version == 0 else outer

    async def story(under_test: UnderTest) -> None:
        await begin(under_test)
        outer = await forwarded(under_test, move(1, (2,)), 1)
        assert outer.error_code == ErrorCode.NONE
        listed = await forwarded(under_test, ListPartitionReassignmentsRequest(topics=None), 0)
        assert listed == moving(0, 1, 2)

    run(request, story)
