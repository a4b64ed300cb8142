"""A stranger without the cluster's secret cannot act as a member of the cluster.

The attacks: every private message, AlterPartition, a replica's Fetch, and proofs of membership that
are random, empty, made for another connection or reflected to the node that made them.
"""

import json

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.protocol import private
from sparklog.wire.protocol.codec import encode_request
from sparklog.wire.protocol.messages.alter_partition import AlterPartitionRequest
from sparklog.wire.protocol.schema import Request
from tests.attacks.attack_rig import CONTROL_PLANE, WITNESS_TOPIC, AttackedCluster, Node
from tests.support.raw_wire import RawWire, framed

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
#: A stranger may say these: they are the proof of membership itself.
DOOR = (private.MemberHelloRequest, private.MemberProofRequest)
#: Clients may say these, and strangers are clients.
FOR_CLIENTS = (
    private.ConsistentCutRequest,
    private.ReadRemoteSegmentsRequest,
    private.NodeStatusRequest,
)
MEMBERS_ONLY = [
    kind
    for kind in vars(private).values()
    if isinstance(kind, type)
    and issubclass(kind, Request)
    and kind is not Request
    and kind not in (*DOOR, *FOR_CLIENTS)
]


def test_every_private_message_is_refused_or_not_served(cluster: AttackedCluster) -> None:
    assert len(MEMBERS_ONLY) > 10
    for node in cluster.nodes.values():
        served = [kind for kind in MEMBERS_ONLY if is_refused(node, kind())]
        assert private.StopNodeRequest in served


def test_a_stranger_gets_numbers_of_a_node_and_nothing_else(cluster: AttackedCluster) -> None:
    for node in cluster.nodes.values():
        with RawWire(node.address) as wire:
            status = json.loads(wire.ask(private.NodeStatusRequest(), 0).status)
        assert status["connections"] > 0
        assert {type(value) for value in status.values()} == {int}


def test_a_stranger_cannot_propose_an_isr(cluster: AttackedCluster) -> None:
    for version in (2, 3):
        with RawWire(cluster.control_plane.address) as wire:
            answer = wire.ask(AlterPartitionRequest(broker_id=1), version)
            assert answer.error_code == REFUSED


def test_a_stranger_cannot_fetch_as_a_replica(cluster: AttackedCluster) -> None:
    leader = cluster.leader(WITNESS_TOPIC)
    for replica_id in (node.node_id for node in cluster.brokers):
        with RawWire(leader.address) as wire:
            code, records = wire.fetch(WITNESS_TOPIC, replica_id=replica_id)
            assert (code, records) == (REFUSED, b"")


@pytest.mark.parametrize("proof", [b"", b"\0" * 32, b"x" * 32, b"x" * 100_000])
def test_a_wrong_proof_leaves_a_stranger_a_stranger(cluster: AttackedCluster, proof: bytes) -> None:
    for node in cluster.nodes.values():
        with RawWire(node.address) as wire:
            wire.ask(private.MemberHelloRequest(nonce=b"n" * private.NONCE_BYTES), 0)
            assert wire.ask(private.MemberProofRequest(proof=proof), 0).error_code == REFUSED
            assert_is_a_stranger(wire)


def test_a_nodes_own_proof_does_not_prove_a_stranger(cluster: AttackedCluster) -> None:
    """The server's proof, reflected on the same connection and shown on another one."""
    for node in cluster.nodes.values():
        with RawWire(node.address) as first, RawWire(node.address) as second:
            hello = private.MemberHelloRequest(nonce=b"n" * private.NONCE_BYTES)
            shown = first.ask(hello, 0).proof
            second.ask(hello, 0)
            for wire in (first, second):
                answer = wire.ask(private.MemberProofRequest(proof=shown), 0)
                assert answer.error_code == REFUSED
                assert_is_a_stranger(wire)


def test_a_second_try_needs_a_new_hello(cluster: AttackedCluster) -> None:
    """One nonce allows one try, so that proofs cannot be guessed on a nonce that stands still."""
    node = cluster.nodes[CONTROL_PLANE]
    with RawWire(node.address) as wire:
        wire.ask(private.MemberHelloRequest(nonce=b"n" * private.NONCE_BYTES), 0)
        for _ in range(3):
            assert wire.ask(private.MemberProofRequest(proof=b"p" * 32), 0).error_code == REFUSED
        assert_is_a_stranger(wire)


def assert_is_a_stranger(wire: RawWire) -> None:
    assert wire.ask(private.StopNodeRequest(), 0).error_code == REFUSED


def is_refused(node: Node, request: Request) -> bool:
    """Whether a node answers with a refusal; False when it does not know the message."""
    with RawWire(node.address) as wire:
        wire.send(framed(encode_request(request, 0, 1, "stranger")))
        answer = wire.frame()
        if answer is None:
            return False
        # A private response begins with the error code, behind correlation id and tags.
        assert int.from_bytes(answer[5:7], "big") == REFUSED, (node, request)
        return True
