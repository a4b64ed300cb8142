"""A running cluster under attack: its nodes, the cost of an attack, and proof that it is whole.

Owns: finding the nodes, measuring memory and loop holds, and the acknowledged records that must
survive.  Must not know any attack.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from sparklog.wire.records.builder import Record, encode_batch
from tests.support.raw_wire import RawWire
from tests.support.served import ServedCluster

MIB = 1024 * 1024
CONTROL_PLANE = 0
WITNESS_TOPIC = "witness"
WAIT_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.01
_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Node:
    """One node of the cluster; id 0 is the control plane."""

    node_id: int
    address: str
    pid: int

    def rss_bytes(self) -> int:
        """Resident memory of the node's process now."""
        rss: int = psutil.Process(self.pid).memory_info().rss
        return rss

    def loop_cpu_s(self) -> float:
        """CPU time that the thread of the node's event loop has used so far, in seconds."""
        found: float = next(
            thread.user_time + thread.system_time
            for thread in psutil.Process(self.pid).threads()
            if thread.id == self.pid
        )
        return found


@dataclass(slots=True)
class Cost:
    """What happened to one node inside ``AttackedCluster.watched``.

    ``hold_cpu_s_max``: the most CPU time that the node's loop used between a ping of a client and
    its answer, in seconds.  A busy machine does not change it much, as wall time would.
    ``rss_growth_bytes_max``: how far resident memory rose above what it was before.
    """

    hold_cpu_s_max: float = 0.0
    rss_growth_bytes_max: int = 0
    pings: int = 0


