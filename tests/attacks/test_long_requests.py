"""One request with as many items as a request may have does not freeze a node.

The attacks: one resource, one topic or one partition 99,000 times, 49,500 unknown topics, 9,000
topics that cannot be created, and several such requests at once.  While a node answers, everybody
else is served, so that no broker is fenced.
"""

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sparklog.wire.protocol.schema import Request
from tests.attacks.attack_rig import CONTROL_PLANE, MIB, AttackedCluster, Node
from tests.support.raw_wire import RawWire, framed

ITEMS = 99_000
#: CPU time between a ping and its answer: a few slices, with a margin for a machine that is slow.
HOLD_S_MAX = 0.5
RSS_GROWTH_MAX = 250 * MIB
AT_ONCE = 4


def attacks(topic: str) -> dict[str, tuple[Request, int]]:
    """Requests, and their versions, by what they do."""
    resource = DescribeConfigsResource(resource_type=2, resource_name=topic)
    batches = (PartitionProduceData(index=0, records=b"x" * 62),) * ITEMS
    unknown = tuple(
        FetchTopic(topic=f"unknown-{n}", partitions=(FetchPartition(),)) for n in range(ITEMS // 2)
    )
    illegal = tuple(
        CreatableTopic(name=f"no name {n}", num_partitions=1, replication_factor=1)
        for n in range(9_000)
    )
    produced = TopicProduceData(name=topic, partition_data=batches)
    return {
        "settings of one topic": (DescribeConfigsRequest(resources=(resource,) * ITEMS), 1),
        "batches of one partition": (ProduceRequest(acks=1, topic_data=(produced,)), 9),
        "unknown topics": (FetchRequest(topics=unknown), 12),
        "one topic": (MetadataRequest(topics=(MetadataRequestTopic(name=topic),) * ITEMS), 9),
        "topics that cannot be": (CreateTopicsRequest(topics=illegal, timeout_ms=60_000), 7),
    }


@pytest.mark.parametrize("name", sorted(attacks("t")))
def test_a_long_request_holds_nobody_up(cluster: AttackedCluster, name: str) -> None:
    topic = cluster.new_topic()
    request, version = attacks(topic)[name]
    frame = framed(encode_request(request, version, 1, "attacker"))
    node = cluster.nodes[CONTROL_PLANE] if name == "unknown topics" else cluster.leader(topic)
    with cluster.watched(node) as costs, RawWire(node.address) as wire:
        wire.send(frame)
        answer = wire.frame()
    assert answer is not None
    assert len(answer) < 10 * MIB
    check_costs(node, costs[node.node_id].hold_cpu_s_max, costs[node.node_id].rss_growth_bytes_max)


def test_many_long_requests_at_once_hold_nobody_up(cluster: AttackedCluster) -> None:
    topic = cluster.new_topic()
    request, version = attacks(topic)["one topic"]
    frame = framed(encode_request(request, version, 1, "attacker"))
    node = cluster.nodes[CONTROL_PLANE]
    wires = [RawWire(node.address) for _ in range(AT_ONCE)]
    try:
        with cluster.watched(node) as costs:
            for wire in wires:
                wire.send(frame)
            answers = [wire.frame() for wire in wires]
    finally:
        for wire in wires:
            wire.__exit__()
    assert None not in answers
    check_costs(node, costs[node.node_id].hold_cpu_s_max, costs[node.node_id].rss_growth_bytes_max)


def test_a_partition_that_is_named_twice_is_not_written_to(cluster: AttackedCluster) -> None:
    topic = cluster.new_topic()
    request, version = attacks(topic)["batches of one partition"]
    with RawWire(cluster.leader(topic).address) as wire:
        [answered] = wire.ask(request, version).responses
        [result] = answered.partition_responses
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert wire.fetch(topic) == (0, b"")


def check_costs(node: Node, hold_s: float, rss_growth: int) -> None:
    assert hold_s < HOLD_S_MAX, (node, hold_s)
    assert rss_growth < RSS_GROWTH_MAX, (node, rss_growth)
