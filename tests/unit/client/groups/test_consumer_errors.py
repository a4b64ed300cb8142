"""What a consumer says about misuse, before it has asked any broker."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.client.groups import AsyncConsumer, Consumer, GroupConsumerOptions
from sparklog.errors import ClosedError, ErrorCode, KafkaError, SparklogError
from sparklog.types import Isolation, OffsetSpec, TopicPartition
from tests.support.free_ports import free_ports

T0 = TopicPartition("t", 0)


@pytest.fixture
def nowhere() -> str:
    """An address where nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def alone(nowhere: str) -> Iterator[Consumer]:
    """A consumer without a group."""
    with Consumer(nowhere) as consumer:
        yield consumer


@pytest.fixture
def member(nowhere: str) -> Iterator[Consumer]:
    """A consumer with a group that it cannot reach."""
    consumer = Consumer(nowhere, group_id="g", request_timeout_ms=200, default_api_timeout_ms=300)
    yield consumer
    consumer.close(0.5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group": "g"}, "'group' is not an option of a consumer; did you mean 'group_id'?"),
        ({"xyz": 1}, "'xyz' is not an option of a consumer: group_id, "),
    ],
)
def test_an_unknown_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as refused:
        GroupConsumerOptions.of(options)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"auto_offset_reset": "first"}, "auto_offset_reset='first' is not one of earliest, lat"),
        ({"isolation_level": "dirty"}, "is not one of read_committed, read_uncommitted"),
        ({"partition_assignment_strategy": ["fair"]}, "'fair' is not an assignor: choose from"),
        ({"partition_assignment_strategy": "range"}, "is a list of names, not one string"),
        ({"group_id": ""}, "group_id is empty"),
        ({"group_instance_id": "i"}, "group_instance_id needs a group_id"),
        ({"fetch_max_bytes": -1}, "fetch_max_bytes=-1 is negative"),
        ({"heartbeat_interval_ms": 45_000}, "must be less than session_timeout_ms=45000"),
    ],
)
def test_a_bad_value_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as refused:
        GroupConsumerOptions.of(options)
    assert words in str(refused.value)


def test_the_defaults_are_java_s_but_for_the_isolation() -> None:
    options = GroupConsumerOptions(group_id="g")
    assert (options.reset, options.isolation) == (OffsetSpec.LATEST, Isolation.READ_COMMITTED)
    assert [each.name for each in options.member_settings.assignors] == [
        "range",
        "cooperative-sticky",
    ]
    assert options.record_options.isolation is Isolation.READ_COMMITTED


def test_subscriptions_and_commits_need_a_group(alone: Consumer) -> None:
    for call in (
        lambda: alone.subscribe(["t"]),
        alone.commit,
        alone.commit_async,
        lambda: alone.committed([T0]),
    ):
        with pytest.raises(KafkaError, match="needs a group: give the consumer a group_id"):
            call()


def test_a_poll_needs_something_to_poll(alone: Consumer) -> None:
    with pytest.raises(KafkaError, match="nothing to poll: call subscribe or assign first"):
        alone.poll(0)


def test_subscribe_and_assign_exclude_each_other(member: Consumer) -> None:
    member.subscribe(["t"])
    with pytest.raises(KafkaError, match="call unsubscribe before assign"):
        member.assign([T0])
    member.unsubscribe()
    member.assign([T0])
    with pytest.raises(KafkaError, match="call unsubscribe before subscribe"):
        member.subscribe(["t"])


def test_a_subscription_names_topics(member: Consumer) -> None:
    with pytest.raises(ValueError, match=r"takes a list of topics: subscribe\(\['t'\]\)"):
        member.subscribe("t")
    with pytest.raises(ValueError, match="needs the name of a topic"):
        member.subscribe([])
    with pytest.raises(ValueError, match="topics or a pattern, not both"):
        member.subscribe(["t"], pattern="t.*")


def test_a_commit_outside_of_the_group_is_refused(member: Consumer) -> None:
    member.subscribe(["t"])
    with pytest.raises(KafkaError, match="is no member of the group 'g' at the moment") as refused:
        member.commit({T0: 1})
    assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_cluster_that_cannot_be_reached_gives_empty_polls(member: Consumer) -> None:
    member.subscribe(["t"])
    assert member.poll(0.2) == []
    assert member.poll_arrow(0).num_rows == 0


def test_partitions_that_are_not_assigned_have_no_position(member: Consumer) -> None:
    for call in (lambda: member.position(T0), lambda: member.seek(T0, 1)):
        with pytest.raises(KafkaError, match="t-0 is not assigned"):
            call()
    with pytest.raises(KafkaError, match="t-0 is not assigned"):
        member.pause(T0)
    member.assign([T0])
    member.pause(T0)
    assert (member.paused, member.assignment) == ({T0}, {T0})
    with pytest.raises(SparklogError, match=r"can be reached|had no position"):
        member.position(T0)
    member.resume(T0)
    assert member.paused == set()


def test_a_closed_consumer_says_so(nowhere: str) -> None:
    consumer = Consumer(nowhere, group_id="g")
    consumer.close()
    consumer.close()
    for call in (lambda: consumer.poll(0), lambda: consumer.subscribe(["t"]), consumer.commit):
        with pytest.raises(ClosedError, match="the consumer is closed"):
            call()
    assert list(consumer) == []


def test_the_coroutines_refuse_the_same(nowhere: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(nowhere) as consumer:
            with pytest.raises(KafkaError, match="give the consumer a group_id"):
                consumer.subscribe(["t"])
            with pytest.raises(KafkaError, match="nothing to poll"):
                await consumer.poll(0)

    asyncio.run(main())
