"""DescribeTopicPartitions: pages of partitions, sorted by topic name."""

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode
from sparklog.metadata import ClusterImage, PartitionImage, TopicCreated
from sparklog.service import describe_topic_partitions
from sparklog.service.metadata import TOPIC_OPERATIONS
from sparklog.wire.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
    TopicRequest,
)
from tests.unit.service.small_node import FLIGHTS, HALF, ask_once, image

LED = DescribeTopicPartitionsResponsePartition(
    partition_index=0,
    leader_id=1,
    leader_epoch=4,
    replica_nodes=(1,),
    isr_nodes=(1,),
    eligible_leader_replicas=(),
    last_known_elr=(),
)


def described(
    *names: str,
    cursor: tuple[str, int] | None = None,
    limit: int = 2000,
    server_limit: int = 2000,
    cluster: ClusterImage | None = None,
    failed: Collection[tuple[int, UUID, int]] = (),
) -> DescribeTopicPartitionsResponse:
    found = cluster or image()
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
    )
    handler = describe_topic_partitions.handler(
        lambda: found, server_limit, lambda *replica: replica in failed
    )
    response = ask_once([handler], request, 0)
    assert isinstance(response, DescribeTopicPartitionsResponse)
    return response


def shape(response: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(t.name, [p.partition_index for p in t.partitions]) for t in response.topics]


def test_all_topics_are_described_with_eligible_and_offline_replicas() -> None:
    assert described() == DescribeTopicPartitionsResponse(
        topics=(
            DescribeTopicPartitionsResponseTopic(
                name="flights",
                topic_id=FLIGHTS,
                partitions=(LED,),
                topic_authorized_operations=TOPIC_OPERATIONS,
            ),
            DescribeTopicPartitionsResponseTopic(
                name="half",
                topic_id=HALF,
                partitions=(
                    LED,
                    DescribeTopicPartitionsResponsePartition(
                        partition_index=1,
                        leader_id=-1,
                        leader_epoch=2,
                        replica_nodes=(3,),
                        isr_nodes=(),
                        eligible_leader_replicas=(),
                        last_known_elr=(3,),
                        offline_replicas=(3,),
                    ),
                ),
                topic_authorized_operations=TOPIC_OPERATIONS,
            ),
        ),
        next_cursor=None,
    )


def test_a_replica_that_does_not_work_on_a_living_broker_is_offline() -> None:
    (topic,) = described("flights", failed=[(1, FLIGHTS, 0)]).topics
    assert topic.partitions == (replace(LED, offline_replicas=(1,)),)


def test_topics_that_do_not_exist_are_named_in_their_place() -> None:
    found = described("half", "no such", "missing", "flights", "half")
    assert [(t.name, t.error_code) for t in found.topics] == [
        ("flights", ErrorCode.NONE),
        ("half", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no such", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]


def wide() -> ClusterImage:
    cluster = image()
    led = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1)
    for number, name in enumerate(("a", "b", "c")):
        cluster.replay(
            TopicCreated(topic=name, topic_id=UUID(int=number + 1), partitions=(led,) * 3)
        )
    return cluster


@pytest.mark.parametrize("by_server", [True, False])
def test_pages_join_up_to_everything_whatever_their_size(by_server: bool) -> None:
    cluster = wide()
    for size in range(1, 14):
        limits = {"server_limit": size} if by_server else {"limit": size}
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        while True:
            page = described(cluster=cluster, cursor=cursor, **limits)
            numbers = [(name, n) for name, parts in shape(page) for n in parts]
            assert 0 < len(numbers) <= size
            seen += numbers
            if page.next_cursor is None:
                break
            assert len(numbers) == size
            cursor = (page.next_cursor.topic_name, page.next_cursor.partition_index)
        topics = (("a", 3), ("b", 3), ("c", 3), ("flights", 1), ("half", 2))
        assert seen == [(name, n) for name, count in topics for n in range(count)]


def test_a_page_ends_inside_a_topic_or_before_the_next_one() -> None:
    cluster = wide()
    inside = described(cluster=cluster, limit=4)
    assert shape(inside) == [("a", [0, 1, 2]), ("b", [0])]
    assert inside.next_cursor == ResponseCursor(topic_name="b", partition_index=1)
    before = described("a", "b", cluster=cluster, limit=3)
    assert (shape(before), before.next_cursor) == (
        [("a", [0, 1, 2])],
        ResponseCursor(topic_name="b", partition_index=0),
    )
    assert shape(described("a", "b", cluster=cluster, cursor=("b", 1))) == [("b", [1, 2])]


def test_a_cursor_at_a_deleted_topic_or_behind_the_last_partition_goes_on_after_it() -> None:
    cluster = wide()
    assert shape(described(cluster=cluster, cursor=("aa", 2), limit=3)) == [("b", [0, 1, 2])]
    assert shape(described("a", "b", cluster=cluster, cursor=("a", 7), limit=3)) == [
        ("a", []),
        ("b", [0, 1, 2]),
    ]


def test_a_limit_below_one_is_one_and_a_negative_cursor_is_refused() -> None:
    assert shape(described("half", limit=-5)) == [("half", [0])]
    refused = described("half", cursor=("half", -1))
    assert [(t.name, t.error_code) for t in refused.topics] == [("half", ErrorCode.INVALID_REQUEST)]
