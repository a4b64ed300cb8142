"""CreateTopics, CreatePartitions and DeleteTopics, as Kafka answers them."""

from typing import Any
from uuid import UUID

import pytest

from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.protocol.schema import Request
from tests.peers.both import TIMEOUT_MS, Both, Side

CREATE_VERSIONS = range(CreateTopicsRequest.MIN_VERSION, CreateTopicsRequest.MAX_VERSION + 1)
PARTITIONS_VERSIONS = range(CreatePartitionsRequest.MAX_VERSION + 1)
BY_NAME = range(DeleteTopicsRequest.MIN_VERSION, 6)
BY_ID = 6
#: A topic's settings are compared in test_configs.
CONFIGS = (r"topics\[.*\]\.configs.*",)
NEW_ID = (r"topics\[.*\]\.topic_id",)


def creating(*topics: CreatableTopic, **more: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS, **more)


def topic(
    name: str, partitions: int = 1, replicas: int = 1, configs: Any = (), assigned: Any = ()
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in configs),
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assigned
        ),
    )


@pytest.fixture
def word(each_node: Both) -> str:
    return each_node.node.replace(" ", "-")


def test_create(each_node: Both, word: str) -> None:
    for version in CREATE_VERSIONS:
        request = creating(topic(f"made-by-{word}-{version}", 2))
        each_node.same(request, version, where=CONFIGS + NEW_ID)


def test_create_with_the_defaults(each_node: Both, word: str) -> None:
    request = creating(topic(f"defaults-by-{word}", -1, -1))
    each_node.same(request, 7, where=CONFIGS + NEW_ID)


def test_only_validate(each_node: Both, word: str) -> None:
    request = creating(topic(f"only-validated-by-{word}", 3), validate_only=True)
    each_node.same(request, CREATE_VERSIONS, where=CONFIGS + NEW_ID)


def test_several_of_which_some_are_refused(each_node: Both, word: str) -> None:
    request = creating(
        topic(f"fine-by-{word}"), topic(f"not fine by {word}"), topic(f"none-by-{word}", 0)
    )
    each_node.same(request, 7, where=CONFIGS + NEW_ID)


@pytest.mark.parametrize(
    "wanted",
    [
        topic("an-existing-topic"),
        topic(""),
        topic("."),
        topic(".."),
        topic("with space"),
        topic("x" * 249 + "yz"),
        topic("über"),
        topic("no-partitions", 0),
        topic("less-than-none", -2),
        topic("no-replicas", 1, 0),
        topic("negative-replicas", 1, -2),
        topic("more-replicas-than-brokers", 1, 2),
        topic("both-given", 1, 1, assigned=[(0, (1,))]),
        topic("assigned-to-nobody", -1, -1, assigned=[(0, ())]),
        topic("assigned-to-a-stranger", -1, -1, assigned=[(0, (99,))]),
        topic("assigned-twice", -1, -1, assigned=[(0, (1, 1))]),
        topic("assigned-with-a-gap", -1, -1, assigned=[(0, (1,)), (2, (1,))]),
        topic("assigned-the-same-twice", -1, -1, assigned=[(0, (1,)), (0, (1,))]),
        topic("assigned-unevenly", -1, -1, assigned=[(0, (1,)), (1, (1, 99))]),
        topic("unknown-config", configs=[("no.such.thing", "1")]),
        topic("bad-config", configs=[("retention.ms", "soon")]),
        topic("config-out-of-range", configs=[("retention.ms", "-5")]),
        topic("null-config", configs=[("retention.ms", None)]),
        topic("bad-choice", configs=[("message.timestamp.type", "Whenever")]),
    ],
    ids=lambda wanted: wanted.name[:30],
)
def test_what_is_refused(each_node: Both, wanted: CreatableTopic) -> None:
    both = each_node
    if "an-existing-topic" not in both.ours.ids:
        both.create("an-existing-topic")
    both.same(creating(wanted), (2, 5, 7), where=CONFIGS)
    both.same(creating(wanted, validate_only=True), (7,), where=CONFIGS)


def test_the_same_twice_in_one_request(each_node: Both) -> None:
    request = creating(topic("twice"), topic("twice"), topic("once", 0))
    each_node.same(request, 7, where=CONFIGS)