@dataclass(slots=True)
class AttackedCluster:
    """A served cluster of three brokers and the records that it has acknowledged."""

    served: ServedCluster
    nodes: dict[int, Node] = field(default_factory=dict)
    _acknowledged: list[bytes] = field(default_factory=list)
    _started: dict[int, float] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def running(cls, data_dir: Path, *options: str) -> Iterator["AttackedCluster"]:
        """Start a cluster; at the end it must stop cleanly, and no log may hold a traceback."""
        served = ServedCluster(data_dir, *options)
        try:
            assert served.bootstrap, served.errors
            cluster = cls(served)
            cluster._find_nodes()
            cluster.create_topic(WITNESS_TOPIC, replicas=3, configs={"min.insync.replicas": "2"})
            cluster.acknowledge_one()
            yield cluster
            assert served.stop() == 0
            for log in (data_dir / "logs").iterdir():
                assert "Traceback" not in log.read_text(errors="replace"), log.read_text()
        finally:
            served.kill()

    @property
    def bootstrap(self) -> str:
        return self.served.bootstrap

    @property
    def brokers(self) -> list[Node]:
        return [node for node_id, node in sorted(self.nodes.items()) if node_id != CONTROL_PLANE]

    @property
    def control_plane(self) -> Node:
        return self.nodes[CONTROL_PLANE]

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = 1,
        configs: dict[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until its leaders serve it."""
        settings = tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        )
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=settings
        )
        with RawWire(self.bootstrap) as wire:
            request = CreateTopicsRequest(topics=(topic,), timeout_ms=60_000)
            [created] = wire.ask(request, 7).topics
        assert created.error_code == 0, created.error_message
        for partition in range(partitions):
            self.until(partial(self._serves, name, partition))

    def new_topic(self, **options: int) -> str:
        """Create a topic under a fresh name."""
        name = f"attacked-{next(_names)}"
        self.create_topic(name, **options)  # type: ignore[arg-type]
        return name

    def leader(self, topic: str, partition: int = 0) -> Node:
        """The node that leads a partition; waits until there is one."""
        found: list[int] = []

        def look() -> bool:
            described = self.describe(topic)
            if described.error_code:
                return False
            found[:] = [
                each.leader_id
                for each in described.partitions
                if each.partition_index == partition and not each.error_code
            ]
            return bool(found) and found[0] in self.nodes

        self.until(look)
        return self.nodes[found[0]]

    def describe(self, topic: str) -> MetadataResponseTopic:
        """What Metadata says of a topic at the control plane."""
        with RawWire(self.bootstrap) as wire:
            asked = MetadataRequest(
                topics=(MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False
            )
            [described] = wire.ask(asked, 9).topics
        found: MetadataResponseTopic = described
        return found

    def until(self, condition: Callable[[], object], seconds: float = WAIT_SECONDS_MAX) -> None:
        """Look until ``condition()`` is true; fail at the deadline."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not become true in time"
            time.sleep(LOOK_SECONDS)

    def acknowledge_one(self) -> None:
        """Have one record acknowledged by all in-sync replicas of the witness topic."""
        value = b"record %d" % len(self._acknowledged)
        with RawWire(self.leader(WITNESS_TOPIC).address) as wire:
            answer = wire.produce(WITNESS_TOPIC, encode_batch([Record(value=value)]), acks=-1)
        assert (answer.error_code, answer.base_offset) == (0, len(self._acknowledged))
        self._acknowledged.append(value)

    def check(self) -> None:
        """Same processes, a full ISR, every acknowledged record, and all nodes answer newcomers."""
        assert self._processes() == self._started
        for node in self.nodes.values():
            with RawWire(node.address) as newcomer:
                assert newcomer.answers_a_ping()
        [partition] = self.describe(WITNESS_TOPIC).partitions
        assert sorted(partition.isr_nodes) == [node.node_id for node in self.brokers]
        with RawWire(self.leader(WITNESS_TOPIC).address) as wire:
            assert wire.values(WITNESS_TOPIC) == self._acknowledged
        self.acknowledge_one()

    @contextmanager
    def watched(self, *nodes: Node) -> Iterator[dict[int, Cost]]:
        """Measure what the attack inside costs ``nodes`` (all of them without any), by node id."""
        wanted = nodes or tuple(self.nodes.values())
        costs = {node.node_id: Cost() for node in wanted}
        over = threading.Event()
        threads = [
            threading.Thread(target=_watch, args=(node, costs[node.node_id], over))
            for node in wanted
        ]
        for thread in threads:
            thread.start()
        try:
            self.until(lambda: all(cost.pings for cost in costs.values()))
            yield costs
        finally:
            over.set()
            for thread in threads:
                thread.join(WAIT_SECONDS_MAX)

    def _serves(self, topic: str, partition: int) -> bool:
        with RawWire(self.leader(topic, partition).address) as wire:
            return wire.fetch(topic, partition=partition)[0] == ErrorCode.NONE

    def _find_nodes(self) -> None:
        with RawWire(self.bootstrap) as wire:
            members = wire.ask(MetadataRequest(topics=()), 9).brokers
        pids = _listening_pids(self.served.process.pid)
        self.nodes = {
            member.node_id: Node(member.node_id, f"{member.host}:{member.port}", pids[member.port])
            for member in members
        }
        assert len(self.nodes) == 4, self.nodes
        self._started = self._processes()

    def _processes(self) -> dict[int, float]:
        alive = psutil.Process(self.served.process.pid).children(recursive=True)
        return {process.pid: process.create_time() for process in alive}


def _listening_pids(parent: int) -> dict[int, int]:
    """Port -> process id, of what listens below a process."""
    return {
        connection.laddr.port: process.pid
        for process in psutil.Process(parent).children(recursive=True)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    }


def _watch(node: Node, cost: Cost, over: threading.Event) -> None:
    rss_before = node.rss_bytes()
    with RawWire(node.address) as wire:
        while not over.is_set():
            before = node.loop_cpu_s()
            assert wire.answers_a_ping()
            cost.hold_cpu_s_max = max(cost.hold_cpu_s_max, node.loop_cpu_s() - before)
            cost.rss_growth_bytes_max = max(
                cost.rss_growth_bytes_max, node.rss_bytes() - rss_before
            )
            cost.pings += 1
