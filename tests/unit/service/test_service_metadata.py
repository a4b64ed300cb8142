"""Metadata and DescribeCluster from a cluster image, in every version."""

from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import BrokerRegistered, ClusterImage, PartitionImage, TopicCreated
from sparklog.service import describe_cluster, metadata
from sparklog.wire.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.service.small_node import FLIGHTS, HALF, ask_once, image

NODES = (
    MetadataResponseBroker(node_id=1, host="host1", port=9001),
    MetadataResponseBroker(node_id=2, host="host2", port=9002),
    MetadataResponseBroker(node_id=0, host="control", port=9000),
)
LED = MetadataResponsePartition(
    partition_index=0, leader_id=1, leader_epoch=4, replica_nodes=(1,), isr_nodes=(1,)
)
LOST = MetadataResponsePartition(
    error_code=ErrorCode.LEADER_NOT_AVAILABLE,
    partition_index=1,
    leader_id=-1,
    leader_epoch=2,
    replica_nodes=(3,),
    offline_replicas=(3,),
)
FLIGHTS_TOPIC = MetadataResponseTopic(name="flights", topic_id=FLIGHTS, partitions=(LED,))
HALF_TOPIC = MetadataResponseTopic(name="half", topic_id=HALF, partitions=(LED, LOST))


def ask_metadata(
    request: MetadataRequest, version: int = 13, cluster: ClusterImage | None = None
) -> MetadataResponse:
    whole = cluster or image()
    response = ask_once([metadata.handler(lambda: whole)], request, version)
    assert isinstance(response, MetadataResponse)
    return response


def named(*names: str) -> tuple[MetadataRequestTopic, ...]:
    return tuple(MetadataRequestTopic(name=name) for name in names)


def outcome(response: MetadataResponse) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in response.topics]


def test_the_newest_version_tells_everything() -> None:
    assert ask_metadata(MetadataRequest(topics=None)) == MetadataResponse(
        brokers=NODES,
        cluster_id="c1",
        controller_id=0,
        topics=(FLIGHTS_TOPIC, HALF_TOPIC),
    )


@pytest.mark.parametrize("version", range(14))
def test_every_version_answers_for_a_topic(version: int) -> None:
    response = ask_metadata(MetadataRequest(topics=named("flights")), version)
    (topic,) = response.topics
    assert response.brokers == NODES
    assert (topic.name, topic.error_code) == ("flights", 0)
    assert [(p.partition_index, p.leader_id) for p in topic.partitions] == [(0, 1)]
    assert response.controller_id == (0 if version >= 1 else -1)
    assert response.cluster_id == ("c1" if version >= 2 else None)


def test_an_empty_list_means_all_in_version_0_and_none_later() -> None:
    assert outcome(ask_metadata(MetadataRequest(topics=()), 0)) == [("flights", 0), ("half", 0)]
    assert outcome(ask_metadata(MetadataRequest(topics=()), 1)) == []
    assert outcome(ask_metadata(MetadataRequest(topics=None), 1)) == [("flights", 0), ("half", 0)]


def test_topics_are_found_by_id_and_unknown_ids_are_told() -> None:
    nobody = UUID(int=99)
    topics = (MetadataRequestTopic(topic_id=HALF), MetadataRequestTopic(topic_id=nobody))
    assert ask_metadata(MetadataRequest(topics=topics), 12).topics == (
        HALF_TOPIC,
        MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=nobody),
    )


def test_ids_are_refused_before_version_12() -> None:
    topics = (MetadataRequestTopic(topic_id=HALF, name="half"),)
    (topic,) = ask_metadata(MetadataRequest(topics=topics), 10).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


def test_unknown_and_illegal_names_are_told_apart() -> None:
    wanted = MetadataRequest(topics=named("missing", "no spaces", "", "x" * 250, "..", "flights"))
    assert outcome(ask_metadata(wanted)) == [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("flights", 0),
    ]


def test_a_topic_that_is_asked_for_twice_is_answered_once() -> None:
    assert outcome(ask_metadata(MetadataRequest(topics=named("half", "half")))) == [("half", 0)]


