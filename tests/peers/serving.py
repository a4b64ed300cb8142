"""How the clusters of these tests are set up, and where the broker of one of ours listens."""

from sparklog.wire.protocol.messages.metadata import MetadataRequest
from tests.support.raw_wire import RawWire
from tests.support.served import ServedCluster

#: For both: records of tests are old, and must stay nevertheless.
RETENTION = ("log.retention.ms", "-1")


def broker_address(cluster: ServedCluster) -> str:
    with RawWire(cluster.bootstrap) as wire:
        nodes = wire.ask(MetadataRequest(topics=()), 9).brokers
    [broker] = [node for node in nodes if node.node_id]
    return f"{broker.host}:{broker.port}"
