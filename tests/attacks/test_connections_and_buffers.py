"""Connections cost a node little, whatever length they declare and however long they hold on.

The attacks: lengths that lie, connections that stay idle, requests that stop half-way, and clients
that wait for memory behind them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.messages.api_versions import ApiVersionsRequest
from sparklog.wire.records.builder import Record, encode_batch
from tests.attacks.attack_rig import MIB, AttackedCluster, Node
from tests.support.raw_wire import RawWire, framed

#: Below what any node takes under ``ulimit -n 1024``.
CONNECTIONS = 150
DECLARED = (100 * MIB).to_bytes(4, "big")
HOLD_CPU_S_MAX = 0.5
#: Memory that a node needs for a moment, besides what an attack may cost.
NOISE_BYTES = 4 * MIB


@contextmanager
def connections(node: Node, count: int, first: bytes = b"") -> Iterator[list[RawWire]]:
    with ExitStack() as stack:
        wires = [stack.enter_context(RawWire(node.address)) for _ in range(count)]
        for wire in wires:
            wire.send(first)
        yield wires


def pinged(wires: list[RawWire]) -> None:
    """The node has received whatever was sent before."""
    for wire in wires:
        wire.send(framed(encode_request(ApiVersionsRequest(), 0, 1, "raw")))
    for wire in wires:
        assert wire.frame() is not None


def test_lengths_that_lie_cost_what_was_sent_and_nothing_after_the_close(
    cluster: AttackedCluster,
) -> None:
    node = cluster.brokers[0]
    with cluster.watched(node) as costs:
        for sent in (0, 1, 60_000):
            for _ in range(3):
                with connections(node, CONNECTIONS, DECLARED + bytes(sent)):
                    pass
    cost = costs[node.node_id]
    # 60,000 bytes of each may have arrived before the close; the old price was a MiB of each.
    assert cost.rss_growth_bytes_max < CONNECTIONS * 60_000 + NOISE_BYTES
    assert cost.hold_cpu_s_max < HOLD_CPU_S_MAX


def test_idle_connections_cost_less_than_ten_kilobytes_each(cluster: AttackedCluster) -> None:
    node = cluster.control_plane
    with cluster.watched(node) as costs, connections(node, CONNECTIONS) as wires:
        pinged(wires)
        pinged(wires)
    assert costs[node.node_id].rss_growth_bytes_max < CONNECTIONS * 10_000 + MIB


def test_half_requests_hold_up_no_others_and_lose_their_place(cluster: AttackedCluster) -> None:
    """100 clients send a part of the largest request; the first to be served is closed for it."""
    topic = cluster.new_topic()
    node = cluster.leader(topic)
    part = DECLARED + bytes(200_000)
    records = encode_batch([Record(value=bytes(900_000))])
    with cluster.watched(node) as costs, connections(node, 100, part) as wires:
        for number in range(5):
            with RawWire(node.address) as honest:
                answer = honest.produce(topic, records, acks=-1)
            assert (answer.error_code, answer.base_offset) == (0, number)
        assert wires[0].is_closed_by_the_node()
    cost = costs[node.node_id]
    assert cost.rss_growth_bytes_max < 100 * 20_000 + 5 * len(records) + 4 * NOISE_BYTES
    assert cost.hold_cpu_s_max < HOLD_CPU_S_MAX