def test_operations_are_told_when_asked_for() -> None:
    request = MetadataRequest(
        topics=named("flights"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response = ask_metadata(request, 8)
    assert response.topics[0].topic_authorized_operations == 3576
    assert response.cluster_authorized_operations == 8096


def test_before_a_controller_is_known_none_is_named() -> None:
    response = ask_metadata(MetadataRequest(topics=None), cluster=ClusterImage())
    assert (response.brokers, response.controller_id) == ((), -1)


class Creator:
    """Creates topics in the image, or refuses."""

    def __init__(self, error: KafkaError | None = None, *, visible: bool = True) -> None:
        self.image = image()
        self.names: list[str] = []
        self._error = error
        self._visible = visible

    async def create(self, name: str) -> None:
        self.names.append(name)
        if self._error:
            raise self._error
        if self._visible:
            led = PartitionImage(replicas=(2,), isr=(2,), last_known=(2,), leader=2)
            self.image.replay(TopicCreated(topic=name, topic_id=UUID(int=7), partitions=(led,)))

    def ask(self, request: MetadataRequest, version: int = 13) -> list[tuple[str | None, int]]:
        handler = metadata.handler(lambda: self.image, self.create)
        response = ask_once([handler], request, version)
        assert isinstance(response, MetadataResponse)
        return outcome(response)


def test_missing_topics_are_created_when_the_client_allows_it() -> None:
    creator = Creator()
    wanted = named("new", "flights", "bad name", "__consumer_offsets")
    assert creator.ask(MetadataRequest(topics=wanted)) == [
        ("new", 0),
        ("flights", 0),
        ("bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__consumer_offsets", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert creator.names == ["new"]


def test_missing_topics_are_not_created_against_the_client_s_will() -> None:
    creator = Creator()
    request = MetadataRequest(topics=named("new"), allow_auto_topic_creation=False)
    assert creator.ask(request) == [("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert creator.ask(MetadataRequest(topics=None)) == [("flights", 0), ("half", 0)]
    assert creator.names == []
    assert creator.ask(request, version=3) == [("new", 0)]  # too old to say


def test_a_created_topic_that_is_not_in_the_image_yet_has_no_leader() -> None:
    creator = Creator(visible=False)
    request = MetadataRequest(topics=named("new"))
    assert creator.ask(request) == [("new", ErrorCode.LEADER_NOT_AVAILABLE)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_refused_creation_is_told(error: ErrorCode, told: ErrorCode) -> None:
    creator = Creator(KafkaError(error))
    assert creator.ask(MetadataRequest(topics=named("new"))) == [("new", told)]


def test_describe_cluster_lists_fenced_brokers_on_request() -> None:
    handlers = [describe_cluster.handler(image)]
    alive = (
        DescribeClusterBroker(broker_id=1, host="host1", port=9001),
        DescribeClusterBroker(broker_id=2, host="host2", port=9002),
    )
    fenced = DescribeClusterBroker(broker_id=3, host="host3", port=9003, is_fenced=True)
    control = DescribeClusterBroker(broker_id=0, host="control", port=9000)
    for version in range(3):
        assert ask_once(handlers, DescribeClusterRequest(), version) == DescribeClusterResponse(
            cluster_id="c1", controller_id=0, brokers=(*alive, control)
        )
    request = DescribeClusterRequest(include_fenced_brokers=True)
    assert ask_once(handlers, request, 2) == DescribeClusterResponse(
        cluster_id="c1", controller_id=0, brokers=(*alive, fenced, control)
    )


def test_racks_are_told_where_brokers_have_one() -> None:
    cluster = image()
    broker = cluster.brokers[1]
    cluster.replay(BrokerRegistered(broker=replace(broker, rack="r1"), clean=True))
    listed = ask_once([describe_cluster.handler(lambda: cluster)], DescribeClusterRequest(), 2)
    assert isinstance(listed, DescribeClusterResponse)
    assert [(b.broker_id, b.rack) for b in listed.brokers] == [(1, "r1"), (2, None), (0, None)]
    for version in (1, 13):
        nodes = ask_metadata(MetadataRequest(topics=()), version, cluster).brokers
        assert [(b.node_id, b.rack) for b in nodes] == [(1, "r1"), (2, None), (0, None)]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_describe_cluster_refuses_other_endpoint_types(endpoint_type: int, code: int) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    response = ask_once([describe_cluster.handler(image)], request, 1)
    assert isinstance(response, DescribeClusterResponse)
    assert response.error_code == code
