"""Three brokers of Kafka beside three of ours, whose brokers can hang and come back.

Owns: which process is which broker, and topics whose replicas stand on the same brokers on either
side.  Must not know what is asked of them.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
    TopicRequest,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest
from tests.peers.both import TIMEOUT_MS, Both, Side
from tests.peers.kafka_cluster import KafkaCluster
from tests.support.raw_wire import RawWire
from tests.support.served import ServedCluster

#: A broker that hangs is missed, and one that a busy machine holds up for seconds is not: leaders
#: move only when they are told to, so what a broker has lost by that stays lost.
TRIO_SETTINGS = {
    "broker.session.timeout.ms": "8000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": "-1",
}
#: The session, and what a busy machine adds.
MISSED_SECONDS_MAX = 90.0
#: Never hangs: it is the one that is asked, and Kafka's only controller.
ASKED = 1
BROKERS = (1, 2, 3)

#: Replicas of each partition, the preferred leader first.
Assignments = Sequence[Sequence[int]]
#: New replicas by partition; None cancels what moves.
Moves = dict[int, tuple[int, ...] | None]
Partition = DescribeTopicPartitionsResponsePartition


@dataclass(slots=True)
class Trio:
    """One of the two clusters."""

    side: Side
    bootstrap: str
    pids: dict[int, int]

    @classmethod
    def of_kafka(cls, cluster: KafkaCluster) -> "Trio":
        addresses = {str(number): cluster.nodes[number].address for number in BROKERS}
        pids = {number: cluster.pid(number) for number in BROKERS}
        return cls._of("kafka", addresses, pids)

    @classmethod
    def of_ours(cls, cluster: ServedCluster) -> "Trio":
        with RawWire(cluster.bootstrap) as wire:
            nodes = wire.ask(MetadataRequest(topics=()), 9).brokers
        listening = {_port(pid): pid for pid in cluster.broker_pids()}
        addresses = {str(node.node_id): f"{node.host}:{node.port}" for node in nodes}
        pids = {node.node_id: listening[node.port] for node in nodes if node.node_id in BROKERS}
        return cls._of("ours", {"control plane": addresses.pop("0"), **addresses}, pids)

    @classmethod
    def _of(cls, name: str, addresses: dict[str, str], pids: dict[int, int]) -> "Trio":
        bootstrap = addresses[str(ASKED)]
        return cls(Side(name, {"broker": bootstrap, **addresses}), bootstrap, pids)

    def hang(self, broker_id: int) -> None:
        assert broker_id != ASKED
        os.kill(self.pids[broker_id], signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        os.kill(self.pids[broker_id], signal.SIGCONT)

    def create(self, name: str, assignments: Assignments, **configs: str) -> None:
        """As ``Trios.create``."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(replicas))
                for number, replicas in enumerate(assignments)
            ),
            configs=tuple(
                CreatableTopicConfig(name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_MS)
        [created] = self.side.exchange(request, 7).topics
        assert created.error_code == 0, (self.side.name, created)
        self.side.ids[name] = created.topic_id
        count, nodes = len(assignments), list(self.side.addresses)
        self._await(lambda: all(len(self.partitions(name, n)) == count for n in nodes), name)

    def partitions(self, topic: str, node: str = "broker") -> list[Partition]:
        """As a node knows them."""
        request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name=topic),))
        [described] = self.side.exchange(request, 0, node).topics
        return sorted(described.partitions, key=lambda partition: partition.partition_index)

    def await_partitions(self, topic: str, condition: Callable[[list[Partition]], bool]) -> None:
        self._await(lambda: condition(self.partitions(topic)), topic)

    def _await(self, condition: Callable[[], bool], topic: str) -> None:
        deadline = time.monotonic() + MISSED_SECONDS_MAX
        while not condition():
            assert time.monotonic() < deadline, (self.side.name, self.partitions(topic))
            time.sleep(0.05)


class Trios(Both):
    """Both clusters; the same is done to both, and the same must be seen of both."""

    def __init__(self, kafka: Trio, ours: Trio) -> None:
        super().__init__(kafka.side, ours.side)
        self.clusters = (kafka, ours)

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.side.close()

    def place(self, name: str, assignments: Assignments, **configs: str) -> str:
        """A topic whose partitions have these replicas, and that every node knows.

        ``_`` in names of settings is a dot.
        """
        for cluster in self.clusters:
            cluster.create(name, assignments, **configs)
        return name

    def hang(self, broker_id: int, topic: str) -> None:
        """Stop a broker's processes; returns when the topic shows that it is missed."""
        for cluster in self.clusters:
            cluster.hang(broker_id)
        self.await_partitions(topic, lambda all_: all(broker_id not in p.isr_nodes for p in all_))

    def resume(self, broker_id: int, *topics: str) -> None:
        """Let it go on; returns when it is in sync again, in each of the topics."""
        for cluster in self.clusters:
            cluster.resume(broker_id)
        for topic in topics:
            self.await_partitions(
                topic,
                lambda all_: all(
                    set(p.isr_nodes) == set(p.replica_nodes) and not p.offline_replicas
                    for p in all_
                ),
            )

    def await_partitions(self, topic: str, condition: Callable[[list[Partition]], bool]) -> None:
        for cluster in self.clusters:
            cluster.await_partitions(topic, condition)


def moving(name: str, moves: Moves, **options: bool) -> AlterPartitionReassignmentsRequest:
    partitions = tuple(
        ReassignablePartition(partition_index=number, replicas=replicas)
        for number, replicas in moves.items()
    )
    topic = ReassignableTopic(name=name, partitions=partitions)
    return AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=(topic,), **options)


def _port(pid: int) -> int:
    """Where a process listens."""
    connections = psutil.Process(pid).net_connections("inet")
    [port] = [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]
    return int(port)