def test_a_name_that_collides(each_node: Both) -> None:
    both = each_node
    if "with.dot_and_line" not in both.ours.ids:
        both.create("with.dot_and_line")
    both.same(creating(topic("with_dot.and.line")), 7, where=CONFIGS)


def test_an_assignment(each_node: Both, word: str) -> None:
    wanted = topic(f"assigned-by-{word}", -1, -1, assigned=[(1, (1,)), (0, (1,))])
    each_node.same(creating(wanted), 7, where=CONFIGS + NEW_ID)


# -- more partitions


def growing(name: str, count: int, assigned: Any = None, **more: Any) -> CreatePartitionsRequest:
    assignments = None
    if assigned is not None:
        assignments = tuple(CreatePartitionsAssignment(broker_ids=brokers) for brokers in assigned)
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=(wanted,), timeout_ms=TIMEOUT_MS, **more)


def test_more_partitions(each_node: Both, word: str) -> None:
    name = each_node.create(f"growing-by-{word}")
    for version in PARTITIONS_VERSIONS:
        each_node.same(growing(name, 9, validate_only=True), version)
        each_node.same(growing(name, 2 + version), version)
    each_node.same(growing(name, 7, [(1,), (1,)]), 3)


@pytest.mark.parametrize(
    ("name", "count", "assigned"),
    [
        ("not-there", 3, None),
        ("", 3, None),
        ("grown", 2, None),
        ("grown", 1, None),
        ("grown", 0, None),
        ("grown", -1, None),
        ("grown", 4, [(1,)]),
        ("grown", 3, [(1,), (1,)]),
        ("grown", 3, [()]),
        ("grown", 3, [(99,)]),
        ("grown", 3, [(1, 1)]),
        ("grown", 3, []),
        ("grown", 2, [(1,)]),
    ],
)
def test_partitions_that_are_refused(each_node: Both, name: str, count: int, assigned: Any) -> None:
    if "grown" not in each_node.ours.ids:
        each_node.create("grown", 2)
    each_node.same(growing(name, count, assigned), (0, 3))


def test_the_same_topic_twice_for_partitions(each_node: Both) -> None:
    wanted = CreatePartitionsTopic(name="grown", count=5)
    request = CreatePartitionsRequest(topics=(wanted, wanted), timeout_ms=TIMEOUT_MS)
    each_node.same(request, 3)


# -- deletion


def test_delete_by_name(each_node: Both, word: str) -> None:
    for version in BY_NAME:
        name = each_node.create(f"doomed-by-{word}-{version}")
        request = DeleteTopicsRequest(topic_names=(name, "not-there"), timeout_ms=TIMEOUT_MS)
        each_node.same(request, version)
        again = DeleteTopicsRequest(topic_names=(name,), timeout_ms=TIMEOUT_MS)
        each_node.same(again, version)


def test_delete_by_id_or_name(each_node: Both, word: str) -> None:
    first = each_node.create(f"doomed-by-id-by-{word}")
    second = each_node.create(f"doomed-by-name-by-{word}")

    def request(side: Side) -> Request:
        return DeleteTopicsRequest(
            topics=(
                DeleteTopicState(topic_id=side.ids[first]),
                DeleteTopicState(name=second),
                DeleteTopicState(topic_id=UUID(int=77)),
                DeleteTopicState(name="not-there"),
            ),
            timeout_ms=TIMEOUT_MS,
        )

    each_node.same(request, BY_ID)
    each_node.same(request, BY_ID)


def test_delete_by_name_and_id_at_once(each_node: Both, word: str) -> None:
    name = each_node.create(f"named-and-numbered-by-{word}")

    def request(side: Side) -> Request:
        state = DeleteTopicState(name=name, topic_id=side.ids[name])
        return DeleteTopicsRequest(topics=(state, DeleteTopicState()), timeout_ms=TIMEOUT_MS)

    each_node.same(request, BY_ID)


def test_delete_the_same_twice_in_one_request(each_node: Both, word: str) -> None:
    name = each_node.create(f"doomed-twice-by-{word}")
    request = DeleteTopicsRequest(topic_names=(name, name), timeout_ms=TIMEOUT_MS)
    each_node.same(request, 5)

    def by_both(side: Side) -> Request:
        states = (DeleteTopicState(name=name), DeleteTopicState(topic_id=side.ids[name]))
        return DeleteTopicsRequest(topics=states, timeout_ms=TIMEOUT_MS)

    each_node.same(by_both, BY_ID)
