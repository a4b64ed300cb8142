"""Metadata, DescribeCluster, ApiVersions and FindCoordinator, as Kafka answers them."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from sparklog.wire.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.protocol.schema import Request
from tests.peers.both import Both, Side
from tests.peers.deviations import (
    CONTROLLER_ID,
    CONTROLLERS_API,
    FEWER_APIS,
    KAFKA_BREAKS,
    NO_FEATURES,
    NO_MORE_PAGES,
    NODE_ZERO,
)

VERSIONS = range(MetadataRequest.MAX_VERSION + 1)
#: Other tests make topics too, and tools leave internal ones.
OTHER_TOPICS = (r"topics\[(?!a-known-topic\]).*",)
NOT_AN_ID = UUID(int=12345)


def named(*names: str | None, **options: bool) -> MetadataRequest:
    return MetadataRequest(topics=tuple(MetadataRequestTopic(name=n) for n in names), **options)


@pytest.fixture(scope="module")
def known(both: Both) -> str:
    return both.create("a-known-topic", 3)


def test_topics_by_name(each_node: Both, known: str) -> None:
    each_node.same(named(known), 0, NODE_ZERO)
    each_node.same(named(known), VERSIONS[1:], NODE_ZERO, CONTROLLER_ID)


def test_all_topics(each_node: Both, known: str) -> None:
    del known
    every = MetadataRequest(topics=None)
    each_node.same(MetadataRequest(topics=()), 0, NODE_ZERO, where=OTHER_TOPICS)
    each_node.same(every, VERSIONS[1:], NODE_ZERO, CONTROLLER_ID, where=OTHER_TOPICS)


def test_no_topics(each_node: Both) -> None:
    each_node.same(MetadataRequest(topics=()), VERSIONS[1:], NODE_ZERO, CONTROLLER_ID)


@pytest.mark.parametrize("name", ["not-there", "", "bad name", "..", "x" * 250, "über"])
def test_topics_that_are_not_there(each_node: Both, name: str) -> None:
    request = named(name, allow_auto_topic_creation=False)
    each_node.same(request, VERSIONS[4:], NODE_ZERO, CONTROLLER_ID)


def test_a_topic_named_twice(each_node: Both, known: str) -> None:
    each_node.same(named(known, known), 9, NODE_ZERO, CONTROLLER_ID)


def test_authorized_operations(each_node: Both, known: str) -> None:
    topics = named(known, include_topic_authorized_operations=True)
    each_node.same(topics, VERSIONS[8:], NODE_ZERO, CONTROLLER_ID)
    cluster = replace(topics, include_cluster_authorized_operations=True)
    each_node.same(cluster, (8, 9, 10), NODE_ZERO, CONTROLLER_ID)


def test_topics_by_id(each_node: Both, known: str) -> None:
    def request(side: Side) -> Request:
        return MetadataRequest(topics=(MetadataRequestTopic(topic_id=side.ids[known]),))

    each_node.same(request, (12, 13), NODE_ZERO, CONTROLLER_ID)
    unknown = MetadataRequest(topics=(MetadataRequestTopic(topic_id=NOT_AN_ID),))
    each_node.same(unknown, (12, 13), NODE_ZERO, CONTROLLER_ID)


def test_ids_before_they_could_be_asked_for(each_node: Both) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name="x", topic_id=NOT_AN_ID),))
    each_node.same(request, (10, 11))


def test_a_topic_without_name_and_id(each_node: Both) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(),))
    each_node.same(request, 10)
    each_node.same(request, 12, KAFKA_BREAKS, where=("brokers.*", "cluster_id", "controller_id"))


def test_topics_that_are_created_by_being_asked_for(each_node: Both) -> None:
    name = "created-by-" + each_node.node.replace(" ", "-")
    kafka, ours = each_node.ask(named(name, allow_auto_topic_creation=True), 9)
    assert kafka.topics[0].error_code in (0, 3, 5)
    assert ours.topics[0].error_code in (0, 5)
    each_node.await_topic(name)
    each_node.same(named(name), 9, NODE_ZERO, CONTROLLER_ID)


@pytest.mark.parametrize("operations", [False, True])
def test_describe_cluster(each_node: Both, operations: bool) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=operations)
    each_node.same(request, (0, 1, 2), NODE_ZERO, CONTROLLER_ID)
    fenced = replace(request, include_fenced_brokers=True)
    each_node.same(fenced, 2, NODE_ZERO, CONTROLLER_ID)


def test_describe_the_controllers(each_node: Both) -> None:
    for endpoint_type in (2, 3):
        request = DescribeClusterRequest(endpoint_type=endpoint_type)
        each_node.same(request, 1)


def test_api_versions(each_node: Both) -> None:
    request = ApiVersionsRequest(client_software_name="peer", client_software_version="1.0")
    apis = (FEWER_APIS, CONTROLLERS_API) if each_node.node == "control plane" else (FEWER_APIS,)
    each_node.same(request, (0, 1, 2), *apis)
    each_node.same(request, (3, 4), *apis, NO_FEATURES)


@pytest.mark.parametrize("name", ["", "with space", "-"])
def test_api_versions_for_a_client_with_a_bad_name(each_node: Both, name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    each_node.same(request, 3)


# -- DescribeTopicPartitions


def describing(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> Request:
    topics = tuple(TopicRequest(name=name) for name in names)
    return DescribeTopicPartitionsRequest(
        topics=topics, response_partition_limit=limit, cursor=cursor
    )


def test_pages_of_topics(both: Both, known: str) -> None:
    other = both.create("another-known-topic", 2)
    for names in ((known,), (known, other), (other, known, "not-there"), (known, known)):
        for limit in (2000, 5, 4, 3, 2, 1):
            both.same(describing(*names, limit=limit), 0)
    for topic, index in ((known, 0), (known, 2), (known, 3), (other, 1)):
        cursor = Cursor(topic_name=topic, partition_index=index)
        both.same(describing(known, other, limit=2, cursor=cursor), 0)
    behind = describing(known, other, cursor=Cursor(topic_name="b"))
    both.same(behind, 0, NO_MORE_PAGES)


def test_pages_of_what_is_not_there(both: Both, known: str) -> None:
    for name in ("not-there", "bad name"):
        both.same(describing(name), 0)
        both.same(describing(known, name), 0)
    operations = (r"topics\[.*\]\.topic_authorized_operations",)
    both.same(describing(""), 0, KAFKA_BREAKS, where=operations)
    for limit in (0, -1):
        both.same(describing(known, limit=limit), 0)
    both.same(describing(known, cursor=Cursor(topic_name=known, partition_index=-1)), 0)
    both.same(describing(known, cursor=Cursor(topic_name=known, partition_index=9)), 0)
