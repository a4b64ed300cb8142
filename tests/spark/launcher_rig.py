"""What the launcher's tests share: records in and out, our processes, and waiting."""

import os
import time
from pathlib import Path
from typing import Any

import psutil

from sparklog.client.blocking import BlockingClient
from sparklog.cluster import Cluster
from sparklog.driver.launcher.member_calls import ClusterMemberCalls
from sparklog.types import OffsetSpec, TopicPartition
from tests.support.running import ours, status_of

TOPIC = "t"
PARTITIONS = 6


def broker_processes() -> list[psutil.Process]:
    return ours("sparklog.executors")


def broker_pids() -> set[int]:
    return {process.pid for process in broker_processes()}


def is_whole(cluster: Cluster, brokers: int = 3) -> bool:
    """Every broker is alive and each has one process."""
    alive = [node for node in cluster.brokers() if not node.fenced]
    return len(alive) == len(broker_processes()) == brokers


def produce(cluster: Cluster, records: int) -> None:
    """Acknowledged records, spread over the partitions."""
    with BlockingClient(cluster.bootstrap_servers) as client, client.producer() as producer:
        for number in range(records):
            producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        producer.flush()


def values(cluster: Cluster, records: int) -> set[int]:
    """Read that many records from the start."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: set[int] = set()
    end = time.monotonic() + 60
    with BlockingClient(cluster.bootstrap_servers) as client, client.consumer() as consumer:
        consumer.assign(partitions)
        while len(found) < records and time.monotonic() < end:
            found |= {int(record.value or b"") for record in consumer.poll()}
    return found


def latest(cluster: Cluster) -> int:
    """The records of the topic, counted by offsets."""
    wanted = {TopicPartition(TOPIC, n): int(OffsetSpec.LATEST) for n in range(PARTITIONS)}
    with BlockingClient(cluster.bootstrap_servers) as client:
        return sum(answer.offset for answer in client.list_offsets(wanted).values())


def statuses(cluster: Cluster) -> list[dict[str, Any]]:
    """The counters of every broker."""
    launcher = cluster._launcher
    assert launcher is not None
    control = launcher.control_plane
    calls = ClusterMemberCalls(control.endpoint, control.secret)
    try:
        return [status_of(calls, node.endpoint) for node in cluster.brokers()]
    finally:
        calls.close()


def bytes_out(cluster: Cluster, topic: str) -> int:
    """Bytes of a topic's records that the brokers have sent to clients."""
    return sum(status["bytes_out"].get(topic, 0) for status in statuses(cluster))


def kill(pid: int) -> None:
    """As the kernel's memory killer does it."""
    os.kill(pid, 9)


def clean_markers(data: Path) -> list[bool]:
    return [(data / f"broker-{number}" / ".kafka_cleanshutdown").exists() for number in (1, 2, 3)]
